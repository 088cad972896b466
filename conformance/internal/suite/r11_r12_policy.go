package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var policyCases = []testCase{
	{rule: "R11", title: "a policy gets the failure unchanged", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		var mu sync.Mutex
		var failures []core.ErrorContext
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
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
		s.wantOneMoved()
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
		t.wantAttempts(&seen, "m1", all)
		if n := len(seen.forBody("m1")); len(failures) != n {
			t.stop("the policy is asked once for every failure", "%d times for %d", len(failures), n)
		}
		for i, f := range failures {
			if f.Message.ID != sent.ID || f.Message.Type != "order" || f.ReceiveQueue != address || !errors.Is(f.Err, errHandler) {
				t.fail(fmt.Sprintf("the policy sees message %q of type order from queue %q, and the handler's error", sent.ID, address),
					"message %q of type %s from queue %q, %v", f.Message.ID, f.Message.Type, f.ReceiveQueue, f.Err)
			}
			if body := f.Message.RawBody(); !bytes.Equal(body, sent.Body) {
				t.fail(fmt.Sprintf("the policy sees the body that was sent, %q", sent.Body), "%s", excerpt(body))
			}
			h := f.Message.Headers
			h.Del(headers.Retries, headers.RetriesTimestamp, headers.Attempts)
			if got, want := h.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
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
	{rule: "R11", title: "a policy's work in the transaction is committed with its decision", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		handled, decided := t.uniqueName(), t.uniqueName()
		tx := t.suite.h.NativeTx
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Policy = func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) (core.Action, error) {
				if err := tx.Write(ctx, decided); err != nil {
					t.fail("Harness.NativeTx.Write works in the context of a policy, after Reset has undone the work of the handler, or repaired the transaction", "%v", err)
				}
				return core.MoveToError(""), nil
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
		s.wantOneMoved()
		if tx.Committed(t, handled) {
			t.fail("the work of a failed handler in the transaction is undone", "it was committed")
		}
		if !tx.Committed(t, decided) {
			t.fail("the work of a policy in the transaction is committed with the move that it decided", "it was not")
		}
	}},
	{rule: "R12", title: "a message whose policy decides nothing goes to the error queue", run: func(t *caseT) {
		t.wantFallback(core.Action{})
	}},
	{rule: "R12", title: "a message whose policy panics goes to the error queue", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
				panic("the policy panics, as the case wants it")
			}
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		s.wantOneMoved()
		t.wantAttempts(&seen, "m1", 1)
	}},
}
