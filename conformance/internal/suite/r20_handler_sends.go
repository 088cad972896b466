package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// sendTargets has the destinations of messages that a handler sends: one queue for all,
// except for messages that it sends at once, which have another one.
type sendTargets struct {
	queue, atOnce string
	topic         string // "" if the transport cannot publish
	bodies        []string
	filled        atomic.Int64
}

func (t *caseT) sendTargets(transport core.Transport) *sendTargets {
	targets := &sendTargets{queue: t.queue(transport), atOnce: t.queue(transport), bodies: []string{"sent", "replied"}}
	if t.caps.DelayedDelivery {
		targets.bodies = append(targets.bodies, "delayed")
	}
	if t.caps.PublishSubscribe {
		targets.bodies = append(targets.bodies, "published")
		targets.topic = t.uniqueName() + ".Happened"
		t.subscribe(transport, targets.queue, targets.topic)
	}
	slices.Sort(targets.bodies)
	return targets
}

// fill sends messages in every way available to a handler.
func (targets *sendTargets) fill(ctx context.Context, t *caseT, m *core.Message) {
	errs := []error{
		m.Send(targets.queue, anyType.Of([]byte("sent"))),
		m.Reply(anyType.Of([]byte("replied"))),
		m.SendNow(ctx, targets.atOnce, anyType.Of(fmt.Appendf(nil, "at once, run %d", targets.filled.Add(1)))),
	}
	if t.caps.DelayedDelivery {
		errs = append(errs, m.Send(targets.queue, anyType.Of([]byte("delayed")).With(core.SendOptions{Delay: t.shortDelay()})))
	}
	if targets.topic != "" {
		errs = append(errs, m.Publish(core.NewEvent[[]byte](targets.topic).Of([]byte("published"))))
	}
	if err := errors.Join(errs...); err != nil {
		t.fail("a handler can send messages that the transport's Capabilities allow", "%v", err)
	}
}

// order returns a message with a reply address.
func (targets *sendTargets) order(t *caseT, transport core.Transport, s *service) core.Outgoing {
	address, err := transport.Address(targets.queue)
	if err != nil {
		t.stop("Address takes a queue's name", "%v", err)
	}
	m := t.command(s.queue, "order", "m1")
	m.Headers.Set(headers.ReplyToAddress, address)
	return m
}

// sentAtOnce checks that SendNow sent at each of n attempts, with one id.
func (targets *sendTargets) sentAtOnce(t *caseT, n int) {
	var ids []string
	for _, in := range t.wantArrivals(targets.atOnce, "messages that a handler sends with SendNow are sent at each of its attempts, also at failed ones", n) {
		ids = append(ids, in.ID)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > 1 {
		t.fail("a handler's message has the same id at every attempt", "%q", ids)
	}
}

// answeredBy is middleware that undoes the work of handlers that failed, and calls answer. If
// that returns true, the message is handled.
func answeredBy(answer func(ctx context.Context, m *core.Message, err error) bool) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			savepoint, err := m.Savepoint(ctx)
			if err != nil {
				return err
			}
			if err = next(ctx, m); err == nil || ctx.Err() != nil {
				return err
			}
			if undoErr := savepoint.Rollback(ctx); undoErr != nil {
				return errors.Join(err, undoErr)
			}
			if answer(ctx, m, err) {
				return nil
			}
			return err
		}
	}
}

// runsUntil is middleware that runs a handler again in the same attempt until it has seen
// a message at least n times.
func runsUntil(seen *attempts, n int) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			for {
				if err := next(ctx, m); err == nil || len(seen.forBody(string(m.RawBody()))) >= n {
					return err
				}
			}
		}
	}
}

