package fingerprint

import "strings"

// class is the class of a byte of a text.
type class uint8

const (
	other class = iota
	blank
	digit
	letter // and '_', and each byte of a character that is not ASCII
	quote
	pathStart // '/', '.', '~'
	bracket
)

var classes = func() (c [256]class) {
	for b := range c {
		switch {
		case b >= '0' && b <= '9':
			c[b] = digit
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b == '_', b >= 0x80:
			c[b] = letter
		case b <= ' ':
			c[b] = blank
		}
	}
	for b, as := range map[byte]class{'"': quote, '\'': quote, '`': quote, '/': pathStart, '.': pathStart, '~': pathStart, '[': bracket} {
		c[b] = as
	}
	return c
}()

// set is a set of ASCII characters.
type set [2]uint64

func setOf(chars string) (s set) {
	for i := range len(chars) {
		s[chars[i]>>6&1] |= 1 << (chars[i] & 63)
	}
	return s
}

func (s *set) has(b byte) bool { return b < 0x80 && s[b>>6]>>(b&63)&1 != 0 }

// The sets.
var (
	signContexts   = setOf(" (=[,:")
	inNumber       = setOf(".,:-+/") // before a digit
	inAddress      = setOf(".-+%@:")
	inID           = setOf("+/=_-")
	noPathContexts = setOf(")]}./*~-")
	pathBeginnings = setOf("._-~")
	pathEnds       = setOf("\"'`()[]{},;<>|")
	pathTrailers   = setOf(":.!?")
	inIPv6         = setOf(":.%")
	separators     = setOf(" :=([#\"'")
	weakSeparators = setOf(" (")
)

func isDigit(b byte) bool { return b-'0' <= 9 }
func isHex(b byte) bool   { return isDigit(b) || b|0x20 >= 'a' && b|0x20 <= 'f' }

// isWord reports whether a byte is a part of words and numbers.
func isWord(b byte) bool { return classes[b] == letter || classes[b] == digit }

// scanner reads a text from its beginning to its end. No function looks at a byte more often
// than a few times.
type scanner struct {
	text   string
	at     int
	result []byte
	begin  int // of the text in result

	noQuote [3]bool // there is no further closing quote of that kind
	nameEnd int     // the end of the newest name that was looked at
	idEnd   int     // the end of the newest id that was looked at
}

// appendNormal appends a text with '#' for each of its varying parts, and one blank for each row
// of them.
func appendNormal(b []byte, text string) []byte {
	s := scanner{text: text, result: b, begin: len(b)}
	for s.at < len(text) {
		c := text[s.at]
		switch classes[c] {
		case blank:
			if n := len(s.result); n == s.begin || s.result[n-1] != ' ' {
				s.result = append(s.result, ' ')
			}
			s.at++
		case digit:
			s.number()
		case letter:
			s.word()
		case quote:
			s.quoted()
		case pathStart:
			if !s.path() {
				s.literal()
			}
		case bracket:
			if !s.bracketed() {
				s.literal()
			}
		default:
			s.literal()
		}
	}
	return s.result
}

// literal appends the next byte as it is.
func (s *scanner) literal() {
	s.result = append(s.result, s.text[s.at])
	s.at++
}

// next returns a byte of the text, or 0 behind its end.
func (s *scanner) next(i int) byte {
	if i < len(s.text) {
		return s.text[i]
	}
	return 0
}

// mark replaces the text up to end by '#', without its sign. A list is one '#'.
func (s *scanner) mark(end int) {
	s.at = end
	r := s.result
	if n := len(r); n > s.begin && (r[n-1] == '-' || r[n-1] == '+') && (n-1 == s.begin || signContexts.has(r[n-2])) {
		r = r[:n-1]
	}
	n := len(r)
	for n > s.begin && n > len(r)-2 && (r[n-1] == ' ' || r[n-1] == ',') {
		n--
	}
	if n == s.begin || r[n-1] != '#' {
		r = append(r, '#')
	} else {
		r = r[:n]
	}
	s.result = r
}

// number reads a word that begins with a digit: a number with its unit, a time, an IP address
// with its port, an id.
func (s *scanner) number() {
	if end := s.uuidOrIPv6(); end > 0 {
		s.mark(end)
		return
	}
	i := s.at + 1
	for i < len(s.text) {
		if c := s.text[i]; !isWord(c) && (!inNumber.has(c) || !isDigit(s.next(i+1))) {
			break
		}
		i++
	}
	s.mark(i)
}

// uuidOrIPv6 returns the end of a UUID or an IPv6 address, or 0.
func (s *scanner) uuidOrIPv6() int {
	const length = 36
	if t := s.text[s.at:]; len(t) >= length && t[8] == '-' && t[13] == '-' && t[18] == '-' && t[23] == '-' {
		i := 0
		for i < length && (isHex(t[i]) || t[i] == '-') {
			i++
		}
		if c := s.next(s.at + length); i == length && (!isWord(c) || c == '_') {
			for i += s.at; isWord(s.next(i)); { // Service Bus appends the number of a gateway
				i++
			}
			return i
		}
	}
	const longest = 39
	i, colons := s.at, 0
	for i < len(s.text) && i < s.at+longest && (isHex(s.text[i]) || s.text[i] == ':') {
		if s.text[i] == ':' {
			colons++
		}
		i++
	}
	if isWord(s.next(i)) {
		return 0
	}
	for s.text[i-1] == ':' {
		colons--
		i--
	}
	if colons < 2 {
		return 0
	}
	return i
}

