package suite

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var retryCases = []testCase{
	{rule: "R2", title: "attempts are counted from 1 in every round", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(2), t.delayed(2)
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.wantOneMoved()
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
		for _, a := range seen.forBody("m1") {
			got = append(got, a.String())
		}
		if slices.Equal(got, want) || t.caps.MayDuplicate && !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) }) {
			return
		}
		t.fail(fmt.Sprintf("DeliveryCount is 1, 2, ... in the first round, and again in the round of each delayed retry, which is a new message: %q", want), "%q", got)
	}},
	{rule: "R3", title: "delayed retries end at the configured number", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(2) })
		s.handle("order", seen.fail)
		s.run()
		retried := []string{"never retried", "retried once elsewhere", "retried twice elsewhere"}
		for n, body := range retried {
			m := t.command(s.queue, "order", body)
			if n > 0 {
				m.Headers.Set(headers.Retries, strconv.Itoa(n))
				m.Headers.Set(headers.RetriesTimestamp, headers.FormatTime(time.Now()))
			}
			t.send(transport, m)
		}
		moved := s.wantMoved(len(retried))
		s.wantDrained("after all messages went to the error queue")
		for n, body := range retried {
			t.wantAttempts(&seen, body, len(retried)-n)
			in := moved[body]
			if in == nil {
				continue
			}
			for _, key := range []string{headers.Retries, headers.RetriesTimestamp} {
				if value, ok := in.Headers.Lookup(key); ok {
					t.fail(fmt.Sprintf("a message in the error queue has no header %s, so that its life begins anew when it is sent back", key), "%q", value)
				}
			}
		}
	}},
	{rule: "R4", title: "each delayed retry waits longer", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		increase := t.withinMaxDelay(max(50*time.Millisecond, t.caps.DelayPrecision*3/2))
		if t.caps.MaxDelay > 0 { // there are two, and the second is twice as long
			increase = min(increase, t.caps.MaxDelay/2)
		}
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 2, TimeIncrease: increase}
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.wantOneMoved()
		t.wantAttempts(&seen, "m1", 3)
		rounds := seen.forBody("m1")
		for i := 1; i < 3 && len(rounds) == 3; i++ {
			waited, due := rounds[i].at.Sub(rounds[i-1].at), time.Duration(i)*increase
			latest := due + t.caps.DelayPrecision + t.suite.h.DelayTolerance
			if waited < due || waited > latest {
				t.fail(fmt.Sprintf("delayed retry %d comes %v after the failure, never earlier, and at most %v (DelayPrecision and Harness.DelayTolerance) later", i, due, latest-due), "it came after %v", waited)
			}
		}
	}},
}
