package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/reprise-go/reprise/core"
)

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

var retryCases = []testCase{
	{rule: "R1", title: "every row of the table of attempts holds", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		types := map[string]core.TypeRecoverability{}
		want := map[string]int{}
		for _, row := range attemptsTable {
			body := fmt.Sprintf("%d immediate and %d delayed retries", row.immediate, row.delayed)
			immediate, delayed := t.immediate(row.immediate), t.delayed(row.delayed)
			types[body] = core.TypeRecoverability{Immediate: immediate, Delayed: delayed}
			want[body] = row.attempts
			if immediate.Off || delayed.Off { // configured so, or because retries are not possible
				want[body] = (immediate.Retries + 1) * (len(delayed.Delays) + 1)
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
		s.moved(len(want))
		s.end()
		for body, n := range want {
			t.attempted(&seen, body, n)
		}
		t.left(s.queue, "after all messages went to the error queue")
	}},
	{rule: "R2", title: "attempts are counted from 1 in every round", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(2), t.delayed(2)
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.movedOne()
		var want, got []string
		rounds, perRound := 3, 3
		if !t.canDelay() {
			rounds = 1
		}
		if t.mode == core.TransactionNone {
			perRound = 1
		}
		for round := range rounds {
			for number := range perRound {
				want = append(want, attempt{number: number + 1, delayedRetries: round}.String())
			}
		}
		for _, a := range seen.of("m1") {
			got = append(got, a.String())
		}
		if slices.Equal(got, want) || t.caps.MayDuplicate && !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) }) {
			return
		}
		t.fail(fmt.Sprintf("DeliveryCount is 1, 2, ... in the first round, and again in the round of each delayed retry, which is a new message: %q", want), "%q", got)
	}},
	{rule: "R3", title: "delayed retries end at the configured number", in: givingBack, needs: []need{delays}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(2) })
		s.handle("order", seen.fail)
		s.run()
		retried := []string{"never retried", "retried once elsewhere", "retried twice elsewhere"}
		for n, body := range retried {
			m := t.command(s.queue, "order", body)
			if n > 0 {
				m.Headers.Set(core.HeaderRetries, strconv.Itoa(n))
				m.Headers.Set(core.HeaderRetriesTimestamp, core.FormatTime(time.Now()))
			}
			t.send(transport, m)
		}
		moved := s.moved(len(retried))
		s.leftNothing("after all messages went to the error queue")
		for n, body := range retried {
			t.attempted(&seen, body, len(retried)-n)
			in := moved[body]
			if in == nil {
				continue
			}
			for _, key := range []string{core.HeaderRetries, core.HeaderRetriesTimestamp} {
				if value, ok := in.Headers.Lookup(key); ok {
					t.fail(fmt.Sprintf("a message in the error queue has no header %s, so that its life begins anew when it is sent back", key), "%q", value)
				}
			}
		}
	}},
	{rule: "R4", title: "each delayed retry waits longer", in: givingBack, needs: []need{delays}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		increase := t.withinMaxDelay(max(50*time.Millisecond, t.caps.DelayPrecision*3/2))
		if t.caps.MaxDelay > 0 { // there are two, and the second is twice as long
			increase = min(increase, t.caps.MaxDelay/2)
		}
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Delayed = core.Delayed{Retries: 2, Increase: increase}
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.movedOne()
		t.attempted(&seen, "m1", 3)
		rounds := seen.of("m1")
		for i := 1; i < 3 && len(rounds) == 3; i++ {
			waited, due := rounds[i].at.Sub(rounds[i-1].at), time.Duration(i)*increase
			latest := due + t.caps.DelayPrecision + t.suite.h.DelayTolerance
			if waited < due || waited > latest {
				t.fail(fmt.Sprintf("delayed retry %d comes %v after the failure, never earlier, and at most %v (DelayPrecision and Harness.DelayTolerance) later", i, due, latest-due), "it came after %v", waited)
			}
		}
	}},
	{rule: "R6", title: "an unrecoverable failure is attempted once", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		errInvalid := errors.New("the order is invalid")
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(3), t.delayed(2)
			c.Recoverability.Unrecoverable = []error{errInvalid}
			// A message that cannot be decoded does not reach a handler, but it does
			// reach middleware.
			c.Middleware = []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error { return seen.failWith(m, next(ctx, m)) }
			}}
		})
		failures := map[string]error{
			"listed":  errInvalid,
			"wrapped": fmt.Errorf("order 7: %w", errInvalid),
			"verdict": core.Unrecoverable(errors.New("no such customer")),
		}
		for body, err := range failures {
			s.handle(body, func(context.Context, *core.Message) error { return err })
			t.send(transport, t.command(s.queue, body, body))
		}
		const undecodable = "this is no JSON"
		core.Handle(s.Endpoint, "undecodable", func(context.Context, *core.TypedMessage[map[string]int]) error { return nil })
		t.send(transport, t.command(s.queue, "undecodable", undecodable))
		s.run()
		s.moved(len(failures) + 1)
		s.leftNothing("after all messages went to the error queue")
		for body := range failures {
			t.attempted(&seen, body, 1)
		}
		t.attempted(&seen, undecodable, 1)
	}},
}

// failedFrom checks that the headers of a message in an error queue name the queue in
// which it failed.
func (t *trial) failedFrom(in *core.Incoming, transport core.Transport, queue string) {
	address, err := transport.Address(queue)
	if err != nil {
		t.stop("Address takes a queue's name", "%v", err)
	}
	if got := in.Headers.Get(core.HeaderFailedQ); got != address {
		t.fail(fmt.Sprintf("the header %s is Address(%q), %q", core.HeaderFailedQ, queue, address), "%q", got)
	}
}
