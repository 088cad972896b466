package transport_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
)

func TestPrepareBrowse(t *testing.T) {
	for _, c := range []struct {
		request queues.Request
		refused string // a part of the error
		bytes   int
	}{
		{queues.Request{Limit: 1}, "", 16 << 20},
		{queues.Request{Limit: 1, MaxBytes: 7, After: "x"}, "", 7},
		{queues.Request{Limit: 2, Keys: []string{"a", "b"}}, "", 16 << 20},
		{queues.Request{}, "Limit is 0", 0},
		{queues.Request{Limit: 1, MaxBytes: -1}, "MaxBytes is -1", 0},
		{queues.Request{Limit: 1, Keys: []string{"a", "b"}}, "2 Keys, and Limit is 1", 0},
		{queues.Request{Limit: 1, Keys: []string{}, After: "x"}, "both Keys and After", 0},
	} {
		err := transport.PrepareBrowse(&c.request)
		switch {
		case c.refused == "":
			if err != nil || c.request.MaxBytes != c.bytes {
				t.Errorf("%+v: %v; MaxBytes is to be %d", c.request, err, c.bytes)
			}
		case err == nil || !strings.Contains(err.Error(), c.refused) || !transport.IsPermanent(err):
			t.Errorf("%+v: %v, want a permanent error with %q", c.request, err, c.refused)
		}
	}
}
