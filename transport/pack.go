package transport

import (
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// These are the headers in which [PackHeaders] carries values that a broker has no field
// for. They are part of the wire format.
const (
	// groupKeyHeader carries [core.Outgoing.GroupKey].
	groupKeyHeader = "Reprise.GroupKey"
	// propertiesHeader carries its Properties, as a JSON object of strings.
	propertiesHeader = "Reprise.Properties"
	// idHeader carries its ID, if the message has no header NServiceBus.MessageId.
	idHeader = "Reprise.MessageID"

	reservedPrefix = "Reprise."
	// escapePrefix is put before an application's header name that would be taken for one
	// of these.
	escapePrefix = "Reprise.Escaped."
)

// PackHeaders returns the headers to store with a message if the broker has no fields for
// GroupKey and Properties: those of the message, plus Reprise.GroupKey and
// Reprise.Properties for values that are set, and Reprise.MessageID for the ID of a message
// without the header NServiceBus.MessageId. [UnpackHeaders] removes them again. An adapter
// whose broker has a field for GroupKey or Properties clears it in a copy of the message
// first.
//
// The result is out.Headers itself for a message that needs none of them.
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
		h.Set(groupKeyHeader, out.GroupKey)
	}
	if out.ID != "" && out.Headers.Get(headers.MessageID) == "" {
		h.Set(idHeader, out.ID)
	}
	if len(out.Properties) > 0 {
		h.Set(propertiesHeader, string(AppendHeadersJSON(nil, core.HeadersFromMap(out.Properties))))
	}
	return h
}

// UnpackHeaders moves the headers that [PackHeaders] added to in.Headers into GroupKey,
// Properties and ID, and leaves the other headers as they were sent. It sets ID and IDSent
// also for a message with the header NServiceBus.MessageId; otherwise ID stays as it is. It
// allocates nothing for a message without added headers. If the Reprise.Properties of a
// foreign message cannot be read, it stays among the headers.
func UnpackHeaders(in *core.Incoming) {
	if id := in.Headers.Get(headers.MessageID); id != "" {
		in.ID, in.IDSent = id, in.Headers.Get(headers.GeneratedID) == ""
	}
	if !hasReserved(in.Headers) {
		return
	}
	if key, ok := in.Headers.Lookup(groupKeyHeader); ok {
		in.GroupKey = key
		in.Headers.Del(groupKeyHeader)
	}
	if id, ok := in.Headers.Lookup(idHeader); ok {
		if in.ID == "" {
			in.ID, in.IDSent = id, id != ""
		}
		in.Headers.Del(idHeader)
	}
	if text, ok := in.Headers.Lookup(propertiesHeader); ok {
		if properties, err := ParseHeadersJSON([]byte(text)); err == nil {
			in.Properties = properties.Map()
			in.Headers.Del(propertiesHeader)
		}
	}
	if hasReserved(in.Headers) {
		in.Headers = renamed(in.Headers, func(key string) string {
			if name := strings.TrimPrefix(key, escapePrefix); name != "" {
				return name
			}
			return key // of a foreign sender: no header is without a name
		})
	}
}

// hasReserved reports whether a header has a name that UnpackHeaders handles.
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
		(key == groupKeyHeader || key == propertiesHeader || key == idHeader || strings.HasPrefix(key, escapePrefix))
}

// renamed returns the headers with other keys.
func renamed(h core.Headers, rename func(key string) string) core.Headers {
	m := make(map[string]string, h.Len())
	for key, value := range h.All() {
		m[rename(key)] = value
	}
	return core.HeadersFromMap(m)
}
