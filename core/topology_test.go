package core

import (
	"slices"
	"testing"
	"time"
)

func TestTopology_NamesTheInputQueueAndItsExpiry(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		input  string
		queues []string
		expiry time.Duration
	}{
		"an endpoint":         {Config{}, "billing", []string{"billing", "error"}, 0},
		"with an input queue": {Config{InputQueue: "orders"}, "orders", []string{"orders", "error"}, 0},
		"with an expiry":      {Config{InputQueue: "replies-pod-0", QueueExpiry: time.Hour}, "replies-pod-0", []string{"replies-pod-0", "error"}, time.Hour},
		"off":                 {Config{QueueExpiry: Off}, "billing", []string{"billing", "error"}, 0},
		"send-only":           {Config{SendOnly: true}, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ep, err := New("billing", provisioningTransport{capableTransport()}, c.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := ep.resolved.topology(); got.InputQueue != c.input || !slices.Equal(got.Queues, c.queues) || got.QueueExpiry != c.expiry {
				t.Errorf("%+v, want the queue %q of %q with the expiry %v", got, c.input, c.queues, c.expiry)
			}
		})
	}
}
