package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
)

// Limits of the client library's decoding of one message.
const (
	maxDepth    = 32   // of tables and arrays within each other
	maxElements = 8192 // of one table or array
)

const (
	// maxKeptHeaders is how many headers are kept of a message that has more than the
	// library decodes.
	maxKeptHeaders = 4000

	// keptRoom is left free in a frame with replaced headers, for the headers of a failure
	// and of the transport.
	keptRoom = 16 << 10

	// maxRendered is the depth to which a nested value is rendered as text.
	maxRendered = 1000
)

// contentHeader is a content header: the parts of a frame of type frameHeader.
type contentHeader struct {
	before []byte // of the frame, up to the length of the table
	table  []byte
	after  []byte // from the end of the table to the end of the frame
}

// parseHeader finds the table of headers in a frame. It returns false if there is none.
func parseHeader(frame []byte) (h contentHeader, ok bool) {
	const (
		flagsAt = frameHead + 2 + 2 + 8 // behind class, weight and size of the body

		contentType = 1 << 15
		encoding    = 1 << 14
		headers     = 1 << 13
	)
	at := flagsAt + 2
	if len(frame) < at+1 {
		return h, false
	}
	flags := binary.BigEndian.Uint16(frame[flagsAt:])
	if flags&headers == 0 {
		return h, false
	}
	for _, flag := range []uint16{contentType, encoding} {
		if flags&flag != 0 {
			at += 1 + int(frame[at])
			if at+1 > len(frame) {
				return h, false
			}
		}
	}
	if len(frame) < at+4+1 {
		return h, false
	}
	size := uint64(binary.BigEndian.Uint32(frame[at:]))
	if end := uint64(at) + 4 + size; end < uint64(len(frame)) {
		return contentHeader{frame[:at], frame[at+4 : end], frame[end:]}, true
	}
	return h, false
}

// checkTable returns why the client library cannot decode a table, or "".
func checkTable(p []byte, depth int) (why string) {
	if depth > maxDepth {
		return tooDeep
	}
	for n := 0; len(p) > 0; n++ {
		key := 1 + int(p[0])
		if len(p) < key {
			return notAMQP
		}
		size := fieldSize(p[key:])
		switch {
		case size == 0:
			return notAMQP
		case n == maxElements:
			return tooMany
		}
		if why := checkNested(p[key:key+size], depth); why != "" {
			return why
		}
		p = p[key+size:]
	}
	return ""
}

const (
	tooDeep = "a table or an array is nested deeper than 32"
	tooMany = "a table or an array has more than 8,192 elements"
	notAMQP = "a value is of an unknown type or ends too early"
)

// checkNested returns why the client library cannot decode a value in a table or array at
// that depth, or "".
func checkNested(field []byte, depth int) (why string) {
	switch field[0] {
	case 'F':
		return checkTable(field[5:], depth+1)
	case 'A':
		if depth+1 > maxDepth {
			return tooDeep
		}
		p := field[5:]
		for n := 0; len(p) > 0; n++ {
			size := fieldSize(p)
			switch {
			case size == 0:
				return notAMQP
			case n == maxElements:
				return tooMany
			}
			if why := checkNested(p[:size], depth+1); why != "" {
				return why
			}
			p = p[size:]
		}
	}
	return ""
}

// fieldSize returns the size in bytes of the value at the beginning of p, including its
// type, or 0 if it cannot be determined.
func fieldSize(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	n := 0
	switch p[0] {
	case 'V':
		n = 1
	case 't', 'b', 'B':
		n = 2
	case 's', 'u':
		n = 3
	case 'I', 'i', 'f':
		n = 5
	case 'D':
		n = 6
	case 'l', 'd', 'T':
		n = 9
	case 'S', 'x', 'A', 'F':
		if len(p) < 5 {
			return 0
		}
		size := binary.BigEndian.Uint32(p[1:])
		if uint64(size) > uint64(len(p)-5) {
			return 0
		}
		n = 5 + int(size)
	}
	if n > len(p) {
		return 0
	}
	return n
}

// rewriteHeader returns the frame with headers that the client library can decode, for a
// frame that it would refuse. The result has at most most bytes.
//
// Decodable headers are kept as they are, others as the text that header.AppendValue makes
// of values. If there are too many, or if the broker has made the frame larger than the
// negotiated maximum (it adds headers at a redelivery), the last headers are left out and
// the longest are cut.
func rewriteHeader(frame []byte, limit int) []byte {
	h, _ := parseHeader(frame)
	why := checkTable(h.table, 0)
	if why == "" {
		why = fmt.Sprintf("they make a frame of %d bytes, and %d were agreed on", len(frame), limit)
	}
	t := keptTable{room: limit - len(h.before) - 4 - len(h.after) - min(keptRoom, limit/4)}
	raw := compressTable(h.table)
	if len(raw) > t.room/2 {
		raw = ""
	}
	t.room -= len(raw)
	for p := h.table; len(p) > 0; {
		key := 1 + int(p[0])
		size := 0
		if len(p) > key {
			size = fieldSize(p[key:])
		}
		if size == 0 {
			t.leftOut++
			break
		}
		t.keep(p[:key], p[key:key+size])
		p = p[key+size:]
	}
	said := "the client library cannot decode the headers: " + why
	if t.cut+t.leftOut > 0 {
		said += fmt.Sprintf("; %d of them are cut and %d are left out", t.cut, t.leftOut)
	}
	if raw != "" {
		said += "; all of them are in " + header.RawHeaders
		t.add(shortString(header.RawHeaders), longString(raw))
	}
	t.add(shortString(header.Undecodable), longString(said))
	t.add(t.deliveries, t.copyID)

	size := len(h.before) + 4 + len(t.table) + len(h.after)
	out := make([]byte, 0, size)
	out = append(out, h.before...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(t.table)))
	out = append(out, t.table...)
	out = append(out, h.after...)
	binary.BigEndian.PutUint32(out[3:], uint32(size-frameExtra))
	return out
}