var handlerSendCases = []testCase{
	{rule: "R20", title: "no message of a failed handler is sent", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		targets := t.sendTargets(transport)
		s := t.service(transport, nil)
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			targets.fill(ctx, t, m)
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, targets.order(t, transport, s))
		s.wantOneMoved()
		t.wantAttempts(&seen, "m1", 1)
		t.sleep(t.shortDelay() + t.caps.DelayPrecision) // a delayed message would arrive at about the same time
		t.wantLeft(targets.queue, "after the handler failed that sent, replied, delayed and published there")
		targets.sentAtOnce(t, 1)
	}},
	{rule: "R20", title: "the messages of a handler are sent once, when it succeeds", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		targets := t.sendTargets(transport)
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Immediate = t.immediate(1) })
		want := 2
		if t.mode == core.TransactionNone {
			want = 1
		}
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			targets.fill(ctx, t, m)
			if seen.add(m) < want {
				return errHandler
			}
			return nil
		})
		s.run()
		t.send(transport, targets.order(t, transport, s))
		t.wantArrivals(targets.queue, "the messages that a handler sent, replied, delayed and published arrive", len(targets.bodies))
		s.wantDrained("after the handler succeeded")
		t.wantAttempts(&seen, "m1", want)
		targets.sentAtOnce(t, want)
		t.wantLeft(s.errorQueue, "after the handler succeeded")
	}},
	{rule: "R20", title: "of the runs of a handler in one attempt, only the one that succeeded sends", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		targets := t.sendTargets(transport)
		s := t.service(transport, func(c *core.Config) { c.Middleware = []core.Middleware{runsUntil(&seen, 3)} })
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			targets.fill(ctx, t, m)
			if seen.add(m) < 3 {
				return errHandler
			}
			return nil
		})
		s.run()
		t.send(transport, targets.order(t, transport, s))
		t.wantArrivals(targets.queue, "the messages that the successful run sent, replied, delayed and published arrive", len(targets.bodies))
		s.wantDrained("after the handler succeeded")
		t.wantAttempts(&seen, "m1", 3)
		targets.sentAtOnce(t, 3)
		t.sleep(t.shortDelay() + t.caps.DelayPrecision) // delayed messages of the other runs would arrive at about the same time
		t.wantLeft(targets.queue, "after the messages of the run that succeeded arrived")
		t.wantLeft(s.errorQueue, "after the handler succeeded")
	}},
	{rule: "R20", title: "the work of all runs of a handler in one attempt is committed with the transaction", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		keys, done := []string{t.uniqueName(), t.uniqueName()}, make(chan struct{}, endless)
		s := t.service(transport, func(c *core.Config) { c.Middleware = []core.Middleware{runsUntil(&seen, len(keys))} })
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			n := seen.add(m)
			if err := t.suite.h.NativeTx.Write(ctx, keys[min(n, len(keys))-1]); err != nil {
				t.fail("Harness.NativeTx.Write works in the context of a handler that middleware runs again", "%v", err)
			}
			if n < len(keys) {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(done, "middleware runs the handler again")
		s.wantDrained("after the handler succeeded")
		for _, key := range keys {
			t.wantCommitted(key, "after middleware ran the handler again, and it succeeded")
		}
	}},
	{rule: "R20", title: "the work and the messages of a fallback replace those of the failed handler", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		first, failed, answer := t.uniqueName(), t.uniqueName(), t.uniqueName()
		done := make(chan struct{}, endless)
		do := func(ctx context.Context, m *core.Message, key string) {
			if err := t.suite.h.NativeTx.Write(ctx, key); err != nil {
				t.fail("Harness.NativeTx.Write works in the context of several handlers and a fallback", "%v", err)
			}
			if err := m.Send(out, core.NewMessageType[[]byte](key).Of(nil)); err != nil {
				t.fail("a handler and a fallback can send", "%v", err)
			}
		}
		fallback := answeredBy(func(ctx context.Context, m *core.Message, _ error) bool {
			do(ctx, m, answer)
			return true
		})
		s := t.service(transport, func(*core.Config) {})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			do(ctx, m, first)
			return nil
		}, core.HandleOptions{Independent: true})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			do(ctx, m, failed)
			return errHandler
		}, core.HandleOptions{Independent: true, Middleware: []core.Middleware{fallback}})
		s.handle("order", func(context.Context, *core.Message) error {
			done <- struct{}{}
			return nil
		}, core.HandleOptions{Independent: true})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(done, "the handler after the one with the fallback runs")
		s.wantDrained("after the fallback answered")
		t.wantCommitted(first, "of a handler beside the one that failed")
		t.wantCommitted(answer, "of a fallback that answered")
		t.wantNotCommitted(failed, "of a handler whose fallback answered")
		r := t.receiver(transport, out, 3)
		var sent []string
		for _, d := range r.take(2) {
			sent = append(sent, d.Incoming().Headers.Get(headers.MessageTypes))
			t.complete(d)
		}
		if slices.Contains(sent, failed) {
			t.fail("the messages of a fallback are sent instead of the failed handler's", "the failed handler's message arrived")
		}
		r.wantSilence("the messages of a failed handler are not sent beside those of its fallback")
	}},
	{rule: "R20", title: "a fallback runs in the last attempt, and its messages are sent instead of the handler's", run: func(t *caseT) {
		if t.mode == core.TransactionSendsAtomicWithReceive && !t.caps.Savepoints {
			t.notRun("Savepoints is not claimed")
		}
		transport := t.open()
		out := t.queue(transport)
		send := func(m *core.Message, body string) {
			if err := m.Send(out, sentType.Of([]byte(body))); err != nil {
				t.fail("a handler and a fallback can send", "%v", err)
			}
		}
		var seen attempts
		answered := make(chan struct{}, endless)
		fallback := answeredBy(func(_ context.Context, m *core.Message, err error) bool {
			if !m.IsLastAttempt(err) {
				return false
			}
			send(m, "of the fallback")
			answered <- struct{}{}
			return true
		})
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(2)
			c.Middleware = []core.Middleware{fallback}
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			send(m, "of the handler")
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(answered, "the fallback answers")
		t.wantLeft(out, "the messages of the fallback, and none of the handler", "of the fallback")
		s.wantDrained("after the fallback answered")
		t.wantLeft(s.errorQueue, "after the fallback answered")
		attempts := 3
		if t.mode == core.TransactionNone {
			attempts = 1
		}
		t.wantAttempts(&seen, "m1", attempts)
	}},
	{rule: "R20", title: "a send to a queue that does not exist fails the attempt", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		out, missing := t.queue(transport), t.uniqueName()
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(2)
			// Such a failure is unrecoverable; a policy may still retry it.
			c.Recoverability.Policy = func(_ context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				if f.ImmediateProcessingFailures <= c.Immediate.MaxNumberOfRetries {
					return core.ImmediateRetry(), nil
				}
				return core.MoveToError(""), nil
			}
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) > endless {
				return nil
			}
			return errors.Join(m.Send(out, anyType.Of([]byte("sent"))), m.Send(missing, anyType.Of([]byte("lost"))))
		})
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
		want := 3
		if t.mode == core.TransactionNone {
			want = 1
		}
		t.wantAttempts(&seen, "m1", want)
		var ids []string
		for _, in := range t.contents(out, 0) {
			ids = append(ids, in.ID)
		}
		if t.mode == core.TransactionSendsAtomicWithReceive && len(ids) > 0 {
			t.fail("in SendsAtomicWithReceive nothing leaves when one message cannot be sent", "%d messages left", len(ids))
		}
		if ids = slices.Compact(slices.Sorted(slices.Values(ids))); len(ids) > 1 {
			t.fail("where a message left before the attempt failed, that of the retry has the same id", "%q", ids)
		}
	}},
	{rule: "R20", title: "the work of a failed handler in the transaction is undone", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		var mu sync.Mutex
		var keys []string // keys of the work of each attempt
		done := make(chan struct{}, endless)
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		want := 3
		if !t.canDelay() {
			want = 2
		}
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			key := t.uniqueName()
			mu.Lock()
			keys = append(keys, key)
			mu.Unlock()
			if err := t.suite.h.NativeTx.Write(ctx, key); err != nil {
				t.fail("Harness.NativeTx.Write works in the context of a handler", "%v", err)
			}
			if seen.add(m) < want {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(done, "the message is retried until it is handled")
		s.wantDrained("after the handler succeeded")
		for i, key := range keys {
			if got := t.suite.h.NativeTx.Committed(t, key); got != (i == len(keys)-1) {
				t.fail("the work of the successful attempt is committed, and no other", "of %d attempts, the work of attempt %d: committed %t", len(keys), i+1, got)
			}
		}
	}},
	{rule: "R20", title: "a failed commit is a failed attempt", modes: inAtomic, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		targets := t.sendTargets(transport)
		queue, errorQueue := t.queue(transport), t.queue(transport)
		// The settlements of the first two attempts fail to send the handler's messages.
		// The move or the retry of a failed message is sent.
		lossy := refusingTransport(transport, 2, func(out core.Outgoing) bool { return out.Queue == targets.queue })
		s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Recoverability.Immediate = t.immediate(2) })
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) > endless {
				return core.Discard(errors.New("attempted too often"))
			}
			return m.Send(targets.queue, anyType.Of([]byte("sent")))
		})
		s.run()
		t.send(transport, targets.order(t, transport, s))
		t.wantArrivals(targets.queue, "the messages of the committed attempt arrive", 1)
		s.wantDrained("after the third attempt was committed")
		t.wantAttemptNumbers(&seen, "m1", 1, 2, 3)
		t.wantLeft(s.errorQueue, "after the third attempt was committed")
	}},
	{rule: "R20", title: "a message that can never be committed is attempted as often as configured, and only moved to the error queue", modes: inAtomic, needs: []need{breakableTx}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		var mu sync.Mutex
		var keys []string
		targets := t.sendTargets(transport)
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			if seen.add(m) > endless {
				return core.Discard(errors.New("attempted too often"))
			}
			key := t.uniqueName()
			mu.Lock()
			keys = append(keys, key)
			mu.Unlock()
			err := m.Send(targets.queue, anyType.Of([]byte("sent")))
			return errors.Join(err, t.suite.h.NativeTx.Write(ctx, key), t.suite.h.NativeTx.Break(ctx))
		})
		s.run()
		sent := targets.order(t, transport, s)
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
		if t.canDelay() {
			t.wantAttemptNumbers(&seen, "m1", 1, 2, 1, 2)
		} else {
			t.wantAttemptNumbers(&seen, "m1", 1, 2)
		}
		t.wantLeft(targets.queue, "after no attempt could be committed")
		mu.Lock()
		defer mu.Unlock()
		for i, key := range keys {
			t.wantNotCommitted(key, fmt.Sprintf("by attempt %d of %d, none of which could be committed", i+1, len(keys)))
		}
	}},
}

// wantAttemptNumbers checks the number of attempts of a message, and the number of each
// attempt in its round.
func (t *caseT) wantAttemptNumbers(a *attempts, body string, want ...int) {
	t.wantAttempts(a, body, len(want))
	var got []int
	for _, attempt := range a.forBody(body) {
		got = append(got, attempt.number)
	}
	if !slices.Equal(got, want) && !t.caps.MayDuplicate {
		t.fail(fmt.Sprintf("each attempt whose commit failed counts: the numbers of %q's are %v", body, want), "%v", got)
	}
}
