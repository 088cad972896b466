package core

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/headerwork"
)

// Headers are the metadata of a message: UTF-8 keys and values, keys case sensitive, each
// once, in the order in which they were first set. The zero value is empty. A Headers is a
// value: a copy shares no changes, so copies may be used from several goroutines at once.
type Headers struct {
	// pairs is never overwritten once visible through any Headers. Set appends to its spare
	// capacity only after reserving the next place in tail; other copies end at their own
	// length. Without a tail, Set never appends to it.
	pairs []header
	tail  *atomic.Int64 // or nil
}

type header struct{ key, value string }

// HeadersFromMap returns headers with m's entries in the order of their keys.
func HeadersFromMap(m map[string]string) Headers {
	pairs := make([]header, 0, len(m))
	for key, value := range m {
		pairs = append(pairs, header{key, value})
	}
	slices.SortFunc(pairs, func(a, b header) int { return strings.Compare(a.key, b.key) })
	return Headers{pairs: pairs}
}

// Get returns the value of key, or "" if there is none.
func (h Headers) Get(key string) string {
	value, _ := h.Lookup(key)
	return value
}

// Lookup returns the value of key and whether it is set.
func (h Headers) Lookup(key string) (string, bool) {
	if i := h.index(key); i >= 0 {
		return h.pairs[i].value, true
	}
	return "", false
}

// Len returns the number of headers.
func (h Headers) Len() int { return len(h.pairs) }

// All iterates over keys and values.
func (h Headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range h.pairs {
			if !yield(h.pairs[i].key, h.pairs[i].value) {
				return
			}
		}
	}
}

// Bytes returns the length of all keys and values together.
func (h Headers) Bytes() int {
	headerwork.Add(len(h.pairs))
	n := 0
	for i := range h.pairs {
		n += len(h.pairs[i].key) + len(h.pairs[i].value)
	}
	return n
}

// Map returns a new map with all headers.
func (h Headers) Map() map[string]string {
	headerwork.Add(len(h.pairs))
	m := make(map[string]string, len(h.pairs))
	for i := range h.pairs {
		m[h.pairs[i].key] = h.pairs[i].value
	}
	return m
}

// Set sets key to value.
func (h *Headers) Set(key, value string) {
	if i := h.index(key); i >= 0 {
		if h.pairs[i].value == value {
			return
		}
		h.detach(len(h.pairs) + 1)
		h.pairs[i].value = value
		return
	}
	n := len(h.pairs)
	if n < cap(h.pairs) && h.tail != nil && h.tail.CompareAndSwap(int64(n), int64(n+1)) {
		h.pairs = append(h.pairs, header{key, value})
		return
	}
	h.detach(2*n + 4)
	h.tail.Store(int64(n + 1))
	h.pairs = append(h.pairs, header{key, value})
}

// Grow makes room for n more headers, so that setting them allocates nothing.
func (h *Headers) Grow(n int) {
	length, room := len(h.pairs), cap(h.pairs)-len(h.pairs)
	if n > room || n > 0 && (h.tail == nil || h.tail.Load() > int64(length)) {
		h.detach(length + n)
	}
}

// Del removes keys. Missing keys are ignored.
func (h *Headers) Del(keys ...string) {
	if len(keys) <= maxCompared {
		h.deleteFunc(func(key string) bool {
			headerwork.Add(len(keys))
			return slices.Contains(keys, key)
		})
		return
	}
	removed := make(map[string]bool, len(keys))
	for _, key := range keys {
		removed[key] = true
	}
	h.deleteFunc(func(key string) bool { return removed[key] })
}

// deleteFunc removes the keys that drop reports, in one pass. drop may be called twice for
// a key.
func (h *Headers) deleteFunc(drop func(key string) bool) {
	headerwork.Add(len(h.pairs))
	if !slices.ContainsFunc(h.pairs, func(p header) bool { return drop(p.key) }) {
		return
	}
	h.detach(len(h.pairs))
	h.pairs = slices.DeleteFunc(h.pairs, func(p header) bool { return drop(p.key) })
	h.tail.Store(int64(len(h.pairs)))
}

// maxCompared is about the number of keys up to which comparing with each is faster than a
// map. A sender can write a hundred thousand headers into a message: code that searches for
// a key for each of them compares with this many at most, so that its work is linear.
const maxCompared = 64

