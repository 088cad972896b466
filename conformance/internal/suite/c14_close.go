package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// blockedReceives has the results of calls of Receive that wait for messages.
type blockedReceives struct {
	t       *caseT
	results chan error
	calls   int
}

// blockReceives lets n calls of Receive wait at a receiver, with a context that does not
// end.
func (r *receiver) blockReceives(n int) *blockedReceives {
	b := &blockedReceives{r.t, make(chan error, n), n}
	var begun sync.WaitGroup
	begun.Add(n)
	for range n {
		r.t.goGuarded(func() {
			dst := make([]core.Delivery, 2)
			begun.Done()
			n, err := r.Receive(r.t.ctx, dst)
			if err == nil {
				err = fmt.Errorf("%d deliveries", n)
			}
			b.results <- err
		})
	}
	begun.Wait()
	return b
}

// endWith checks that all calls return the error, or no deliveries.
func (b *blockedReceives) endWith(expected string, want error) {
	ctx, cancel := b.t.withTimeout()
	defer cancel()
	for i := range b.calls {
		select {
		case err := <-b.results:
			if !errors.Is(err, want) {
				b.t.fail(expected, "it returned %v", err)
			}
		case <-ctx.Done():
			b.t.stop(expected, "%d of %d calls have not returned after %v", b.calls-i, b.calls, b.t.timeout())
		}
	}
}

// receiveClosed checks that Receive on a closed receiver returns the right error.
func (t *caseT) receiveClosed(when string, r *receiver) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	n, err := r.Receive(ctx, make([]core.Delivery, 2))
	if n != 0 || !errors.Is(err, core.ErrClosed) {
		t.fail("Receive returns core.ErrClosed "+when, "%d, %v", n, err)
	}
}