// word reads a word that begins with a letter.
func (s *scanner) word() {
	i, digits, switches, hex := s.at, 0, 0, true
	wasDigit := false
	for ; i < len(s.text); i++ {
		c := s.text[i]
		if !isWord(c) {
			break
		}
		is := isDigit(c)
		if is {
			digits++
		}
		if is != wasDigit {
			switches++
		}
		wasDigit, hex = is, hex && isHex(c)
	}
	length, after := i-s.at, s.next(i)
	if inAddress.has(after) {
		if end := s.address(i); end > 0 {
			s.mark(end)
			return
		}
	}
	switch {
	case isHex(s.text[s.at]) && length <= 8 && (after == '-' || after == ':') && s.markUUIDOrIPv6():
	case (length >= shortestID || inID.has(after)) && s.markID():
	case digits > 0 && hex && length >= 8, digits > 1 && length >= 16, switches > 3:
		s.mark(i)
	case length == 1 && s.next(i) == ':' && s.next(i+1) == '\\':
		s.mark(s.pathEnd(i + 1))
	default:
		word := s.text[s.at:i]
		if digits == 0 {
			s.result = append(s.result, word...)
			s.at = i
		}
		for s.at < i {
			if !isDigit(s.text[s.at]) {
				s.literal()
				continue
			}
			s.result = append(s.result, '#')
			for s.at < i && isDigit(s.text[s.at]) {
				s.at++
			}
		}
		s.code(word)
	}
}

func (s *scanner) markUUIDOrIPv6() bool {
	end := s.uuidOrIPv6()
	if end > 0 {
		s.mark(end)
	}
	return end > 0
}

// address returns the end of a URL, an e-mail address or a host with a port, of which the word
// up to wordEnd is the beginning, or 0.
func (s *scanner) address(wordEnd int) int {
	if s.next(wordEnd) == ':' && s.next(wordEnd+1) == '/' && s.next(wordEnd+2) == '/' {
		return s.pathEnd(wordEnd)
	}
	if s.at < s.nameEnd { // it was looked at
		return 0
	}
	end, dot := s.at, 0
	for ; end < len(s.text); end++ {
		if c := s.text[end]; c == '.' {
			dot = end
		} else if !isWord(c) && c != '-' && c != '+' && c != '%' {
			break
		}
	}
	s.nameEnd = end
	switch name := s.text[s.at:end]; {
	case s.next(end) == '@' && isWord(s.next(end+1)):
		for end++; isWord(s.next(end)) || s.next(end) == '-' || s.next(end) == '.' && isWord(s.next(end+1)); {
			end++
		}
		return end
	case s.next(end) != ':' || !isDigit(s.next(end+1)):
		return 0
	case name == "localhost", dot > 0 && dot < end-1 && !isSource(s.text[dot+1:end]):
		port := end + 1
		for end = port; isDigit(s.next(end)); {
			end++
		}
		if end-port <= 5 && !isWord(s.next(end)) {
			return end
		}
	}
	return 0
}

// isSource reports whether a name ends like that of a file of source code, which is followed by
// the number of a line.
func isSource(suffix string) bool {
	switch suffix {
	case "go", "c", "cc", "cpp", "cs", "fs", "h", "java", "js", "kt", "mjs", "php", "py", "rb", "rs", "sql", "swift", "ts", "json", "yaml", "yml", "xml", "toml", "proto":
		return true
	}
	return false
}

// shortestID is the least length of an id of base64, in bytes.
const shortestID = 24

// markID replaces a long id of letters in both cases and digits, such as one of base64.
func (s *scanner) markID() bool {
	if s.at < s.idEnd {
		return false
	}
	var digits, upper, lower int
	i := s.at
	for ; i < len(s.text); i++ {
		c := s.text[i]
		switch {
		case isDigit(c):
			digits++
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= 'a' && c <= 'z':
			lower++
		case !inID.has(c):
			goto end
		}
	}
end:
	s.idEnd = i
	if i-s.at < shortestID || digits < 3 || upper < 3 || lower < 3 {
		return false
	}
	s.mark(i)
	return true
}

// path replaces a path of files or of a URL, if one begins here.
func (s *scanner) path() bool {
	if s.at > 0 && (isWord(s.text[s.at-1]) || noPathContexts.has(s.text[s.at-1])) {
		return false
	}
	i := s.at
	if s.text[i] == '~' {
		i++
	}
	for n := 0; n < 2 && s.next(i) == '.'; n++ {
		i++
	}
	if c := s.next(i + 1); s.next(i) != '/' || !isWord(c) && (!pathBeginnings.has(c)) {
		return false
	}
	s.mark(s.pathEnd(i))
	return true
}

