package suite

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

var attemptCases = []testCase{
	{rule: "R1", title: "each message reaches the error queue when more fail than an instance can remember", modes: withRedelivery, needs: []need{noNativeCount}, run: func(t *caseT) {
		const attemptsOfOne = 50 // 2 are configured: there may be more, but not unlimited ones
		transport := t.open()
		var attempts atomic.Int64
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(1)
			c.Recoverability.UnacceptableMessageLimit.Count = 0
		})
		s.handle("order", func(context.Context, *core.Message) error {
			if attempts.Add(1) > manyFailures*attemptsOfOne {
				return nil // so that the case ends
			}
			return errHandler
		})
		msgs := make([]core.Outgoing, manyFailures)
		for i := range msgs {
			msgs[i] = t.command(s.queue, "order", fmt.Sprint(i))
		}
		t.send(transport, msgs...)
		s.run()
		s.wantMoved(manyFailures)
		if n := attempts.Load(); n > manyFailures*attemptsOfOne {
			t.fail(fmt.Sprintf("%d messages that always fail end in the error queue after %d attempts on average at most", manyFailures, attemptsOfOne), "after %d attempts of all of them they had not", n)
		}
		s.wantDrained("after all messages went to the error queue")
	}},
	{rule: "R1", title: "every row of the table of attempts holds", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		types := map[string]core.TypeRecoverability{}
		want := map[string]int{}
		for _, row := range attemptsTable {
			body := fmt.Sprintf("%d immediate and %d delayed retries", row.immediate, row.delayed)
			immediate, delayed := t.immediate(row.immediate), t.delayed(row.delayed)
			types[body] = core.TypeRecoverability{Immediate: immediate, Delayed: delayed}
			want[body] = row.attempts
			if immediate.NumberOfRetries == core.Off || delayed.NumberOfRetries == core.Off { // configured so, or because retries are not possible
				want[body] = (max(immediate.NumberOfRetries, 0) + 1) * (len(delayed.Delays) + 1)
			}
		}
		s := t.service(transport, func(c *core.Config) { c.Recoverability.MessageTypes = types })
		var sent []core.Outgoing
		for body := range want {
			s.handle(body, seen.fail)
			sent = append(sent, t.command(s.queue, body, body))
		}
		t.send(transport, sent...)
		s.run()
		s.wantMoved(len(want))
		s.end()
		for body, n := range want {
			t.wantAttempts(&seen, body, n)
		}
		t.wantLeft(s.queue, "after all messages went to the error queue")
	}},
	{rule: "R1", title: "three instances that take turns at one failing message attempt it no more often than configured", modes: withRedelivery, run: func(t *caseT) {
		tries := t.triesToCount()
		for try := 1; !t.scaledOut(1, true, try < tries); try++ {
			t.note("an attempt was lost at the end of a consumer, in %d of at most %d tries", try, tries)
		}
	}},
	{rule: "R1", title: "three instances attempt each of twenty failing messages no more often than configured", modes: withRedelivery, run: func(t *caseT) {
		t.scaledOut(20, false, false)
	}},
}

// attemptsTable is NServiceBus's "Total number of possible retries".
var attemptsTable = []struct{ immediate, delayed, attempts int }{
	{0, 0, 1},
	{1, 0, 2},
	{2, 0, 3},
	{3, 0, 4},
	{0, 1, 2},
	{1, 1, 4},
	{2, 1, 6},
	{3, 1, 8},
	{1, 2, 6},
	{2, 2, 9},
	{1, 3, 8},
	{5, 3, 24},
}

// scaledOut lets three instances of one endpoint fail messages until these are in the
// error queue. With turns, each instance pauses after a failure so that the next one gets
// the message: a count kept by one instance alone is then as wrong as possible. scaledOut
// returns false instead of failing if there were too few attempts and fewerAllowed is
// set.
func (t *caseT) scaledOut(messages int, turns, fewerAllowed bool) (done bool) {
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
	moved := t.wantArrivals(errorQueue, arrivesInError, messages)
	for _, s := range services {
		s.end()
	}
	exactly := (immediate + 1) * (retries + 1)
	minimum, maximum := exactly, exactly
	if !t.caps.NativeDeliveryCount {
		maximum = instances * exactly
	}
	highest := 0
	for _, m := range msgs {
		body := string(m.Body)
		n := len(seen.forBody(body))
		highest = max(highest, n)
		if n < minimum && fewerAllowed {
			return false
		}
		if n < minimum || n > maximum && !t.caps.MayDuplicate {
			t.fail(fmt.Sprintf("%q is attempted %d to %d times: (immediate + 1) x (delayed + 1) is %d, and instances without a shared count may each make that number of attempts", body, minimum, maximum, exactly),
				"%d times: %v", n, seen.forBody(body))
		}
		if moved[body] == nil {
			t.fail(fmt.Sprintf("%q ends in the error queue", body), "it is not there")
		}
	}
	if messages == 1 {
		t.measure("attempts with three instances", float64(highest))
		t.note("three instances: %d attempts, between %d and %d expected", highest, minimum, maximum)
	}
	t.wantLeft(queue, "after all have failed for good")
	return true
}