// atTheSameTime calls f from several goroutines.
func (t *caseT) atTheSameTime(expected string, f func(ctx context.Context) error) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		t.goInGroup(&all, func() { errs[i] = f(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.fail(expected, "%v", err)
	}
}

var closeCases = []testCase{
	{rule: "C14", title: "closing a receiver ends all calls of Receive", run: func(t *caseT) {
		transport := t.open()
		r := t.receiver(transport, t.queue(transport), 4)
		calls := r.blockReceives(4)
		r.close()
		calls.endWith("Receive, which waits while its receiver is closed, returns core.ErrClosed", core.ErrClosed)
	}},
	{rule: "C14", title: "a closed receiver delivers no messages", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		r.close()
		t.sendEach(transport, queue, "for others")
		t.receiveClosed("after Receiver.Close", r)
		r.close()
		t.receiveClosed("after Receiver.Close was called twice", r)
		t.wantLeft(queue, "after a closed receiver was asked", "for others")
	}},
	{rule: "C14", title: "Close of a receiver may be called repeatedly and concurrently", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		calls := r.blockReceives(2)
		t.atTheSameTime("Receiver.Close returns nil to each of several callers", r.Close)
		calls.endWith("Receive, which waits while its receiver is closed, returns core.ErrClosed", core.ErrClosed)
		r.close()
		t.receiveClosed("after Receiver.Close", r)
	}},
	{rule: "C14", title: "closing a receiver has no effect on other receivers of the transport", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r, other := t.receiver(transport, queue, 2), t.receiver(transport, queue, 2)
		r.SetMaxInFlight(0)
		if t.mode == core.TransactionNone {
			r.close() // in that mode the other receiver may have fetched messages
		}
		t.awaitPause()
		t.sendEach(transport, queue, "held by the other")
		held := other.next()
		r.close()
		t.complete(held)
		t.sendEach(transport, queue, "later")
		t.complete(other.next())
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C14", title: "unsettled messages are released at once when their receiver is closed", modes: withRedelivery, run: func(t *caseT) {
		t.wantReturned(func(_ core.Transport, r *receiver) { r.close() })
	}},
	{rule: "C14", title: "unsettled messages are released at once when their transport is closed", modes: withRedelivery, run: func(t *caseT) {
		t.wantReturned(func(transport core.Transport, _ *receiver) { t.close(transport) })
	}},
	{rule: "C14", title: "prefetched messages are released when their receiver is closed", modes: withRedelivery, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprintf("message %d", i))
		}
		r := t.receiver(first, queue, len(names))
		t.sendEach(first, queue, names...)
		for range 3 {
			r.next()
		}
		r.close()
		other := t.receiver(second, queue, len(names))
		for _, d := range other.takeBodies("delivered and prefetched messages go to another receiver", names...) {
			t.complete(d)
		}
		other.close()
		t.wantLeft(queue, "after all were completed by another receiver")
	}},
	{rule: "C14", title: "calls after Close have no effect", run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, len(names))
		held := r.takeBodies("the messages are delivered", names...)
		r.close()
		late := func() {
			r.SetMaxInFlight(5)
			r.SetMaxInFlight(0)
			for _, way := range ways {
				_ = t.trySettling(way, held[way.name])
				held[way.name].Incoming()
			}
			held["Complete"].LockedUntil()
			_ = held["Complete"].Renew(t.ctx)
		}
		late()
		t.close(transport)
		late()
		if t.mode == core.TransactionNone {
			names = nil
		}
		t.wantLeft(queue, "after settlements on a closed receiver", names...)
		t.wantLeft(out, "after settlements on a closed receiver")
	}},
	{rule: "C14", title: "a closed transport refuses everything", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		address, err := transport.Address(queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		t.close(transport)
		if second, err := transport.Address(queue); err != nil || second != address {
			t.fail("Address needs no connection: it is the same after Close", "%q, %v", second, err)
		}
		ctx, cancel := t.withTimeout()
		defer cancel()
		refused := func(method string, err error) {
			if !errors.Is(err, core.ErrClosed) {
				t.fail(method+" returns core.ErrClosed after Transport.Close", "%v", err)
			}
		}
		refused("Send", transport.Send(ctx, t.message(queue, "too late")))
		_, err = transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		refused("OpenReceiver", err)
		topology := core.Topology{InputQueue: queue, Queues: []string{queue}}
		if provisioner, ok := transport.(core.Provisioner); ok {
			refused("Provision", provisioner.Provision(ctx, topology))
		}
		if checker, ok := transport.(core.Checker); ok {
			refused("Check", checker.Check(ctx, topology))
		}
		if remover, ok := transport.(core.Remover); ok {
			_, err := remover.Purge(ctx, queue)
			refused("Purge", err)
			refused("Remove", remover.Remove(ctx, []string{queue}, nil))
		}
		if subscriber, ok := transport.(core.Subscriber); ok && t.caps.PublishSubscribe {
			topic := t.uniqueName()
			refused("Subscribe", subscriber.Subscribe(ctx, queue, topic))
			refused("Unsubscribe", subscriber.Unsubscribe(ctx, queue, topic))
		}
		for _, c := range t.queueCalls(transport, queue) {
			refused(c.name, c.call(ctx))
		}
		t.wantLeft(queue, "after a Send on a closed transport")
	}},
	{rule: "C14", title: "closing a transport closes its receivers", run: func(t *caseT) {
		transport := t.open()
		r, other := t.receiver(transport, t.queue(transport), 2), t.receiver(transport, t.queue(transport), 2)
		calls, others := r.blockReceives(2), other.blockReceives(2)
		t.close(transport)
		for _, b := range []*blockedReceives{calls, others} {
			b.endWith("Receive, which waits while its transport is closed, returns core.ErrClosed", core.ErrClosed)
		}
		t.receiveClosed("after Transport.Close", r)
		r.close()
		other.close()
		t.receiveClosed("after Transport.Close and Receiver.Close", other)
	}},
	{rule: "C14", title: "Close of a transport may be called repeatedly and concurrently", run: func(t *caseT) {
		transport := t.open()
		r := t.receiver(transport, t.queue(transport), 2)
		calls := r.blockReceives(2)
		t.atTheSameTime("Transport.Close returns nil to each of several callers", transport.Close)
		calls.endWith("Receive, which waits while its transport is closed, returns core.ErrClosed", core.ErrClosed)
		t.close(transport)
	}},
	{rule: "C14", title: "closing a transport has no effect on other transports", run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(other)
		r := t.receiver(other, queue, 2)
		t.sendEach(other, queue, "before")
		held := r.next()
		t.close(transport)
		t.complete(held)
		t.sendEach(other, queue, "after")
		t.complete(r.next())
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C14", title: "no message is lost when a transport is closed while it sends and receives", slow: true, run: closeInFullWork},
	{rule: "C14", title: "a closed transport leaves no goroutine", run: func(t *caseT) {
		// Goroutines that are started once in a process are started by the first
		// transport.
		first := t.open()
		queue, idle := t.queue(first), t.queue(first)
		t.useAndClose(first, queue, idle)
		t.leavesNoGoroutine("Transport.Close", func() { t.useAndClose(t.open(), queue, idle) })
	}},
	{rule: "C14", title: "a closed transport leaves no connection", needs: []need{connectionCount}, exclusive: true, run: func(t *caseT) {
		first := t.open()
		queue, idle := t.queue(first), t.queue(first)
		t.useAndClose(first, queue, idle)
		before := t.suite.h.Connections(t)
		t.useAndClose(t.open(), queue, idle)
		now := before
		if !t.awaitTrue(func() bool {
			now = t.suite.h.Connections(t)
			return now <= before
		}) {
			t.fail(fmt.Sprintf("after Transport.Close the broker has no more connections than before the transport was opened, %d", before), "%d after %v", now, t.timeout())
		}
	}},
	{rule: "C14", title: "Close in an outage returns, and leaves no goroutine and no connection", modes: inHighest, exclusive: true, needs: []need{outages}, run: func(t *caseT) {
		broker := t.brokerController()
		first := t.open() // starts the goroutines that are started once in a process
		queue := t.queue(first)
		t.close(first)
		t.leavesNoGoroutine("Transport.Close in an outage", func() {
			transport := t.open()
			t.send(transport, t.message(queue, "held"), t.message(queue, "waits"))
			r := t.receiver(transport, queue, 1)
			if t.mode != core.TransactionNone {
				r.next()
			}
			received := r.receiveInBackground()
			broker.kill()
			t.sleep(t.quietPeriod())
			ctx, cancel := t.withTimeout()
			defer cancel()
			if !t.returnsInTime(func() { _ = r.Close(ctx) }) {
				t.stop("Receiver.Close returns in an outage", "it has not returned after %v", t.timeout())
			}
			select {
			case got := <-received:
				// On a busy machine the message's lock can end before the broker is
				// killed: then Receive has returned a message.
				broughtOne := got.err == nil && len(got.deliveries) > 0
				if t.mode != core.TransactionNone && !broughtOne && !errors.Is(got.err, core.ErrClosed) {
					t.fail("Receive returns core.ErrClosed when its receiver is closed in an outage", "%d deliveries and %v", len(got.deliveries), got.err)
				}
			case <-time.After(t.timeout()):
				t.fail("Receive returns when its receiver is closed in an outage", "it has not returned after %v", t.timeout())
			}
			if !t.returnsInTime(func() { _ = transport.Close(ctx) }) {
				t.stop("Transport.Close returns in an outage", "it has not returned after %v", t.timeout())
			}
			broker.start()
		})
		if t.caps.Durable && t.mode != core.TransactionNone {
			second := newOutageLog()
			second.drain(t.receiver(t.open(), queue, 8), 2)
			if len(second.deliveries) != 2 {
				t.fail("the messages that were in flight and waiting when the transport was closed in an outage are delivered to another", "%d of 2 messages are", len(second.deliveries))
			}
		}
	}},
	{rule: "C14", title: "an endpoint that runs again gets the messages that were sent while it was stopped", run: func(t *caseT) {
		jobs := t.blockingHandler()
		jobs.releaseAll()
		transport := t.open()
		s := t.service(transport, nil)
		s.handle("job", jobs.handle)
		msgs := t.jobs(s.queue, 7)
		t.send(transport, msgs[0])
		s.run()
		t.awaitCount("messages handled in the first run", 1, jobs.messages)
		s.end()
		t.send(transport, msgs[1:4]...)
		t.wantSteady("the number of messages handled by an endpoint that is stopped", 1, jobs.messages)
		s.run()
		t.awaitCount("messages handled when it runs again", 4, jobs.messages)
		t.send(transport, msgs[4:]...)
		t.awaitCount("messages handled that were sent while it runs again", 7, jobs.messages)
		s.end()
		t.wantOnce(msgs, jobs)
		t.wantLeft(s.queue, "after all was handled")
	}},
}

