//go:build darwin || linux

package asb_test

import (
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestSend_ClosesLinksThatWereNotUsedForLongest(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.open(t, asb.Config{})
	const queues, limit = 210, 200
	name := func(i int) string { return fmt.Sprintf("q%d", i) }
	for i := range queues {
		if err := s.Broker().CreateQueue(name(i), properties.Queue{}); err != nil {
			t.Fatal(err)
		}
		send(t, transport, name(i), "message")
		send(t, transport, name(0), fmt.Sprint("to the first one too ", i)) // so that it is never the oldest one
	}
	if n := s.Count(sbserver.OpAttachSender, name(0)); n != s.Count(sbserver.OpAttachSender, name(queues-1)) {
		t.Errorf("the queue that was used all the time had %d links", n)
	}
	opened := s.Count(sbserver.OpAttachSender, "")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "again", Queue: name(1)}); err != nil {
		t.Fatal(err)
	}
	if s.Count(sbserver.OpAttachSender, "") == opened {
		t.Errorf("%d queues had links at the same time, want %d at most", queues, limit)
	}
}
