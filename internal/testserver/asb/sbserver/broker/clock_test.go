package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// With the clock of the machine everything happens at its time too.
func TestSystemClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		n := &namespace{b, t, nil}
		n.queue("q", properties.Queue{LockDuration: 10 * time.Second, DeadLetteringOnMessageExpiration: true})
		begin := time.Now()
		wakeUps := make(chan time.Duration, 10)
		watch := func(path string) *broker.Consumer {
			c, err := n.Consume(t.Context(), path, broker.ConsumerConfig{Ready: func() { wakeUps <- time.Since(begin) }})
			n.must(err)
			return c
		}
		c := watch("q")
		n.send("q", "locked")
		equal(t, "the first wake-up", <-wakeUps, 0)
		equal(t, "the messages", bodies(c.Next(5)), "[locked]")
		n.send("q", "scheduled", scheduledAt(begin.Add(20*time.Second)), withTTL(5*time.Second))
		equal(t, "the wake-up at the end of the lock", (<-wakeUps).Round(time.Millisecond), 10*time.Second)
		got := c.Next(5)
		equal(t, "the messages", bodies(got), "[locked]")
		n.settle("q", got[0], broker.Complete)
		watch("q/$DeadLetterQueue")
		equal(t, "the wake-up at the end of the schedule", (<-wakeUps).Round(time.Millisecond), 20*time.Second)
		equal(t, "the wake-up at the end of the time to live", (<-wakeUps).Round(time.Millisecond), 25*time.Second)
		n.must(b.Close())
	})
}
