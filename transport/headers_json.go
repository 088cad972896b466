package transport

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
)

// AppendHeadersJSON appends h to dst as a JSON object of strings, in the order of h, and
// returns the extended slice. NServiceBus's transports for SQL Server, PostgreSQL and
// Amazon SQS write headers in this format, and their older versions can read the result
// too.
//
// Keys and values must be UTF-8, as Send has to check: other bytes are written as
// they are, and [ParseHeadersJSON] will refuse them. The result has no NUL and no other
// control character, so a text column accepts it.
func AppendHeadersJSON(dst []byte, h core.Headers) []byte {
	const punctuation = len(`"":"",`)
	dst = slices.Grow(dst, len(`{}`)+h.Len()*punctuation+h.Bytes())
	dst = append(dst, '{')
	for key, value := range h.All() {
		dst = append(appendJSONString(dst, key), ':')
		dst = append(appendJSONString(dst, value), ',')
	}
	if h.Len() > 0 {
		dst = dst[:len(dst)-1] // the last comma
	}
	return append(dst, '}')
}

// escapeLetters has, at the same index, the letter that stands for a character of escapes
// after a backslash. JSON does not need \/, but the readers of older NServiceBus versions
// do.
const (
	escapeLetters = `"\/bfnrt`
	escapes       = "\"\\/\b\f\n\r\t"
)

func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	written := 0 // bytes of s
	for i := plainEnd(s, 0); i < len(s); i = plainEnd(s, i) {
		c := s[i]
		letter := strings.IndexByte(escapes, c)
		switch {
		case letter >= 0:
			dst = append(append(dst, s[written:i]...), '\\', escapeLetters[letter])
			i++
		case c < ' ':
			dst = append(append(dst, s[written:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&0xF])
			i++
		case strings.HasPrefix(s[i:], "\uFFFE"), strings.HasPrefix(s[i:], "\uFFFF"):
			// Unescaped they are valid JSON too, but the same readers refuse them.
			dst = append(append(dst, s[written:i]...), '\\', 'u', 'f', 'f', 'f', hex[s[i+2]&0xF])
			i += 3
		default:
			for i++; i < len(s) && s[i] >= utf8.RuneSelf && s[i] != "\uFFFE"[0]; i++ {
			}
			continue
		}
		written = i
	}
	return append(append(dst, s[written:]...), '"')
}

// ParseHeadersJSON reads the output of [AppendHeadersJSON], and any other JSON object. Values
// that are not strings are read as text, in which nothing is escaped: a number or a boolean
// as it is written, null as an empty value, an array as 1;2;3, and an object as a=1,b=2 in the
// order of its keys, each nested at most 32 deep. Half of a surrogate pair is U+FFFD, and the
// last value of a repeated key counts. The headers are in the order of the text or, if it
// has more than 64, in the order of their keys. No reference to text is kept.
//
// An error says what is wrong at which byte, and quotes no value. It belongs in the
// message's Malformed, next to the headers that could be read:
//
//   - If text is not JSON, or is nested deeper, the headers before the mistake. There are
//     none if text is not an object, is empty or is a null.
//   - Without a member whose key is empty. That error matches [core.ErrInvalidHeader].
//   - With U+FFFD for each byte that is not UTF-8. That error matches it too.
func ParseHeadersJSON(text []byte) (core.Headers, error) {
	var h core.Headers
	p := headersParser{text: text}
	if p.space(); !p.take('{') {
		p.unexpected("a JSON object")
		return h, p.err
	}
	p.strings.Grow(len(text))
	h.Grow(min(bytes.Count(text, []byte{'"'})/len(`""""`), manyHeaders))
	for {
		key, value, ok := p.next()
		switch {
		case !ok:
			return h, p.err
		case h.Len() < manyHeaders:
			h.Set(key, value)
		default:
			h = p.rest(h, key, value)
			return h, p.err
		}
	}
}

// manyHeaders is about the number from which a map is faster than Headers.Set, which
// compares with every key. A foreign text can have many thousands.
const manyHeaders = 64

// headersParser reads a JSON object header by header.
type headersParser struct {
	text    []byte
	at      int             // the next byte to read
	strings strings.Builder // all keys and values, so that they are one allocation
	members int             // of the object, read so far
	err     error           // the first
}