// compressTable returns a table in the format of header.RawHeaders.
func compressTable(table []byte) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(table) // a buffer takes everything
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// keptTable is the table that replaces the original one.
type keptTable struct {
	table        []byte
	room         int // for more
	kept         int
	cut, leftOut int

	deliveries, copyID []byte // the last header of each name, which the transport needs
}

// keep adds a header in a decodable form, as far as there is room for it.
func (t *keptTable) keep(key, field []byte) {
	name := string(key[1:])
	switch {
	case name == header.Undecodable || name == header.RawHeaders: // rewriteHeader adds these
		t.leftOut++
		return
	case name == header.Deliveries && len(field) <= 9:
		t.deliveries = slices.Concat(key, field)
		return
	case name == header.CopyID && len(field) <= 5+header.MaxCopyID:
		t.copyID = slices.Concat(key, field)
		return
	case header.IsOfTransport(name):
		return
	}
	if checkNested(field, 0) != "" {
		field = longString(string(appendRaw(nil, field, 0)))
	}
	free := t.room - len(key) - len(field)
	switch {
	case t.kept == maxKeptHeaders:
		t.leftOut++
		return
	case free >= 0:
	case field[0] == 'S' && len(field)+free > 5:
		end := len(field) + free
		for end > 5 && !utf8.RuneStart(field[end]) {
			end--
		}
		field = longString(string(field[5:end]))
		t.cut++
	default:
		t.leftOut++
		return
	}
	t.room -= len(key) + len(field)
	t.kept++
	t.add(key, field)
}

func (t *keptTable) add(key, field []byte) { t.table = append(append(t.table, key...), field...) }

func shortString(text string) []byte { return append([]byte{byte(len(text))}, text...) }

func longString(text string) []byte {
	field := binary.BigEndian.AppendUint32([]byte{'S'}, uint32(len(text)))
	return append(field, text...)
}

// appendRaw appends the text of an encoded AMQP value. It is that of header.AppendValue for
// the decoded value, except that a table's keys keep the order of the message.
func appendRaw(dst, field []byte, depth int) []byte {
	if field[0] == 'F' || field[0] == 'A' {
		if depth == maxRendered {
			return append(dst, "..."...)
		}
		p := field[5:]
		for first := true; len(p) > 0; first = false {
			key := 0
			if field[0] == 'F' {
				key = 1 + int(p[0])
			}
			size := 0
			if len(p) > key {
				size = fieldSize(p[key:])
			}
			if size == 0 {
				return append(dst, "..."...)
			}
			switch {
			case field[0] == 'F' && !first:
				dst = append(dst, ',')
			case !first:
				dst = append(dst, ';')
			}
			if key > 0 {
				dst, _ = header.AppendValue(dst, string(p[1:key]))
				dst = append(dst, '=')
			}
			dst = appendRaw(dst, p[key:key+size], depth+1)
			p = p[key+size:]
		}
		return dst
	}
	dst, _ = header.AppendValue(dst, rawValue(field))
	return dst
}

// rawValue decodes a value that is neither a table nor an array.
func rawValue(field []byte) any {
	p := field[1:]
	switch field[0] {
	case 't':
		return p[0] != 0
	case 'b':
		return int8(p[0])
	case 'B':
		return p[0]
	case 's':
		return int16(binary.BigEndian.Uint16(p))
	case 'u':
		return binary.BigEndian.Uint16(p)
	case 'I':
		return int32(binary.BigEndian.Uint32(p))
	case 'i':
		return binary.BigEndian.Uint32(p)
	case 'l':
		return int64(binary.BigEndian.Uint64(p))
	case 'f':
		return math.Float32frombits(binary.BigEndian.Uint32(p))
	case 'd':
		return math.Float64frombits(binary.BigEndian.Uint64(p))
	case 'T':
		return time.Unix(int64(binary.BigEndian.Uint64(p)), 0)
	case 'D':
		return amqp.Decimal{Scale: p[0], Value: int32(binary.BigEndian.Uint32(p[1:]))}
	case 'S':
		return string(p[4:])
	case 'x':
		return p[4:]
	default: // V
		return nil
	}
}
