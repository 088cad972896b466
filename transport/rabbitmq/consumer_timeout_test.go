package rabbitmq_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The broker closes the channel of a delivery that is unsettled for too long
// (consumer_timeout): that costs the deliveries of the channel, and the receiver continues.
func TestConsumerTimeout_IsAnOutage(t *testing.T) {
	t.Parallel()
	for _, release := range []testserver.Release{testserver.V3, testserver.V4} {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			own := testserver.StartFor(t, testserver.Config{Release: release, Settings: map[string]string{"consumer_timeout": "2000"}})
			s := &site{own, own.NewVHost(t)}
			// So often the broker looks; rabbitmq.conf cannot say it.
			if _, err := s.Ctl(t.Context(), "eval", "application:set_env(rabbit, channel_tick_interval, 1000)."); err != nil {
				t.Fatal(err)
			}
			transport := s.provisioned(t, rabbitmq.Config{}, "billing")
			w := &watch{}
			r := consume(t, transport, core.ReceiverConfig{Queue: "billing", Observer: w})
			mustSend(t, transport, numbered("billing", 0, 1)...)
			held := next(t, r, 1)[0]
			again := next(t, r, 1)[0] // when the broker has taken it back
			if err := held.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("Complete of what the broker took back = %v, want ErrLockLost", err)
			}
			if err := again.Complete(t.Context()); err != nil {
				t.Error(err)
			}
			if string(again.Incoming().Body) != "0" || !again.Incoming().Redelivered {
				t.Errorf("this came instead: %+v", again.Incoming())
			}
			if !w.said("PRECONDITION_FAILED", "timed out") {
				t.Errorf("the observer was not told why: %v", w.all())
			}
			until(t, "the observer is told of the end", w.connected)
			until(t, "nothing is left", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
		})
	}
}