// rest returns h with key and all the following headers.
func (p *headersParser) rest(h core.Headers, key, value string) core.Headers {
	all := h.Map()
	for ok := true; ok; key, value, ok = p.next() {
		all[key] = value
	}
	return core.HeadersFromMap(all)
}

// next returns the next header, or false if there is none: the object ends, or the rest
// is not JSON. It skips members that are not headers.
func (p *headersParser) next() (key, value string, ok bool) {
	for p.member() {
		start := p.at
		if key, ok = p.key(); !ok {
			return "", "", false
		}
		if p.at < len(p.text) && p.text[p.at] == '"' {
			value, ok = p.quoted()
		} else {
			var text []byte
			text, ok = p.appendValue(nil, 0)
			value = string(text)
		}
		if !ok {
			return "", "", false
		}
		if key != "" {
			return key, value, true
		}
		p.failed(start, fmt.Errorf("%w: the key is empty", core.ErrInvalidHeader))
	}
	return "", "", false
}

// member moves to the next member's key, and reports whether one must follow.
func (p *headersParser) member() bool {
	more, ok := p.element('}', p.members)
	if !more && ok {
		if p.space(); p.at < len(p.text) {
			p.unexpected("nothing after the object")
		}
	}
	p.members++
	return more
}

// element moves to the next element of an array or an object, after n of them. more is false
// at the end, and ok is false if there is a mistake.
func (p *headersParser) element(end byte, n int) (more, ok bool) {
	if p.space(); p.take(end) {
		return false, true
	}
	if n > 0 {
		if !p.take(',') {
			p.unexpected(`"," or ` + strconv.Quote(string(end)))
			return false, false
		}
		p.space()
	}
	return true, true
}

// key reads a key and the colon behind it.
func (p *headersParser) key() (key string, ok bool) {
	if key, ok = p.quoted(); !ok {
		return "", false
	}
	if p.space(); !p.take(':') {
		p.unexpected(`":"`)
		return "", false
	}
	p.space()
	return key, true
}

// quoted reads a string.
func (p *headersParser) quoted() (s string, ok bool) {
	if !p.take('"') {
		p.unexpected("a string")
		return "", false
	}
	from := p.strings.Len()
	for {
		run := p.at
		p.at = plainEnd(p.text, run)
		p.strings.Write(p.text[run:p.at])
		if p.at == len(p.text) {
			p.unexpected("the rest of a string")
			return "", false
		}
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.strings.String()[from:], true
		case c == '/':
			p.at++
			p.strings.WriteByte(c)
		case c == '\\':
			if !p.escape() {
				return "", false
			}
		case c < ' ':
			p.unexpected("control characters to be escaped")
			return "", false
		default:
			r, size := utf8.DecodeRune(p.text[p.at:])
			if r == utf8.RuneError && size == 1 {
				p.failed(p.at, fmt.Errorf("%w: not UTF-8", core.ErrInvalidHeader))
			}
			p.at += size
			p.strings.WriteRune(r)
		}
	}
}

// escape reads a backslash and the rest of its escape sequence.
func (p *headersParser) escape() bool {
	if p.at+1 < len(p.text) {
		if letter := strings.IndexByte(escapeLetters, p.text[p.at+1]); letter >= 0 {
			p.at += 2
			p.strings.WriteByte(escapes[letter])
			return true
		}
	}
	r := p.codeUnit()
	if r < 0 {
		p.failed(p.at, errors.New("not an escape sequence of JSON"))
		return false
	}
	p.at += len(`\u0000`)
	if utf16.IsSurrogate(r) {
		// A half without its other half is U+FFFD, and the text after it stands for
		// itself.
		if r = utf16.DecodeRune(r, p.codeUnit()); r != utf8.RuneError {
			p.at += len(`\u0000`)
		}
	}
	p.strings.WriteRune(r)
	return true
}

