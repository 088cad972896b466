package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// altersKeys is one that changes keys: to "" to leave the header out.
func altersKeys(change func(key string) string) func() changes {
	return altersHeaders(func(h map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(h)) {
			value := h[key]
			if changed := change(key); changed != key {
				delete(h, key)
				if changed != "" {
					h[changed] = value
				}
			}
		}
	})
}

// altersValues is one that changes values.
func altersValues(change func(value string) string) func() changes {
	return altersHeaders(func(h map[string]string) {
		for key, value := range h {
			h[key] = change(value)
		}
	})
}

func altersProperties(change func(properties map[string]string)) func() changes {
	return alters(func(in *core.Incoming) {
		if in.Properties = maps.Clone(in.Properties); in.Properties != nil {
			change(in.Properties)
		}
	})
}

func altersBody(change func(body []byte) []byte) func() changes {
	return alters(func(in *core.Incoming) { in.Body = change(in.Body) })
}

var contentMutants = []mutant{
	{rule: "C10", name: "forgets the native properties of copies", breaks: forgetsNative},
	{rule: "C10", name: "refuses the native message of another adapter", breaks: refusesForeignNative},
	{rule: "C10", name: "sends an id as a header alone", breaks: alters(func(in *core.Incoming) {
		if in.Headers.Get(headers.MessageID) == "" {
			in.ID, in.IDSent = in.NativeID, false
		}
	})},
	{rule: "C10", name: "does not say that the sender gave the message its id", breaks: alters(func(in *core.Incoming) { in.IDSent = false })},
	{rule: "C10", name: "cuts long ids", breaks: alters(func(in *core.Incoming) { in.ID = in.ID[:min(len(in.ID), 128)] })},
	{rule: "C10", name: "gives a message an id that has none", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].ID = cmp.Or(out[i].ID, "generated")
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C10", name: "does not carry the group key", breaks: alters(func(in *core.Incoming) { in.GroupKey = "" })},
	{rule: "C10", name: "hands back the group key of another message", breaks: func() changes {
		var mu sync.Mutex
		var last string
		return alters(func(in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			if in.GroupKey != "" {
				in.GroupKey, last = cmp.Or(last, in.GroupKey), in.GroupKey
			}
		})()
	}},
	{rule: "C10", name: "makes up a group key", breaks: alters(func(in *core.Incoming) { in.GroupKey = cmp.Or(in.GroupKey, in.ID) })},
	{rule: "C10", name: "does not carry properties that it does not know", breaks: alters(func(in *core.Incoming) { in.Properties = nil })},
	{rule: "C10", name: "loses a property without a value", breaks: altersProperties(func(properties map[string]string) {
		maps.DeleteFunc(properties, func(_, value string) bool { return value == "" })
	})},
	{rule: "C10", name: "writes properties' names in lower case", breaks: altersProperties(func(properties map[string]string) {
		for name, value := range maps.Clone(properties) {
			delete(properties, name)
			properties[strings.ToLower(name)] = value
		}
	})},
	{rule: "C10", name: "forgets the group key of a message that is given back", breaks: alters(func(in *core.Incoming) {
		if in.Redelivered {
			in.GroupKey = ""
		}
	})},
	{rule: "C10", name: "leaves the group key among the headers", breaks: alters(func(in *core.Incoming) {
		if in.GroupKey != "" {
			in.Headers.Set("Mutant.GroupKey", in.GroupKey)
		}
	})},
	{rule: "C10", name: "allows names of attributes alone as keys", breaks: altersKeys(func(key string) string {
		return strings.Map(func(c rune) rune {
			if c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("-_.", c)) {
				return c
			}
			return '_'
		}, key)
	})},
	{rule: "C10", name: "writes keys in lower case", breaks: altersKeys(func(key string) string {
		if strings.HasPrefix(key, "NServiceBus.") {
			return key
		}
		return strings.ToLower(key)
	})},
	{rule: "C10", name: "compares keys as a database's collation does", breaks: altersHeaders(func(h map[string]string) {
		seen := map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(h)) {
			folded := strings.ToLower(strings.TrimRight(key, " "))
			if seen[folded] {
				delete(h, key)
			}
			seen[folded] = true
		}
	})},
	{rule: "C10", name: "joins headers whose keys have one normal form", breaks: altersKeys(func(key string) string {
		return strings.ReplaceAll(key, "e\u0301", "é")
	})},
	{rule: "C10", name: "takes content-type for its own", breaks: altersKeys(func(key string) string {
		if strings.EqualFold(key, "content-type") {
			return ""
		}
		return key
	})},
	{rule: "C10", name: "hides headers that begin with x-", breaks: altersKeys(func(key string) string {
		if strings.HasPrefix(key, "x-") {
			return ""
		}
		return key
	})},
	{rule: "C10", name: "adds a header to messages", breaks: alters(func(in *core.Incoming) { in.Headers.Set("Content-Length", strconv.Itoa(len(in.Body))) })},
	{rule: "C10", name: "leaves out headers without a value", breaks: altersHeaders(func(h map[string]string) {
		maps.DeleteFunc(h, func(_, value string) bool { return value == "" })
	})},
	{rule: "C10", name: "trims values", breaks: altersValues(strings.TrimSpace)},
	{rule: "C10", name: "makes numbers of values that look like them", breaks: altersValues(func(value string) string {
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			return strconv.FormatFloat(n, 'g', -1, 64)
		}
		return value
	})},
	{rule: "C10", name: "escapes text that is not ASCII", breaks: altersValues(func(value string) string {
		quoted := strconv.QuoteToASCII(value)
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	})},
	{rule: "C10", name: "folds lines", breaks: altersValues(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace)},
	{rule: "C10", name: "cuts values at a NUL", breaks: altersValues(func(value string) string {
		value, _, _ = strings.Cut(value, "\x00")
		return value
	})},
	{rule: "C10", name: "cuts keys at a NUL", breaks: altersKeys(func(key string) string {
		key, _, _ = strings.Cut(key, "\x00")
		return key
	})},
	{rule: "C10", name: "has room for ten headers", breaks: altersHeaders(func(h map[string]string) {
		for i, key := range slices.Sorted(maps.Keys(h)) {
			if i >= 12 { // the first two are the suite's
				delete(h, key)
			}
		}
	})},
	{rule: "C10", name: "has values in a column of 1,000 bytes", breaks: altersValues(func(value string) string { return value[:min(len(value), 1000)] })},
	{rule: "C10", name: "has keys of 255 bytes at most, and does not say so", breaks: altersKeys(func(key string) string { return key[:min(len(key), 255)] })},
	{rule: "C10", name: "writes the header for an id that was not sent", breaks: alters(func(in *core.Incoming) { in.Headers.Set(headers.MessageID, in.ID) })},
	{rule: "C10", name: "gives a message without an id none", breaks: alters(func(in *core.Incoming) { in.ID = in.Headers.Get(headers.MessageID) })},
	{rule: "C10", name: "has bodies of text", breaks: altersBody(func(body []byte) []byte { return bytes.ToValidUTF8(body, []byte("\ufffd")) })},
	{rule: "C10", name: "ends a body at a zero byte", breaks: altersBody(func(body []byte) []byte {
		body, _, _ = bytes.Cut(body, []byte{0})
		return body
	})},
	{rule: "C10", name: "trims bodies", breaks: altersBody(bytes.TrimSpace)},
	{rule: "C10", name: "decodes bodies that look like base64", breaks: altersBody(func(body []byte) []byte {
		if decoded, err := base64.StdEncoding.DecodeString(string(body)); err == nil {
			return decoded
		}
		return body
	})},
	{rule: "C10", name: "sends a space for an empty body", breaks: altersBody(func(body []byte) []byte {
		if len(body) == 0 {
			return []byte(" ")
		}
		return body
	})},
	{rule: "C10", name: "cuts bodies at 64 KiB", breaks: altersBody(func(body []byte) []byte { return body[:min(len(body), 64<<10)] })},
	{rule: "C10", name: "shows the way of a delayed message in its headers", breaks: marks(func(m core.Outgoing) bool { return m.Delay > 0 }, "x-death")},
	{rule: "C10", name: "shows the time to be received in a header", breaks: marks(func(m core.Outgoing) bool { return m.TimeToBeReceived > 0 }, "expiration")},
	{rule: "C10", name: "wraps published events", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if out[i].Topic != "" {
					out[i].Body = []byte(`{"Type": "Notification", "Message": ` + strconv.Quote(string(out[i].Body)) + `}`)
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C10", name: "drops the headers of messages that are sent with a settlement", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			for i := range d.out {
				var h core.Headers
				h.Set(headers.MessageID, d.out[i].ID)
				d.out[i].Headers = h
			}
			return next()
		}}
	}},
	{rule: "C10", name: "carries ten headers at most", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				n := 0
				for key := range out[i].Headers.All() {
					if n++; n > 10 {
						out[i].Headers.Del(key)
					}
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C10", name: "has a column of 65,535 bytes for bodies", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Body = out[i].Body[:min(len(out[i].Body), 65535)]
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C10", name: "takes a message without a body for one that cannot be parsed", breaks: arriving(func(in *core.Incoming) {
		if len(in.Body) == 0 {
			in.Malformed = errors.New("unexpected end of input")
		}
	})},
	{rule: "C10", name: "keeps control messages to itself", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			var kept []core.Outgoing
			for _, o := range out {
				if o.Headers.Get(headers.ControlMessage) == "" {
					kept = append(kept, o)
				}
			}
			if len(kept) == 0 {
				return nil
			}
			return next(ctx, kept...)
		}}
	}},
}

// marks is a transport that adds a header to some messages when it sends them.
func marks(which func(m core.Outgoing) bool, key string) func() changes {
	return func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if which(out[i]) {
					out[i].Headers.Set(key, "the broker's")
				}
			}
			return next(ctx, out...)
		}}
	}
}

// refusesForeignNative refuses a copy whose native message is not that of its client library.
func refusesForeignNative() changes {
	return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
		for i := range out {
			if _, ours := out[i].Native.(*nativeMessage); out[i].Native != nil && !ours {
				return errRefused
			}
		}
		return next(ctx, out...)
	}}
}