// wantReturned checks three deliveries after an event closes their receiver. One of them
// has failed before.
func (t *caseT) wantReturned(happens func(transport core.Transport, r *receiver)) {
	first, second := t.open(), t.open()
	queue := t.queue(first)
	names := []string{"unsettled", "unsettled too", "abandoned once, then unsettled"}
	t.sendEach(first, queue, names...)
	r := t.receiver(first, queue, len(names))
	held := r.takeBodies("three messages are delivered", names...)
	t.abandon(held[names[2]])
	held[names[2]] = r.next()
	t.wantCount("after one Abandon", held[names[2]], 2)
	limit := min(t.atOnce(held[names[0]]), t.atOnce(held[names[1]]))
	other := t.receiver(second, queue, len(names))
	began := time.Now()
	happens(first, r)
	redelivered := other.takeBodies("unsettled messages go to another receiver", names...)
	if took := time.Since(began); took > limit {
		t.fail("unsettled messages are released at once", "it came after %v", took)
	}
	for i, name := range names {
		want := 1
		if i == 2 && t.caps.NativeDeliveryCount {
			want = 2
		}
		t.countedBeside(fmt.Sprintf("for messages that were %s and released when their receiver closed, which is no failure", name), redelivered[name], want)
		t.complete(redelivered[name])
	}
	other.close()
	t.wantLeft(queue, "after all were completed by another receiver")
}