// pathEnd returns the end of a path that is read from i on.
func (s *scanner) pathEnd(i int) int {
	begin := i
	for ; i < len(s.text); i++ {
		if c := s.text[i]; classes[c] == blank || pathEnds.has(c) {
			break
		}
	}
	for i > begin && pathTrailers.has(s.text[i-1]) {
		i--
	}
	return i
}

// bracketed replaces an IPv6 address in brackets, with its port.
func (s *scanner) bracketed() bool {
	const longest = 64 // with a zone
	i, colons := s.at+1, 0
	for i < len(s.text) && i < s.at+longest && (isWord(s.text[i]) || inIPv6.has(s.text[i])) {
		if s.text[i] == ':' {
			colons++
		}
		i++
	}
	if colons < 2 || s.next(i) != ']' {
		return false
	}
	if i++; s.next(i) == ':' && isDigit(s.next(i+1)) {
		for i++; isDigit(s.next(i)); {
			i++
		}
	}
	s.mark(i)
	return true
}

// quoted replaces a quoted value. The name of a code in JSON is kept with its number.
func (s *scanner) quoted() {
	q := s.text[s.at]
	kind := strings.IndexByte("\"'`", q)
	if s.noQuote[kind] || q == '\'' && s.at > 0 && isWord(s.text[s.at-1]) { // an apostrophe
		s.literal()
		return
	}
	i := s.at + 1
	for ; i < len(s.text); i++ {
		c := s.text[i]
		if c == '\\' && q != '`' {
			i++
		} else if c == q && (q != '\'' || !isWord(s.next(i+1))) {
			break
		}
	}
	if i >= len(s.text) {
		s.noQuote[kind] = true
		s.literal()
		return
	}
	content := s.text[s.at+1 : i]
	if s.next(i+1) == ':' && len(content) <= 32 {
		if kind := kindOf(content); kind != noCode {
			before, n := s.at, len(s.result)
			s.result = append(append(append(s.result, q), content...), q)
			s.at = i + 1
			if s.code(content) {
				return
			}
			s.at, s.result = before, s.result[:n]
		}
	}
	s.mark(i + 1)
}

// codeKind is the kind of a word before a code, which tells causes apart.
type codeKind uint8

const (
	noCode   codeKind = iota
	weak              // "error 404", but not "error: 3 of 5 failed"
	strong            // "status: 404"
	sqlState          // "SQLSTATE 42P01"
)

// kindOf returns the kind of a word, such as "status", "StatusCode" or "error_code".
func kindOf(word string) codeKind {
	var known string
	kind := weak
	switch n := len(word); {
	case endsWith(word, 'u', 's'):
		known, kind = "status", strong
	case endsWith(word, 'd', 'e'):
		known, kind = "code", strong
	case endsWith(word, 'n', 'o'):
		known, kind = "errno", strong
	case endsWith(word, 't', 'e'):
		known, kind = "sqlstate", sqlState
	case endsWith(word, 'o', 'r'):
		known = "error"
	case endsWith(word, 'o', 'n'):
		known = "exception"
	case endsWith(word, 's', 'e'):
		known = "response"
	case n == 4 && endsWith(word, 't', 'p'):
		known = "http"
	default:
		return noCode
	}
	rest := len(word) - len(known)
	if rest < 0 {
		return noCode
	}
	for i := range len(known) {
		if word[rest+i]|0x20 != known[i] {
			return noCode
		}
	}
	if rest > 0 && isWord(word[rest-1]) && word[rest-1] != '_' && (word[rest] > 'Z' || word[rest-1] < 'a') {
		return noCode // such as decode
	}
	return kind
}

// endsWith reports whether a word ends with two letters, in either case.
func endsWith(word string, a, b byte) bool {
	n := len(word)
	return n > 1 && word[n-1]|0x20 == b && word[n-2]|0x20 == a
}

// code appends the code that follows a word, and reports whether there is one.
func (s *scanner) code(word string) bool {
	kind := kindOf(word)
	if kind == noCode {
		return false
	}
	allowed, shortest := &separators, 1
	if kind == weak {
		allowed, shortest = &weakSeparators, 3
	}
	i := s.at
	for i < s.at+3 && allowed.has(s.next(i)) && i < len(s.text) {
		i++
	}
	begin := i
	if i == s.at {
		return false
	}
	if s.next(i) == '-' {
		i++
	}
	first := i
	if !isDigit(s.next(first)) && kind != sqlState {
		return false
	}
	for isWord(s.next(i)) {
		i++
	}
	longest := 5
	if s.next(first) == '0' && s.next(first+1)|0x20 == 'x' {
		longest = 10
	}
	if n := i - first; n < shortest || n > longest || !isDigit(s.text[first]) && n != 5 {
		return false
	}
	if s.next(i) == '-' && isWord(s.next(i+1)) { // an id
		return false
	}
	if last := s.text[begin-1]; classes[last] == quote && s.next(i) == last {
		i++
	}
	s.result = append(s.result, s.text[s.at:i]...)
	s.at = i
	return true
}
