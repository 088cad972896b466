package dialect

import (
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// nulHeader has the headers with a NUL, as a JSON object, which is escaped once more in the
// column. It is part of the format of rows.
const nulHeader = "Reprise.HeadersWithNUL"

// AppendHeaders appends the text of the column headers to dst. JSON can have a NUL, but
// the servers' own functions refuse it in all of the text, and so for all rows of a statement. A
// value with a NUL has U+FFFD in its place, and is also in nulHeader, unchanged; a header with
// a NUL in its name is only there. [ParseHeaders] returns the headers as they were.
func AppendHeaders(dst []byte, h core.Headers) []byte {
	if !hasNUL(h) {
		return transport.AppendHeadersJSON(dst, h)
	}
	m, unchanged := h.Map(), map[string]string{}
	for key, value := range h.All() {
		switch {
		case isHidden(key):
			unchanged[key] = value
			delete(m, key)
		case strings.Contains(value, "\x00"):
			unchanged[key], m[key] = value, Storable(value)
		}
	}
	m[nulHeader] = string(transport.AppendHeadersJSON(nil, core.HeadersFromMap(unchanged)))
	return transport.AppendHeadersJSON(dst, core.HeadersFromMap(m))
}

func hasNUL(h core.Headers) bool {
	for key, value := range h.All() {
		if isHidden(key) || strings.IndexByte(value, 0) >= 0 {
			return true
		}
	}
	return false
}

// isHidden reports whether a header is only in nulHeader: its name has a NUL, or an application
// has used the name nulHeader.
func isHidden(key string) bool { return key == nulHeader || strings.IndexByte(key, 0) >= 0 }

// ParseHeaders reads the column headers, of any sender, as [transport.ParseHeadersJSON] does. A
// value that was changed in the row, by an operator for example, stays as it is there.
func ParseHeaders(text []byte) (core.Headers, error) {
	h, malformed := transport.ParseHeadersJSON(text)
	stored, ok := h.Lookup(nulHeader)
	if !ok {
		return h, malformed
	}
	unchanged, err := transport.ParseHeadersJSON([]byte(stored))
	if err != nil { // a foreign sender's header of that name
		return h, malformed
	}
	m := h.Map()
	delete(m, nulHeader)
	for key, value := range unchanged.All() {
		shown, ok := m[key]
		if isHidden(key) || ok && shown == Storable(value) {
			m[key] = value
		}
	}
	return core.HeadersFromMap(m), malformed
}