// fewHeaders live in one allocation with their tail. A message without an
// endpoint's standard headers seldom has more.
type fewHeaders struct {
	tail  atomic.Int64
	pairs [maxFewHeaders]header
}

const maxFewHeaders = 8

// detach moves h to storage that it shares with no other Headers, with at least the given
// capacity.
func (h *Headers) detach(capacity int) {
	n := len(h.pairs)
	headerwork.Add(n)
	var pairs []header
	if capacity = max(capacity, n); capacity <= maxFewHeaders {
		s := &fewHeaders{}
		pairs, h.tail = s.pairs[:n], &s.tail
	} else {
		pairs, h.tail = make([]header, n, capacity), new(atomic.Int64)
	}
	copy(pairs, h.pairs)
	h.pairs = pairs
	h.tail.Store(int64(n))
}

func (h Headers) index(key string) int {
	for i := range h.pairs {
		if h.pairs[i].key == key {
			headerwork.Add(i + 1)
			return i
		}
	}
	headerwork.Add(len(h.pairs))
	return -1
}

// lookups returns [Headers.Lookup] for a caller that calls it for many keys.
func (h Headers) lookups() func(key string) (string, bool) {
	if len(h.pairs) <= maxCompared {
		return h.Lookup
	}
	m := h.Map()
	return func(key string) (string, bool) {
		value, ok := m[key]
		return value, ok
	}
}

// without returns the keys of h that other does not have.
func (h Headers) without(other Headers) []string {
	var keys []string
	lookup := other.lookups()
	for key := range h.All() {
		if _, ok := lookup(key); !ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// MarshalJSON writes a JSON object, keys in order.
func (h Headers) MarshalJSON() ([]byte, error) { return json.Marshal(h.Map()) }

// UnmarshalJSON reads a JSON object of strings.
func (h *Headers) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	*h = HeadersFromMap(m)
	return nil
}

// Headers that no program but the engine needs.
const (
	// On a control message that subscribes to events or unsubscribes (NServiceBus's
	// message-driven subscriptions).
	headerSubscriptionType  = "SubscriptionMessageType"
	headerSubscriberAddress = "NServiceBus.SubscriberAddress"
	intentSubscribe         = "Subscribe"
	intentUnsubscribe       = "Unsubscribe"

	// In the first two a saga of NServiceBus names itself in a request, in the others a
	// reply names its saga.
	headerOriginatingSagaID   = "NServiceBus.OriginatingSagaId"
	headerOriginatingSagaType = "NServiceBus.OriginatingSagaType"
	headerSagaID              = "NServiceBus.SagaId"
	headerSagaType            = "NServiceBus.SagaType"

	headerExceptionPrefix        = "NServiceBus.ExceptionInfo."
	headerLegacyImmediateRetries = "NServiceBus.FLRetries"
)

// sanitizeHeaders returns h converted to valid UTF-8 and without empty keys: h itself if
// it is valid.
func sanitizeHeaders(h Headers) Headers {
	if !slices.ContainsFunc(h.pairs, func(p header) bool {
		return p.key == "" || !utf8.ValidString(p.key) || !utf8.ValidString(p.value)
	}) {
		return h
	}
	pairs, at := make([]header, 0, len(h.pairs)), make(map[string]int, len(h.pairs))
	for key, value := range h.All() {
		if key == "" {
			continue
		}
		key, value = strings.ToValidUTF8(key, "\uFFFD"), strings.ToValidUTF8(value, "\uFFFD")
		if i, repeated := at[key]; repeated {
			pairs[i].value = value
			continue
		}
		at[key] = len(pairs)
		pairs = append(pairs, header{key, value})
	}
	return Headers{pairs: pairs}
}

// parseTimeOrZero parses a time; invalid text is the zero time.
func parseTimeOrZero(text string) time.Time {
	if text == "" { // the usual case, and an error costs more than the rest of a failure's description
		return time.Time{}
	}
	t, err := headers.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// maxCount is the largest count that is read from a header, far above any real one: a sender
// can write any number, and sums of counts must not overflow.
const maxCount = 1_000_000

// intHeader parses a count; invalid text is 0.
func intHeader(h Headers, key string) int {
	text, ok := h.Lookup(key)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, maxCount)
}

// isMessageType reports whether name is a valid message type: a header lists types
// separated by ';', with a .NET assembly after ','.
func isMessageType(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsAny(name, ";,")
}