// useAndClose uses a transport as an endpoint does, and closes it while one receiver
// holds a delivery and another one waits.
func (t *caseT) useAndClose(transport core.Transport, queue, idle string) {
	r := t.receiver(transport, queue, 4)
	calls := t.receiver(transport, idle, 4).blockReceives(1)
	t.sendEach(transport, queue, "completed", "abandoned", "unsettled")
	held := r.take(3)
	t.complete(held[0])
	t.abandon(held[1])
	t.close(transport)
	calls.endWith("Receive, which waits while its transport is closed, returns core.ErrClosed", core.ErrClosed)
}

// leavesNoGoroutine lets a case open, use and close a transport, and checks that all
// goroutines started by the transport end. It finds these by a label: the number of all
// goroutines is too high while those of another transport are still ending (some clients
// do not wait for them in Close), so a leak would not be seen.
func (t *caseT) leavesNoGoroutine(after string, use func()) {
	label := fmt.Sprintf("%s/%d", t.label, t.suite.names.Add(1))
	t.labelTransport(label)
	use()
	t.labelTransport("")
	left := ""
	if !t.awaitTrue(func() bool {
		left = labelledGoroutines(transportLabel, label)
		return left == ""
	}) {
		t.fail("after "+after+" all goroutines end that the transport has started", "after %v these have not:\n%s", t.timeout(), left)
	}
}