// codeUnit returns the number in the \u escape at the current position, or -1.
func (p *headersParser) codeUnit() rune {
	escape := p.text[p.at:min(len(p.text), p.at+len(`\u0000`))]
	if len(escape) < len(`\u0000`) || escape[0] != '\\' || escape[1] != 'u' {
		return -1
	}
	var unit rune
	for _, c := range escape[2:] {
		switch {
		case '0' <= c && c <= '9':
			unit = unit<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			unit = unit<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return unit
}

// maxDepth is how deep arrays and objects may be nested in the value of a header.
const maxDepth = 32

// appendValue reads a value, of any type, and appends its text to dst. An object is copied once
// more to sort its keys, so that the work grows with the length of the text, and with maxDepth.
func (p *headersParser) appendValue(dst []byte, depth int) (text []byte, ok bool) {
	if p.at == len(p.text) {
		p.unexpected("a value")
		return nil, false
	}
	switch c := p.text[p.at]; {
	case c == '"':
		s, ok := p.quoted()
		return append(dst, s...), ok
	case c == '[' || c == '{':
		if depth == maxDepth {
			p.failed(p.at, fmt.Errorf("arrays and objects are nested deeper than %d", maxDepth))
			return nil, false
		}
		p.at++
		if c == '[' {
			return p.appendArray(dst, depth+1)
		}
		return p.appendObject(dst, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		return p.appendNumber(dst)
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(p.text[p.at:], []byte(word)) {
			p.at += len(word)
			if word == "null" {
				return dst, true
			}
			return append(dst, word...), true
		}
	}
	p.unexpected("a value")
	return nil, false
}

// appendNumber reads a number, and appends it as it is written.
func (p *headersParser) appendNumber(dst []byte) (text []byte, ok bool) {
	start := p.at
	p.take('-')
	if !p.take('0') && !p.digits() {
		return nil, false
	}
	if p.take('.') && !p.digits() {
		return nil, false
	}
	if p.take('e') || p.take('E') {
		if !p.take('-') {
			p.take('+')
		}
		if !p.digits() {
			return nil, false
		}
	}
	return append(dst, p.text[start:p.at]...), true
}

// digits reads digits, of which there must be one.
func (p *headersParser) digits() bool {
	start := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	if p.at == start {
		p.unexpected("a digit")
		return false
	}
	return true
}

// appendArray reads the rest of an array.
func (p *headersParser) appendArray(dst []byte, depth int) (text []byte, ok bool) {
	for n := 0; ; n++ {
		more, ok := p.element(']', n)
		if !more {
			return dst, ok
		}
		if n > 0 {
			dst = append(dst, ';')
		}
		if dst, ok = p.appendValue(dst, depth); !ok {
			return nil, false
		}
	}
}

// appendObject reads the rest of an object.
func (p *headersParser) appendObject(dst []byte, depth int) (text []byte, ok bool) {
	type member struct {
		key      string
		from, to int // of its value, in values
	}
	var members []member
	var values []byte
	for n := 0; ; n++ {
		more, ok := p.element('}', n)
		if !ok {
			return nil, false
		}
		if !more {
			break
		}
		m := member{from: len(values)}
		if m.key, ok = p.key(); !ok {
			return nil, false
		}
		if values, ok = p.appendValue(values, depth); !ok {
			return nil, false
		}
		m.to = len(values)
		members = append(members, m)
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for n, m := range members {
		if n+1 < len(members) && members[n+1].key == m.key {
			continue // the last one counts
		}
		dst = append(append(append(dst, m.key...), '='), values[m.from:m.to]...)
		if n+1 < len(members) {
			dst = append(dst, ',')
		}
	}
	return dst, true
}

func (p *headersParser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take reads c if it is the next byte.
func (p *headersParser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *headersParser) unexpected(want string) {
	found := "the end of the text"
	if p.at < len(p.text) {
		_, size := utf8.DecodeRune(p.text[p.at:])
		found = strconv.Quote(string(p.text[p.at : p.at+size]))
	}
	p.failed(p.at, fmt.Errorf("found %s, want %s", found, want))
}

func (p *headersParser) failed(at int, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("transport: parse headers: byte %d: %w", at, err)
	}
}

// plainEnd returns the index of the first byte of s, from i on, that must not stand
// unescaped in a JSON string, or is a slash, or is not ASCII; or len(s).
func plainEnd[T string | []byte](s T, i int) int {
	// Eight bytes at a time, three times as fast as one by one: stop has the high bit of
	// each byte that is not plain. If a subtraction borrows, the bytes above may be
	// wrong, but only the lowest one counts.
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		stop := x | (x - each*' ') | (x ^ each*'"' - each) | (x ^ each*'\\' - each) | (x ^ each*'/' - each)
		if stop &= high; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
	}
	for i < len(s) && ' ' <= s[i] && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' && s[i] != '/' {
		i++
	}
	return i
}
