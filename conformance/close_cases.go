package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// blocked has the results of calls of Receive that wait for messages.
type blocked struct {
	t       *trial
	results chan error
	calls   int
}

// block lets n calls of Receive wait at a receiver, with a context that does not end.
func (r *receiver) block(n int) *blocked {
	b := &blocked{r.t, make(chan error, n), n}
	var begun sync.WaitGroup
	begun.Add(n)
	for range n {
		r.t.apart(func() {
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
func (b *blocked) endWith(expected string, want error) {
	ctx, cancel := b.t.patient()
	defer cancel()
	for i := range b.calls {
		select {
		case err := <-b.results:
			if !errors.Is(err, want) {
				b.t.fail(expected, "it returned %v", err)
			}
		case <-ctx.Done():
			b.t.stop(expected, "%d of %d calls have not returned after %v", b.calls-i, b.calls, b.t.patience())
		}
	}
}

// receiveClosed checks that Receive on a closed receiver returns the right error.
func (t *trial) receiveClosed(when string, r *receiver) {
	ctx, cancel := t.patient()
	defer cancel()
	n, err := r.Receive(ctx, make([]core.Delivery, 2))
	if n != 0 || !errors.Is(err, core.ErrClosed) {
		t.fail("Receive returns core.ErrClosed "+when, "%d, %v", n, err)
	}
}

// atTheSameTime calls f from several goroutines.
func (t *trial) atTheSameTime(expected string, f func(ctx context.Context) error) {
	ctx, cancel := t.patient()
	defer cancel()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		t.beside(&all, func() { errs[i] = f(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.fail(expected, "%v", err)
	}
}

var closeCases = []testCase{
	{rule: "C14", title: "closing a receiver ends all calls of Receive", run: func(t *trial) {
		transport := t.open()
		r := t.receiver(transport, t.queue(transport), 4)
		calls := r.block(4)
		r.shut()
		calls.endWith("Receive, which waits while its receiver is closed, returns core.ErrClosed", core.ErrClosed)
	}},
	{rule: "C14", title: "a closed receiver receives nothing", run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		r.shut()
		t.sendEach(transport, queue, "for others")
		t.receiveClosed("after Receiver.Close", r)
		r.shut()
		t.receiveClosed("after Receiver.Close was called twice", r)
		t.left(queue, "after a closed receiver was asked", "for others")
	}},
	{rule: "C14", title: "a receiver can be closed again, and by several at once", run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		calls := r.block(2)
		t.atTheSameTime("Receiver.Close returns nil to each of several callers", r.Close)
		calls.endWith("Receive, which waits while its receiver is closed, returns core.ErrClosed", core.ErrClosed)
		r.shut()
		t.receiveClosed("after Receiver.Close", r)
	}},
	{rule: "C14", title: "closing a receiver disturbs no other of the transport", run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r, other := t.receiver(transport, queue, 2), t.receiver(transport, queue, 2)
		r.SetMaxInFlight(0)
		if t.mode == core.TransactionNone {
			r.shut() // in that mode the other receiver may have fetched messages
		}
		t.rest(t.quiet()) // a fetch in progress may still use the old limit
		t.sendEach(transport, queue, "held by the other")
		held := other.next()
		r.shut()
		t.complete(held)
		t.sendEach(transport, queue, "later")
		t.complete(other.next())
		t.left(queue, "after all were completed")
	}},
	{rule: "C14", title: "what is unsettled goes back at once when its receiver is closed", in: givingBack, run: func(t *trial) {
		t.goesBack(func(_ core.Transport, r *receiver) { r.shut() })
	}},
	{rule: "C14", title: "what is unsettled goes back at once when its transport is closed", in: givingBack, run: func(t *trial) {
		t.goesBack(func(transport core.Transport, _ *receiver) { t.close(transport) })
	}},
	{rule: "C14", title: "what was fetched ahead goes back when its receiver is closed", in: givingBack, run: func(t *trial) {
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
		r.shut()
		other := t.receiver(second, queue, len(names))
		for _, d := range other.takeThese("what was delivered, and what was fetched ahead, goes to another receiver", names...) {
			t.complete(d)
		}
		other.shut()
		t.left(queue, "after all were completed by another receiver")
	}},
	{rule: "C14", title: "what is called too late does no harm", run: func(t *trial) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, len(names))
		held := r.takeThese("the messages are delivered", names...)
		r.shut()
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
		t.left(queue, "after settlements on a closed receiver", names...)
		t.left(out, "after settlements on a closed receiver")
	}},
	{rule: "C14", title: "a closed transport refuses everything", run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		address, err := transport.Address(queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		t.close(transport)
		if again, err := transport.Address(queue); err != nil || again != address {
			t.fail("Address needs no connection: it is the same after Close", "%q, %v", again, err)
		}
		ctx, cancel := t.patient()
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
		if purger, ok := transport.(core.Purger); ok {
			_, err := purger.Purge(ctx, queue)
			refused("Purge", err)
		}
		if subscriber, ok := transport.(core.Subscriber); ok && t.caps.PublishSubscribe {
			topic := t.uniqueName()
			refused("Subscribe", subscriber.Subscribe(ctx, queue, topic))
			refused("Unsubscribe", subscriber.Unsubscribe(ctx, queue, topic))
		}
		t.left(queue, "after a Send on a closed transport")
	}},
	{rule: "C14", title: "closing a transport closes its receivers", run: func(t *trial) {
		transport := t.open()
		r, other := t.receiver(transport, t.queue(transport), 2), t.receiver(transport, t.queue(transport), 2)
		calls, others := r.block(2), other.block(2)
		t.close(transport)
		for _, b := range []*blocked{calls, others} {
			b.endWith("Receive, which waits while its transport is closed, returns core.ErrClosed", core.ErrClosed)
		}
		t.receiveClosed("after Transport.Close", r)
		r.shut()
		other.shut()
		t.receiveClosed("after Transport.Close and Receiver.Close", other)
	}},
	{rule: "C14", title: "a transport can be closed again, and by several at once", run: func(t *trial) {
		transport := t.open()
		r := t.receiver(transport, t.queue(transport), 2)
		calls := r.block(2)
		t.atTheSameTime("Transport.Close returns nil to each of several callers", transport.Close)
		calls.endWith("Receive, which waits while its transport is closed, returns core.ErrClosed", core.ErrClosed)
		t.close(transport)
	}},
	{rule: "C14", title: "closing a transport disturbs no other", run: func(t *trial) {
		transport, other := t.open(), t.open()
		queue := t.queue(other)
		r := t.receiver(other, queue, 2)
		t.sendEach(other, queue, "before")
		held := r.next()
		t.close(transport)
		t.complete(held)
		t.sendEach(other, queue, "after")
		t.complete(r.next())
		t.left(queue, "after all were completed")
	}},
}

// goesBack checks three deliveries after an event closes their receiver. One of them has
// failed before.
func (t *trial) goesBack(happens func(transport core.Transport, r *receiver)) {
	first, second := t.open(), t.open()
	queue := t.queue(first)
	names := []string{"unsettled", "unsettled too", "abandoned once, then unsettled"}
	t.sendEach(first, queue, names...)
	r := t.receiver(first, queue, len(names))
	held := r.takeThese("three messages are delivered", names...)
	t.abandon(held[names[2]])
	held[names[2]] = r.next()
	t.counted("after one Abandon", held[names[2]], 2)
	limit := min(t.atOnce(held[names[0]]), t.atOnce(held[names[1]]))
	other := t.receiver(second, queue, len(names))
	began := time.Now()
	happens(first, r)
	again := other.takeThese("what was unsettled goes to another receiver", names...)
	if took := time.Since(began); took > limit {
		t.fail("what was unsettled goes back at once", "it came after %v", took)
	}
	for i, name := range names {
		want := 1
		if i == 2 && t.caps.NativeDeliveryCount {
			want = 2
		}
		t.countedBeside(fmt.Sprintf("for what was %s, and went back with its receiver, which is no failure", name), again[name], want)
		t.complete(again[name])
	}
	other.shut()
	t.left(queue, "after all were completed by another receiver")
}
