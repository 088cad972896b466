package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// deciding makes an endpoint whose policy always returns the action.
func (t *trial) deciding(transport core.Transport, action core.Action) *service {
	return t.service(transport, func(c *core.Config) {
		c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action { return action }
	})
}

var policyCases = []testCase{
	{rule: "R7", title: "a policy retries at once", in: givingBack, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.deciding(transport, core.ImmediateRetry())
		done := make(chan struct{}, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) < 3 {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.receives(done, "a message that was abandoned twice is delivered a third time")
		s.leftNothing("after the third attempt succeeded")
		t.attempted(&seen, "m1", 3)
		t.left(s.errorQueue, "after the third attempt succeeded")
	}},
	{rule: "R7", title: "a policy retries later", in: givingBack, needs: []need{delays}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		delay := t.withinMaxDelay(max(50*time.Millisecond, t.caps.DelayPrecision*3/2))
		s := t.deciding(transport, core.DelayedRetry(delay))
		done := make(chan struct{}, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) < 2 {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.receives(done, "a delayed retry is delivered")
		s.leftNothing("after the delayed retry succeeded")
		t.attempted(&seen, "m1", 2)
		rounds := seen.of("m1")
		if waited := rounds[1].at.Sub(rounds[0].at); waited < delay && len(rounds) == 2 {
			t.fail(fmt.Sprintf("the retry comes %v after the failure, never earlier", delay), "after %v", waited)
		}
		t.left(s.errorQueue, "after the delayed retry succeeded")
	}},
	{rule: "R7", title: "a policy moves to a queue of its choice", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue := t.queue(transport)
		s := t.deciding(transport, core.MoveToError(queue))
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		for _, in := range t.arrive(queue, "a failed message arrives in the queue that the policy named", 1) {
			t.failedFrom(in, transport, s.queue)
		}
		s.leftNothing("after the message was moved")
		t.attempted(&seen, "m1", 1)
		t.left(s.errorQueue, "after the message was moved to another queue")
	}},
	{rule: "R7", title: "a policy discards", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.deciding(transport, core.DiscardMessage("nobody wants it"))
		failed := make(chan struct{}, endless+1)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			failed <- struct{}{}
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.receives(failed, "the message is delivered")
		s.leftNothing("after the message was discarded")
		t.attempted(&seen, "m1", 1)
		t.left(s.errorQueue, "after the message was discarded")
	}},
	{rule: "R7", title: "a policy asks the default one first", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		other := t.queue(transport)
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) core.Action {
				action := core.DefaultPolicy(ctx, config, failure)
				if action.Kind == core.ActionMoveToError && failure.MessageType == "exception" {
					return core.MoveToError(other)
				}
				return action
			}
		})
		s.handle("order", seen.fail)
		s.handle("exception", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"), t.command(s.queue, "exception", "m2"))
		t.arrive(other, "the message of the policy's exception arrives in its queue", 1)
		s.movedOne()
		want := 4
		switch {
		case t.mode == core.TransactionNone:
			want = 1
		case !t.canDelay():
			want = 2
		}
		t.attempted(&seen, "m1", want)
		t.attempted(&seen, "m2", want)
	}},
	{rule: "R8", title: "an immediate retry in mode None goes to the error queue", in: inNone, run: func(t *trial) {
		t.fallsBack(core.ImmediateRetry())
	}},
	{rule: "R8", title: "a delayed retry in mode None goes to the error queue", in: inNone, run: func(t *trial) {
		t.fallsBack(core.DelayedRetry(t.shortDelay()))
	}},
	{rule: "R8", title: "a delayed retry without DelayedDelivery goes to the error queue", in: givingBack, needs: []need{noDelays}, run: func(t *trial) {
		t.fallsBack(core.DelayedRetry(time.Second))
	}},
	{rule: "R8", title: "a delayed retry beyond MaxDelay goes to the error queue", in: givingBack, needs: []need{delays, longestDelay}, run: func(t *trial) {
		t.fallsBack(core.DelayedRetry(t.caps.MaxDelay + time.Second))
	}},
	{rule: "R10", title: "retries that cannot be made are refused or left out", run: func(t *trial) {
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
			{"Recoverability.Immediate", t.obstacle(false, 0), core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Off: true}}},
			{"Recoverability.Delayed", t.obstacle(true, time.Second), core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}}},
			{"Recoverability.Delayed", t.obstacle(true, t.caps.MaxDelay+time.Hour), core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1, Increase: t.caps.MaxDelay + time.Hour}}},
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
		s.movedOne()
		t.attempted(&seen, "m1", inForce.Immediate.MaxNumberOfRetries+1)
	}},
	{rule: "R11", title: "a policy sees the failure as it was", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		var mu sync.Mutex
		var failures []core.ErrorContext
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) core.Action {
				mu.Lock()
				failures = append(failures, failure)
				mu.Unlock()
				return core.DefaultPolicy(ctx, config, failure)
			}
		})
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "m1")
		sent.Headers.Set("Company.Sequence", "7; of 9")
		t.send(transport, sent)
		s.movedOne()
		address, err := transport.Address(s.queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		perRound, all := 2, 4
		switch {
		case t.mode == core.TransactionNone:
			perRound, all = 1, 1
		case !t.canDelay():
			all = 2
		}
		t.attempted(&seen, "m1", all)
		if n := len(seen.of("m1")); len(failures) != n {
			t.stop("the policy is asked once for every failure", "%d times for %d", len(failures), n)
		}
		for i, f := range failures {
			if f.MessageID != sent.ID || f.MessageType != "order" || f.ReceiveQueue != address || !errors.Is(f.Err, errHandler) {
				t.fail(fmt.Sprintf("the policy sees message %q of type order from queue %q, and the handler's error", sent.ID, address),
					"message %q of type %s from queue %q, %v", f.MessageID, f.MessageType, f.ReceiveQueue, f.Err)
			}
			if !bytes.Equal(f.Body, sent.Body) {
				t.fail(fmt.Sprintf("the policy sees the body that was sent, %q", sent.Body), "%s", excerpt(f.Body))
			}
			headers := f.Headers
			headers.Del(core.HeaderRetries, core.HeaderRetriesTimestamp, core.HeaderAttempts)
			if got, want := headers.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
				t.fail(fmt.Sprintf("the policy sees the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
			}
			if len(failures) != all { // the broker may deliver a message twice
				continue
			}
			if want := i%perRound + 1; f.ImmediateProcessingFailures != want {
				t.fail(fmt.Sprintf("of failure %d, the policy sees that it is number %d of its round", i+1, want), "%d", f.ImmediateProcessingFailures)
			}
			if want := i / perRound; f.DelayedDeliveriesPerformed != want {
				t.fail(fmt.Sprintf("of failure %d, the policy sees that %d delayed retries came before", i+1, want), "%d", f.DelayedDeliveriesPerformed)
			}
		}
	}},
	{rule: "R11", title: "what a policy does in the transaction goes with its decision", in: inAtomic, needs: []need{nativeTransactions}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		handled, decided := t.uniqueName(), t.uniqueName()
		tx := t.suite.h.NativeTx
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Policy = func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) core.Action {
				if err := tx.Write(ctx, decided); err != nil {
					t.fail("Harness.NativeTx.Write works in the context of a policy, after Reset has undone what the handler did or broke", "%v", err)
				}
				return core.MoveToError("")
			}
		})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			if err := tx.Write(ctx, handled); err != nil {
				t.fail("Harness.NativeTx.Write works in the context of a handler", "%v", err)
			}
			if tx.Break != nil {
				if err := tx.Break(ctx); err != nil {
					t.fail("Harness.NativeTx.Break breaks the transaction", "%v", err)
				}
			}
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.movedOne()
		if tx.Committed(t, handled) {
			t.fail("what a failed handler did in the transaction is undone", "it was committed")
		}
		if !tx.Committed(t, decided) {
			t.fail("what a policy did in the transaction is committed with the move that it decided", "it was not")
		}
	}},
	{rule: "R12", title: "a policy that decides nothing moves to the error queue", run: func(t *trial) {
		t.fallsBack(core.Action{})
	}},
	{rule: "R12", title: "a policy that panics moves to the error queue", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action {
				panic("the policy panics, as the case wants it")
			}
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.movedOne()
		t.attempted(&seen, "m1", 1)
	}},
}

// fallsBack checks that the engine turns a policy's action into a move to the default
// error queue.
func (t *trial) fallsBack(action core.Action) {
	transport := t.open()
	var seen attempts
	s := t.deciding(transport, action)
	s.handle("order", seen.fail)
	s.run()
	sent := t.command(s.queue, "order", "m1")
	t.send(transport, sent)
	in := s.movedOne()
	t.attempted(&seen, "m1", 1)
	t.failedFrom(in, transport, s.queue)
	if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail(fmt.Sprintf("the message in the error queue has the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
	}
}

// obstacle returns the capability or the mode, as core.New names it, that makes retries
// impossible, or "".
func (t *trial) obstacle(delayed bool, longest time.Duration) string {
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
