package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// outageCases are about a transport during an outage of the broker, and after it.
var outageCases = []testCase{
	{rule: "C15", title: "OpenReceiver of a queue that does not exist fails at once", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		ctx, cancel := t.withTimeout()
		defer cancel()
		r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		switch {
		case err == nil:
			_ = r.Close(t.ctx)
			t.fail("OpenReceiver of a queue that does not exist is an error", "nil")
		case ctx.Err() != nil:
			t.fail("OpenReceiver of a queue that does not exist returns at once, because waiting cannot fix it", "after %v: %v", t.timeout(), err)
		case !errors.Is(err, core.ErrQueueNotFound):
			t.fail("OpenReceiver of a queue that does not exist returns core.ErrQueueNotFound", "%v", err)
		}
		t.wantNoOutage("OpenReceiver of a queue that does not exist", err)
	}},
	{rule: "C15", title: "Receive continues after an outage", exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		received := t.receiver(transport, queue, 4).receiveInBackground()
		broker.kill()
		t.sleep(t.quietPeriod())
		select {
		case got := <-received:
			t.stop("Receive waits while the broker is away", "it returned %d deliveries and the error %v", len(got.deliveries), got.err)
		default:
		}
		broker.start()
		t.sendEventually(t.open(), t.message(queue, "after"))
		select {
		case got := <-received:
			if got.err != nil || len(got.deliveries) == 0 {
				t.stop("Receive goes on when the broker is back", "it returned %d deliveries and the error %v", len(got.deliveries), got.err)
			}
			t.complete(got.deliveries...)
		case <-time.After(t.timeout()):
			t.stop("Receive continues when the broker is back, and returns the messages that are sent", "it has not returned after %v", t.timeout())
		}
	}},
	{rule: "C15", title: "the observer learns of an outage and of its end", modes: inHighest, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		r, told := t.openObserved(transport, queue)
		received := r.receiveInBackground()
		before := time.Now()
		known := len(told.all())
		broker.kill()
		t.await("the observer is told of an outage (Connected false), and when the next attempt to connect begins (RetryIn above 0)", func() bool {
			return slices.ContainsFunc(told.outages(known), func(c core.ConnectionChange) bool { return c.RetryIn > 0 })
		})
		for _, c := range told.outages(known) {
			if c.Err == nil {
				t.fail("a ConnectionChange with Connected false has an Err, which says why there is no connection", "nil in %+v", c)
			}
			if c.RetryIn < 0 {
				t.fail("RetryIn is how long it is until the next attempt to connect", "%v", c.RetryIn)
			}
			// The clock of the broker's machine would be wrong here, too.
			if c.Since.Before(before.Add(-time.Second)) || c.Since.After(time.Now()) {
				t.fail(fmt.Sprintf("Since is when the outage began, here after %v", before), "%v", c.Since)
			}
		}
		broker.start()
		t.await("the observer is told of the end of the outage (Connected true)", func() bool {
			all := told.all()
			return all[len(all)-1].Connected
		})
		t.sendEventually(t.open(), t.message(queue, "after"), t.message(queue, "after that"))
		t.complete(t.awaitResult(received, "Receive goes on when the outage has ended").deliveries...)
		r.takeFor(t.quietPeriod())
		all := told.all()
		for i := 1; i < len(all); i++ {
			if all[i].Connected && all[i-1].Connected {
				t.stop("the observer is told once that an outage has ended, and not again at each success after it", "of %d changes, number %d and number %d have Connected", len(all), i, i+1)
			}
		}
	}},
	{rule: "C15", title: "transports reconnect with back-off and jitter", modes: inHighest, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		const instances = 6
		broker := t.brokerController()
		queue := t.queue(t.open())
		var observers []*connectionLog
		for range instances {
			r, told := t.openObserved(t.open(), queue)
			r.receiveInBackground()
			observers = append(observers, told)
		}
		start := time.Now()
		broker.kill()
		t.await(fmt.Sprintf("the observers of %d instances are told when they try to connect again (RetryIn)", instances), func() bool {
			return !slices.ContainsFunc(observers, func(told *connectionLog) bool { return len(pauses(told)) == 0 })
		})
		const maxPause = 5 * time.Second // no case needs a longer pause
		t.await(fmt.Sprintf("the observers of %d instances are told of one attempt to connect after the other", instances), func() bool {
			return !slices.ContainsFunc(observers, func(told *connectionLog) bool {
				list := pauses(told)
				return len(list) < 5 && list[len(list)-1] < maxPause
			})
		})
		first := map[time.Duration]bool{}
		var firstPause, lastPause time.Duration
		for _, told := range observers {
			list := pauses(told)
			first[list[0]] = true
			firstPause, lastPause = firstPause+list[0]/instances, lastPause+list[min(len(list), 5)-1]/instances
			limit := 20 + int(20*time.Since(start).Seconds())
			if n := len(told.outages(0)); n > limit {
				t.stop(fmt.Sprintf("attempts to connect are further and further apart: at most %d in %v", limit, time.Since(start)), "%d", n)
			}
		}
		if lastPause < 2*firstPause && lastPause < maxPause {
			t.fail("the pauses between attempts to connect become longer, so that a broker that starts is not overrun: the fifth is twice as long as the first at least, on the average of the instances", "the first is %v, the fifth %v", firstPause, lastPause)
		}
		if len(first) == 1 {
			t.fail("the pauses between attempts to connect have jitter, so that many instances do not all come at once", "the first pause of %d instances is %v for each", instances, pauses(observers[0])[0])
		}
	}},
	{rule: "C15", title: "a receiver continues after a network partition", modes: withRedelivery, exclusive: true, needs: []need{outages}, run: func(t *caseT) {
		const total = 30
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		msgs := t.messages(queue, total)
		t.send(transport, msgs...)
		r := t.receiver(transport, queue, 16)
		seen := newOutageLog()
		for _, d := range r.take(10) {
			seen.record(d)
			switch err := seen.complete(t, d); {
			case errors.Is(err, core.ErrLockLost): // the machine is busy, and the message is redelivered
				delete(seen.done, string(d.Incoming().Body))
			case err != nil:
				t.stop("Complete returns nil before the network is cut", "%v", err)
			}
		}
		held := r.take(4)
		heal := broker.partition()
		received := r.receiveInBackground()
		ctx, cancel := t.withQuietPeriod()
		for _, d := range held[:2] {
			_ = d.Complete(ctx)
			seen.record(d)
			seen.done[string(d.Incoming().Body)] = true
		}
		cancel()
		t.sleep(t.quietPeriod())
		heal()
		for _, d := range held[2:] {
			seen.record(d)
			if errors.Is(seen.complete(t, d), core.ErrLockLost) { // the message is redelivered
				delete(seen.done, string(d.Incoming().Body))
			}
		}
		delayed := t.messages(queue, 2)
		for i := range delayed {
			delayed[i].Body = fmt.Appendf(nil, "late %d", i)
		}
		t.sendEventually(transport, delayed...)
		select {
		case got := <-received:
			if got.err != nil {
				t.stop("Receive outlasts a partition of the network", "it returned %v", got.err)
			}
			for _, d := range got.deliveries {
				seen.record(d)
				_ = seen.complete(t, d)
			}
		case <-time.After(t.redeliveryTimeout()):
			t.stop("Receive goes on after a partition of the network", "it has not returned after %v", t.redeliveryTimeout())
		}
		seen.drain(r, total+len(delayed))
		if done := len(seen.done); done != total+len(delayed) {
			t.fail(fmt.Sprintf("all %d messages are delivered although the network was cut, and those whose lock was lost are redelivered", total+len(delayed)), "%d were not", total+len(delayed)-done)
		}
	}},
	{rule: "C15", title: "OpenReceiver and Check end with their context in an outage", modes: inHighest, exclusive: true, needs: []need{outages}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		broker.kill()
		ctx, cancel := t.withQuietPeriod()
		defer cancel()
		var opened core.Receiver
		if !t.returnsInTime(func() {
			opened, _ = transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		}) {
			t.fail("OpenReceiver, in an outage, returns when its context ends", "it has not returned %v later", t.timeout())
		} else if opened != nil {
			t.Cleanup(func() { _ = opened.Close(context.WithoutCancel(t.ctx)) })
		}
		checker, ok := transport.(core.Checker)
		if !ok {
			return
		}
		ctx, cancel = t.withQuietPeriod()
		defer cancel()
		var checked error
		if !t.returnsInTime(func() { checked = checker.Check(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}) }) {
			t.stop("Check, in an outage, returns when its context ends", "it has not returned %v later", t.timeout())
		}
		if checked == nil {
			t.fail("Check returns an error while the broker cannot be reached", "nil")
		}
	}},
	{rule: "C15", title: "an endpoint continues after an outage, and its Health reports the outage", exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			if t.mode != core.TransactionNone { // a settlement may fail in the outage
				c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 5}
			}
		})
		var handled counter
		s.handle(workType, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		s.run()
		before := t.command(s.queue, workType, "before")
		t.send(transport, before)
		t.await("a message is handled before the outage", func() bool { return handled.get(before.ID) > 0 })
		broker.kill()
		t.await("Endpoint.Health says in an outage that it is not Connected, with a ConnectionError", func() bool {
			h := s.Health()
			return !h.Connected && h.ConnectionError != nil
		})
		broker.start()
		t.await("Endpoint.Health says after the outage that it is Connected, and Running", func() bool {
			h := s.Health()
			return h.Connected && h.Running
		})
		after := t.command(s.queue, workType, "after")
		t.sendEventually(transport, after)
		t.await("a message is handled after the outage", func() bool { return handled.get(after.ID) > 0 })
	}},
	{rule: "C15", title: "operations in an outage return ErrUnavailable, and an endpoint that starts in it waits", exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		s := t.service(transport, nil)
		var handled counter
		s.handle(workType, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		broker.kill()
		for name, request := range t.requests(transport, s.queue) {
			var err error
			if !t.returnsInTime(func() { err = request(t.ctx) }) {
				t.stop(name+" returns an error while the broker cannot be reached", "it has not returned %v later", t.timeout())
			}
			if !errors.Is(err, core.ErrUnavailable) {
				t.fail(name+" returns core.ErrUnavailable while the broker cannot be reached", "%v", err)
			}
		}
		if err := t.trySend(transport, t.command(s.queue, workType, "lost")); !errors.Is(err, core.ErrUnavailable) || core.IsPermanent(err) {
			t.fail("Send returns core.ErrUnavailable while the broker cannot be reached, and no permanent error", "%v", err)
		}
		told := &connectionLog{}
		ctx, cancel := context.WithTimeout(t.ctx, max(t.quietPeriod(), time.Second))
		_, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: s.queue, Mode: t.mode, MaxInFlight: 1, ConnectionChanged: told.ConnectionChanged})
		cancel()
		if !errors.Is(err, core.ErrUnavailable) {
			t.fail("OpenReceiver returns core.ErrUnavailable while the broker cannot be reached", "%v", err)
		}
		if text := strings.ToLower(fmt.Sprint(err)); strings.HasSuffix(text, ": "+context.DeadlineExceeded.Error()) && len(told.outages(0)) > 0 && !strings.Contains(text, told.outages(0)[0].Err.Error()) {
			t.fail("the error of OpenReceiver wraps the cause of the outage, which ConnectionChanged reported", "%v, and not %v", err, told.outages(0)[0].Err)
		}
		s.launch()
		t.await("Endpoint.Health says of an endpoint that was started in an outage that it is Starting and not Connected, with a ConnectionError", func() bool {
			if s.hasEnded() {
				t.stop("an endpoint that was started in an outage waits for the broker", "Endpoint.Run returned %v", s.ended())
			}
			h := s.Health()
			return h.Starting && !h.Connected && h.ConnectionError != nil
		})
		broker.start()
		s.awaitReady()
		after := t.command(s.queue, workType, "after")
		t.sendEventually(transport, after)
		t.await("a message is handled after the outage", func() bool { return handled.get(after.ID) > 0 })
	}},
	{rule: "C15", title: "a settlement ends with the deadline of its context", modes: withRedelivery, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 3)...)
		r := t.receiver(transport, queue, 3)
		held := r.take(3)
		heal := broker.partition()
		settlements := []struct {
			name   string
			settle func(ctx context.Context, d core.Delivery) error
		}{
			{"Complete", func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }},
			{"Abandon", func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("failed")) }},
			{"Release", func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }},
		}
		var settling sync.WaitGroup
		for i, one := range settlements {
			settling.Go(func() {
				end := time.Now().Add(150 * time.Millisecond)
				ctx, cancel := context.WithDeadline(t.ctx, end)
				defer cancel()
				err := one.settle(ctx, held[i])
				took := time.Since(end)
				if took > deadlineTolerance {
					t.fail(one.name+" ends with the deadline of its context while the broker does not answer", "it ended %v later", took)
				}
				switch {
				case err == nil && !t.caps.ConfirmsSettlement, errors.Is(err, core.ErrLockLost): // it ended before
				case !errors.Is(err, core.ErrUnavailable) || took >= 0 && !errors.Is(err, context.DeadlineExceeded):
					t.fail(one.name+" returns context.DeadlineExceeded with core.ErrUnavailable when its deadline passes while the broker does not answer", "%v", err)
				}
			})
		}
		settling.Wait()
		heal()
		r.close()
	}},
	{rule: "C15", title: "a long outage is one critical error, and the endpoint continues after it", modes: inHighest, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		limit := max(t.quietPeriod(), time.Second)
		var outages, handled counter
		s := t.service(transport, func(c *core.Config) {
			c.OutageLimit = limit
			c.Observers = append(c.Observers, core.Observer{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) {
				if errors.Is(err, core.ErrOutage) {
					outages.add(err.Error())
				}
			}})
			if t.mode != core.TransactionNone { // a settlement may fail in the outage
				c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 5}
			}
		})
		s.handle(workType, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		s.run()
		before := t.command(s.queue, workType, "before")
		t.send(transport, before)
		t.await("a message is handled before the outage", func() bool { return handled.get(before.ID) > 0 })
		broker.kill()
		t.await(fmt.Sprintf("an outage that lasts for OutageLimit (%v) is a critical error: the observer is told that it began, and not that it ended", limit), func() bool { return outages.total() > 0 })
		t.sleep(3 * limit)
		if n := outages.total(); n != 1 {
			t.fail("an outage is one critical error, since the observer is not told of its end before it", "%d: %s", n, listed(outages.counts()))
		}
		broker.start()
		t.await("Endpoint.Health says after the outage that it is Connected, and Running", func() bool {
			h := s.Health()
			return h.Connected && h.Running
		})
		after := t.command(s.queue, workType, "after")
		t.sendEventually(transport, after)
		t.await("a message is handled after the outage", func() bool { return handled.get(after.ID) > 0 })
	}},
	{rule: "C15", title: "the transport continues with a broker that has lost its data", exclusive: true, needs: []need{brokerControl, notDurable}, run: func(t *caseT) {
		const total = 10
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, total)...)
		broker.kill()
		t.sleep(t.quietPeriod())
		broker.start()
		if p, ok := transport.(core.Provisioner); ok {
			t.await("Provision works again after the outage", func() bool {
				ctx, cancel := t.withTimeout()
				defer cancel()
				return p.Provision(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}) == nil
			})
		}
		t.note("%d of %d messages survived the death of the broker", len(t.contents(queue, 0)), total)
		t.sendEventually(transport, t.message(queue, "after"))
		var r core.Receiver
		t.await("OpenReceiver works again after the outage", func() bool {
			ctx, cancel := t.withTimeout()
			defer cancel()
			opened, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 8})
			r = opened
			return err == nil
		})
		t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.ctx)) })
		after := false
		(&receiver{Receiver: r, t: t, queue: queue, size: 8}).collect(t.timeout(), func(in *core.Incoming) bool {
			if string(in.Body) == "after" {
				after = true
			}
			return after
		})
		if !after {
			t.fail("a message that was sent after the outage is delivered", "it is not within %v", t.timeout())
		}
	}},
	{rule: "C15", title: "the transport detects silent connections", modes: withRedelivery, slow: true, needs: []need{ownLine}, run: func(t *caseT) {
		other := t.open()
		queue := t.queue(other)
		transport, line := t.openOnLine()
		r := t.receiver(transport, queue, 4)
		t.sendEach(transport, queue, "before")
		t.complete(r.takeBodies("a message is received", "before")["before"])
		received := r.receiveInBackground()
		line.Silence()
		expected := "a transport whose connections are silent, with no reset and no end, notices it by itself (a heartbeat, a time limit for answers), connects again and receives"
		// A fetch that was in progress may lock the messages that it finds until their
		// locks end, which may take long. So this message is sent again and again.
		t.sendEach(other, queue, "in the outage")
		ticker := time.NewTicker(t.timeout() / 20)
		defer ticker.Stop()
		limit := time.NewTimer(t.timeout())
		defer limit.Stop()
		for arrived := false; !arrived; {
			select {
			case got := <-received:
				if got.err != nil {
					t.stop(expected, "Receive returned %v", got.err)
				}
				t.complete(got.deliveries...)
				// "before" is redelivered if its settlement was lost.
				arrived = slices.ContainsFunc(got.deliveries, func(d core.Delivery) bool { return string(d.Incoming().Body) == "in the outage" })
				if !arrived {
					received = r.receiveInBackground()
				}
			case <-ticker.C:
				t.sendEach(other, queue, "in the outage")
			case <-limit.C:
				t.stop(expected, "it has received no message that was sent afterwards within %v", t.timeout())
			}
		}
		t.sendEventually(transport, t.message(queue, "afterwards"))
	}},
}

