package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

var unsupportedCases = []testCase{
	{rule: "R8", title: "an immediate retry in mode None goes to the error queue", modes: inNone, run: func(t *caseT) {
		t.wantFallback(core.ImmediateRetry())
	}},
	{rule: "R8", title: "a delayed retry in mode None goes to the error queue", modes: inNone, run: func(t *caseT) {
		t.wantFallback(core.DelayedRetry(t.shortDelay()))
	}},
	{rule: "R8", title: "a delayed retry without DelayedDelivery goes to the error queue", modes: withRedelivery, needs: []need{noDelays}, run: func(t *caseT) {
		t.wantFallback(core.DelayedRetry(time.Second))
	}},
	{rule: "R8", title: "a delayed retry beyond MaxDelay goes to the error queue", modes: withRedelivery, needs: []need{delays, longestDelay}, run: func(t *caseT) {
		t.wantFallback(core.DelayedRetry(t.caps.MaxDelay + time.Second))
	}},
	{rule: "R10", title: "retries that the transport cannot make are refused or omitted", run: func(t *caseT) {
		transport := t.open()
		queue, errorQueue := t.queue(transport), t.queue(transport)
		// An endpoint may be created long after the transport started.
		t.send(transport, t.command(queue, "order", "m1"))
		var seen attempts
		var s *service
		for _, asked := range []struct {
			option, obstacle string // obstacle: the reason why the option is not possible, or ""
			config           core.Recoverability
		}{
			{"Recoverability.Immediate", t.obstacle(false, 0), core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}}},
			{"Recoverability.Delayed", t.obstacle(true, time.Second), core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}}},
			{"Recoverability.Delayed", t.obstacle(true, t.caps.MaxDelay+time.Hour), core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: t.caps.MaxDelay + time.Hour}}},
		} {
			asked.config.ErrorQueue = errorQueue
			asked.config.Policy = core.DefaultPolicy // its delays may be longer than a day
			_, err := core.New(queue, transport, core.Config{Transactions: t.mode, Recoverability: asked.config})
			switch {
			case asked.obstacle == "" && err != nil:
				t.fail(fmt.Sprintf("core.New accepts %s, which the transport can do by its Capabilities", asked.option), "%v", err)
			case asked.obstacle != "" && (err == nil || !strings.Contains(err.Error(), asked.option) || !strings.Contains(err.Error(), asked.obstacle)):
				t.fail(fmt.Sprintf("core.New refuses %s and names it and %s, because of the transport's Capabilities when the suite began", asked.option, asked.obstacle), "%v", err)
			}
		}
		s = t.serviceOn(transport, queue, errorQueue, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = core.Immediate{}, core.Delayed{} // the defaults
		})
		s.handle("order", seen.fail)
		rounds := 1
		inForce := s.RecoverabilityConfig("order")
		if t.obstacle(true, 30*time.Second) == "" {
			rounds = 4
		}
		if got := inForce.Delayed.MaxNumberOfRetries; got != rounds-1 {
			t.fail(fmt.Sprintf("of the default delayed retries, %d are in force on a transport with these Capabilities", rounds-1), "%d", got)
		}
		if rounds > 1 { // this would take a minute; it is the last row of R1's table
			return
		}
		s.run()
		s.wantOneMoved()
		t.wantAttempts(&seen, "m1", inForce.Immediate.MaxNumberOfRetries+1)
	}},
}

// obstacle returns the capability or the mode, as core.New names it, that makes retries
// impossible, or "".
func (t *caseT) obstacle(delayed bool, longest time.Duration) string {
	switch {
	case t.mode == core.TransactionNone:
		return "the transaction mode is None"
	case delayed && !t.caps.DelayedDelivery:
		return "Capabilities.DelayedDelivery"
	case delayed && t.caps.MaxDelay > 0 && longest > t.caps.MaxDelay:
		return "Capabilities.MaxDelay"
	default:
		return ""
	}
}