// closeInFullWork closes a transport while it sends, receives and settles.
func closeInFullWork(t *caseT) {
	const senders, receivers, atMost = 3, 3, 300
	transport := t.open()
	queue := t.queue(transport)
	var accepted, refused, completed, doubtful counter
	var working sync.WaitGroup
	started := make(chan struct{})
	underWay := sync.OnceFunc(func() { close(started) })
	for i := range senders {
		msgs := make([]core.Outgoing, atMost)
		for k := range msgs {
			msgs[k] = t.message(queue, fmt.Sprintf("message %d of sender %d", k, i))
		}
		t.goInGroup(&working, func() {
			defer underWay()
			for k, m := range msgs {
				if k == 10 {
					underWay()
				}
				err := transport.Send(t.ctx, m)
				if err == nil {
					accepted.add(string(m.Body))
					continue
				}
				if sent, ok := errors.AsType[*core.SendError](err); ok && len(sent.Results) == 1 && sent.Results[0].State == core.SendRefused {
					refused.add(string(m.Body))
				}
				if errors.Is(err, core.ErrClosed) {
					return
				}
			}
		})
	}
	for range receivers {
		r := t.receiver(transport, queue, 4)
		t.goInGroup(&working, func() { t.workUntilClosed(r, &completed, &doubtful) })
	}
	<-started
	t.close(transport)
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	ctx, cancel := t.withTimeout()
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.stop("Send, Receive and settlements return when the transport is closed", "some did not after %v\n%s", t.timeout(), t.goroutines())
	}
	// If Complete failed, the message may have been consumed and the answer lost.
	var due []string
	for body := range accepted.counts() {
		if completed.get(body)+doubtful.get(body) == 0 && t.mode != core.TransactionNone {
			due = append(due, body)
		}
	}
	var remaining counter
	for _, in := range t.drainQueue(queue, func(found []*core.Incoming) bool { return len(missingBodies(due, found)) == 0 }) {
		remaining.add(string(in.Body))
	}
	t.accountFor(due, &refused, &completed, &remaining)
}

// accountFor checks that each message is where it has to be.
func (t *caseT) accountFor(due []string, refused, completed, remaining *counter) {
	var lost, duplicates, unsent []string
	for _, body := range due {
		if remaining.get(body) == 0 {
			lost = append(lost, body)
		}
	}
	for body, n := range remaining.counts() {
		if n+completed.get(body) > 1 {
			duplicates = append(duplicates, body)
		}
		if refused.get(body) > 0 {
			unsent = append(unsent, body)
		}
	}
	for _, list := range [][]string{lost, duplicates, unsent} {
		slices.Sort(list)
	}
	if len(lost) > 0 {
		t.fail("each message that Send accepted, and for which Complete was not called, is in the queue after its transport was closed", "not in the queue after %v: lost, or still locked by the closed receiver: %s", t.timeout(), sample(lost))
	}
	// An unconfirmed settlement may be lost with its connection.
	if len(duplicates) > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
		t.fail("no message is in the queue that was completed, after its transport was closed", "these are: %s", sample(duplicates))
	}
	if len(unsent) > 0 {
		t.fail(refusedStays+", also when the transport is closed at the same time", "%s arrived%s", sample(unsent), sayUnknown)
	}
}

// workUntilClosed runs in a separate goroutine.
func (t *caseT) workUntilClosed(r *receiver, completed, doubtful *counter) {
	for n := 0; ; n++ {
		dst := make([]core.Delivery, 2)
		got, err := r.Receive(t.ctx, dst)
		if err != nil {
			if !errors.Is(err, core.ErrClosed) {
				t.fail("Receive returns core.ErrClosed when its transport is closed", "%v", err)
			}
			return
		}
		for _, d := range dst[:got] {
			switch n % 3 {
			case 0:
				_ = d.Abandon(t.ctx, errHandler)
			default:
				switch err := d.Complete(t.ctx); {
				case err == nil:
					completed.add(string(d.Incoming().Body))
				case !errors.Is(err, core.ErrLockLost) && !errors.Is(err, core.ErrSettled):
					doubtful.add(string(d.Incoming().Body))
				}
			}
		}
	}
}
