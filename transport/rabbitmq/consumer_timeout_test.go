package rabbitmq_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The broker closes the channel of a delivery that is unsettled for too long
// (consumer_timeout): that costs the deliveries of the channel, and the receiver continues.
func testConsumerTimeout(t *testing.T, _ *broker, s *site) {
	// New channels have it. The broker looks that often; rabbitmq.conf cannot say it.
	limit := func(timeout string) {
		t.Helper()
		if _, err := s.Eval(t.Context(), "application:set_env(rabbit, consumer_timeout, "+timeout+"), application:set_env(rabbit, channel_tick_interval, 1000)."); err != nil {
			t.Fatal(err)
		}
	}
	limit("2000")
	transport := s.provisioned(t, rabbitmq.Config{}, "billing")
	w := &watch{}
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
	limit("1800000") // for the channel that follows
	mustSend(t, transport, numbered("billing", 0, 1)...)
	held := next(t, r, 1)[0]
	redelivered := next(t, r, 1)[0] // when the broker has taken it back
	if err := held.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Complete of a delivery that the broker took back = %v, want ErrLockLost", err)
	}
	if err := redelivered.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	if string(redelivered.Incoming().Body) != "0" || !redelivered.Incoming().Redelivered {
		t.Errorf("this came instead: %+v", redelivered.Incoming())
	}
	if !w.said("PRECONDITION_FAILED", "timed out") {
		t.Errorf("the observer was not told why: %v", w.all())
	}
	awaitTrue(t, "the observer is told of the end", w.connected)
	awaitTrue(t, "nothing is left", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
}
