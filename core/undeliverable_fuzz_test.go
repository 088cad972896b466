package core

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
)

// FuzzMoveHeaders moves a message with any headers that cannot be put into its queue.
func FuzzMoveHeaders(f *testing.F) {
	f.Add("app", "value", headers.FailedQ, "payments", "no such queue", "orders")
	f.Add(headers.ExceptionType, "forged", headerExceptionPrefix+"Data", "stale", "\xff\x00", "q")
	f.Add(headers.Retries, "9223372036854775807", headers.TimeToBeReceived, "00:00:01", strings.Repeat("x", 5000), "")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue, text, queue string) {
		for _, s := range []*string{&key, &value, &otherKey, &otherValue, &queue} {
			*s = strings.ToValidUTF8(*s, "?") // as an adapter reads it
		}
		queue = strings.ReplaceAll(queue, "\x00", "") // no queue has such a name
		h := HeadersFromMap(map[string]string{"a" + key: value, "b" + otherKey: otherValue, otherKey: otherValue, key: value})
		before := h.Map()
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		moved := Undeliverable{Queue: queue, Err: errorOf(text, byte(len(text)))}.MoveHeaders(h, at)
		if moved.Get(headers.FailedQ) != queue || moved.Get(headers.TimeOfFailure) != headers.FormatTime(at) || moved.Get(headers.ExceptionType) == "forged" {
			t.Errorf("moved with %q", moved.Map())
		}
		for _, key := range append([]string{headerExceptionPrefix + "Data"}, retryHeaders...) {
			if value, has := moved.Lookup(key); has {
				t.Errorf("%s: %q is left", key, value)
			}
		}
		for key, value := range moved.All() {
			if was, has := before[key]; !utf8.ValidString(value) || strings.Contains(value, "\x00") && (!has || was != value) {
				t.Errorf("the header %q is %q", key, value)
			}
		}
		for key, value := range before {
			if !isFailureHeader(key) && moved.Get(key) != value {
				if _, isMoved := moved.Lookup(key); isMoved {
					t.Errorf("the header %q was %q and is %q", key, value, moved.Get(key))
				}
			}
		}
		if size := moved.Bytes(); size > h.Bytes()+len(queue)+3*maxErrorText+1000 {
			t.Errorf("headers of %d bytes are moved as %d", h.Bytes(), size)
		}
	})
}
