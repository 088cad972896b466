package conformance

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

var scaleOutCases = []testCase{
	{rule: "R1", title: "three instances that take turns at one failing message attempt it no more often than they may", in: givingBack, run: func(t *trial) {
		tries := t.triesToCount()
		for try := 1; !t.scaledOut(1, true, try < tries); try++ {
			t.note("an attempt was lost at the end of a consumer, in %d of at most %d tries", try, tries)
		}
	}},
	{rule: "R1", title: "three instances attempt each of twenty failing messages no more often than they may", in: givingBack, run: func(t *trial) {
		t.scaledOut(20, false, false)
	}},
}

// scaledOut lets three instances of one endpoint fail messages until these are in the
// error queue. With turns, each instance pauses after a failure so that the next one gets
// the message: a count kept by one instance alone is then as wrong as possible. scaledOut
// returns false instead of failing if there were too few attempts and fewerAllowed is
// set.
func (t *trial) scaledOut(messages int, turns, fewerAllowed bool) (enough bool) {
	const instances, immediate = 3, 4
	retries := 0
	if t.canDelay() {
		retries = 1
	}
	seen := &attempts{}
	first := t.open()
	queue, errorQueue := t.queue(first), t.queue(first)
	var services []*service
	for i := range instances {
		s := t.serviceOn(t.open(), queue, errorQueue, func(c *core.Config) {
			c.Concurrency = 2
			c.Recoverability.Immediate = t.immediate(immediate)
			c.Recoverability.Delayed = t.delayed(retries)
		})
		s.handle("job", func(ctx context.Context, m *core.Message) error {
			if turns {
				s.Pause()
				services[(i+1)%instances].Resume()
			}
			return seen.fail(ctx, m)
		})
		if turns && i > 0 {
			s.Pause()
		}
		services = append(services, s)
	}
	for _, s := range services {
		s.run()
	}
	msgs := t.jobs(queue, messages)
	t.send(first, msgs...)
	moved := t.arrive(errorQueue, arrivesInError, messages)
	for _, s := range services {
		s.end()
	}
	exactly := (immediate + 1) * (retries + 1)
	least, most := exactly, exactly
	if !t.caps.NativeDeliveryCount {
		most = instances * exactly
	}
	highest := 0
	for _, m := range msgs {
		body := string(m.Body)
		n := len(seen.of(body))
		highest = max(highest, n)
		if n < least && fewerAllowed {
			return false
		}
		if n < least || n > most && !t.caps.MayDuplicate {
			t.fail(fmt.Sprintf("%q is attempted %d to %d times: (immediate + 1) x (delayed + 1) is %d, and instances that count for themselves alone may each make so many", body, least, most, exactly),
				"%d times: %v", n, seen.of(body))
		}
		if moved[body] == nil {
			t.fail(fmt.Sprintf("%q ends in the error queue", body), "it is not there")
		}
	}
	if messages == 1 {
		t.measure("attempts with three instances", float64(highest))
		t.note("three instances: %d attempts, between %d and %d expected", highest, least, most)
	}
	t.left(queue, "after all have failed for good")
	return true
}
