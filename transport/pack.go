package transport

import (
	"strings"

	"github.com/reprise-go/reprise/core"
)

// The headers in which [PackHeaders] carries what a broker has no field for. They
// are part of the wire format.
const (
	// GroupKeyHeader has core.Outgoing's GroupKey.
	GroupKeyHeader = "Reprise.GroupKey"
	// PropertiesHeader has its Properties, as a JSON object of strings.
	PropertiesHeader = "Reprise.Properties"

	reservedPrefix = "Reprise."
	// escapePrefix goes before the name of an application's header that would be
	// taken for one of these.
	escapePrefix = "Reprise.Escaped."
)

// PackHeaders returns the headers to store with a message where the broker has no
// fields for GroupKey and Properties: those of the message, and GroupKeyHeader and
// PropertiesHeader where there is something to carry. [UnpackHeaders] takes them
// out again. An adapter whose broker has a field for one of the two clears it in a
// copy of the message first.
//
// The result is out.Headers itself for a message with neither.
func PackHeaders(out *core.Outgoing) core.Headers {
	h := out.Headers
	if hasReserved(h) {
		h = renamed(h, func(key string) string {
			if isReserved(key) {
				return escapePrefix + key
			}
			return key
		})
	}
	if out.GroupKey != "" {
		h.Set(GroupKeyHeader, out.GroupKey)
	}
	if len(out.Properties) > 0 {
		h.Set(PropertiesHeader, string(AppendHeadersJSON(nil, core.HeadersFromMap(out.Properties))))
	}
	return h
}

// UnpackHeaders moves what [PackHeaders] added to in's headers into GroupKey and
// Properties, and leaves the headers as they were sent. It allocates nothing for a
// message that has none of it. A PropertiesHeader that cannot be read, of a foreign
// message, stays among the headers.
func UnpackHeaders(in *core.Incoming) {
	if !hasReserved(in.Headers) {
		return
	}
	if key, ok := in.Headers.Lookup(GroupKeyHeader); ok {
		in.GroupKey = key
		in.Headers.Del(GroupKeyHeader)
	}
	if text, ok := in.Headers.Lookup(PropertiesHeader); ok {
		if properties, err := ParseHeadersJSON([]byte(text)); err == nil {
			in.Properties = properties.Map()
			in.Headers.Del(PropertiesHeader)
		}
	}
	if hasReserved(in.Headers) {
		in.Headers = renamed(in.Headers, func(key string) string { return strings.TrimPrefix(key, escapePrefix) })
	}
}

// hasReserved reports whether a header needs the attention of this file.
func hasReserved(h core.Headers) bool {
	for key := range h.All() {
		if isReserved(key) {
			return true
		}
	}
	return false
}

func isReserved(key string) bool {
	return strings.HasPrefix(key, reservedPrefix) &&
		(key == GroupKeyHeader || key == PropertiesHeader || strings.HasPrefix(key, escapePrefix))
}

// renamed returns the headers with other keys.
func renamed(h core.Headers, rename func(key string) string) core.Headers {
	m := make(map[string]string, h.Len())
	for key, value := range h.All() {
		m[rename(key)] = value
	}
	return core.HeadersFromMap(m)
}