// deadlineTolerance is how much later than its deadline a call may return on a busy machine.
const deadlineTolerance = 1500 * time.Millisecond

// requests are the requests that an endpoint makes before it opens its receiver, if the
// transport supports them.
func (t *caseT) requests(transport core.Transport, queue string) map[string]func(ctx context.Context) error {
	requests := map[string]func(ctx context.Context) error{}
	topology := core.Topology{InputQueue: queue, Queues: []string{queue}}
	if p, ok := transport.(core.Provisioner); ok {
		requests["Provision"] = func(ctx context.Context) error { return p.Provision(ctx, topology) }
	}
	if c, ok := transport.(core.Checker); ok {
		requests["Check"] = func(ctx context.Context) error { return c.Check(ctx, topology) }
	}
	if p, ok := transport.(core.Remover); ok {
		requests["Purge"] = func(ctx context.Context) error { _, err := p.Purge(ctx, queue); return err }
		missing := t.uniqueName()
		requests["Remove"] = func(ctx context.Context) error { return p.Remove(ctx, []string{missing}, nil) }
	}
	if s, ok := transport.(core.Subscriber); ok && t.caps.PublishSubscribe {
		topic := t.uniqueName()
		requests["Subscribe"] = func(ctx context.Context) error { return s.Subscribe(ctx, queue, topic) }
	}
	for _, c := range t.queueCalls(transport, queue) {
		requests[c.name] = c.call
	}
	return requests
}
