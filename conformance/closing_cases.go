package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// closingCases are the cases of C14 about calls and goroutines that are running while a
// transport is closed.
var closingCases = []testCase{
	{rule: "C14", title: "nothing is lost when a transport in full work is closed", slow: true, run: closeInFullWork},
	{rule: "C14", title: "a closed transport leaves no goroutine", run: func(t *trial) {
		// Goroutines that are started once in a process are started by the first
		// transport.
		first := t.open()
		queue, idle := t.queue(first), t.queue(first)
		t.useAndClose(first, queue, idle)
		t.leavesNoGoroutine("Transport.Close", func() { t.useAndClose(t.open(), queue, idle) })
	}},
	{rule: "C14", title: "a closed transport leaves no connection", needs: []need{connectionCount}, exclusive: true, run: func(t *trial) {
		first := t.open()
		queue, idle := t.queue(first), t.queue(first)
		t.useAndClose(first, queue, idle)
		before := t.suite.h.Connections(t)
		t.useAndClose(t.open(), queue, idle)
		now := before
		if !t.comesTrue(func() bool {
			now = t.suite.h.Connections(t)
			return now <= before
		}) {
			t.fail(fmt.Sprintf("after Transport.Close the broker has no more connections than before the transport was opened, %d", before), "%d after %v", now, t.patience())
		}
	}},
}

// useAndClose uses a transport as an endpoint does, and closes it while one receiver
// holds a delivery and another one waits.
func (t *trial) useAndClose(transport core.Transport, queue, idle string) {
	r := t.receiver(transport, queue, 4)
	calls := t.receiver(transport, idle, 4).block(1)
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
func (t *trial) leavesNoGoroutine(after string, use func()) {
	label := fmt.Sprintf("%s/%d", t.label, t.suite.names.Add(1))
	t.labelTransport(label)
	use()
	t.labelTransport("")
	left := ""
	if !t.comesTrue(func() bool {
		left = labelledGoroutines(transportLabel, label)
		return left == ""
	}) {
		t.fail("after "+after+" all goroutines end that the transport has started", "after %v these have not:\n%s", t.patience(), left)
	}
}

// closeInFullWork closes a transport while it sends, receives and settles.
func closeInFullWork(t *trial) {
	const senders, receivers, atMost = 3, 3, 300
	transport := t.open()
	queue := t.queue(transport)
	var accepted, refused, completed, doubtful tally
	var working sync.WaitGroup
	started := make(chan struct{})
	underWay := sync.OnceFunc(func() { close(started) })
	for i := range senders {
		msgs := make([]core.Outgoing, atMost)
		for k := range msgs {
			msgs[k] = t.message(queue, fmt.Sprintf("message %d of sender %d", k, i))
		}
		t.beside(&working, func() {
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
		t.beside(&working, func() { t.workUntilClosed(r, &completed, &doubtful) })
	}
	<-started
	t.close(transport)
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	ctx, cancel := t.patient()
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.stop("Send, Receive and settlements return when the transport is closed", "some did not after %v\n%s", t.patience(), t.goroutines())
	}
	// If Complete failed, the message may have been consumed and the answer lost.
	var due []string
	for body := range accepted.counts() {
		if completed.of(body)+doubtful.of(body) == 0 && t.mode != core.TransactionNone {
			due = append(due, body)
		}
	}
	var remaining tally
	for _, in := range t.look(queue, func(found []*core.Incoming) bool { return len(missing(due, found)) == 0 }) {
		remaining.add(string(in.Body))
	}
	t.accountFor(due, &refused, &completed, &remaining)
}

// accountFor checks that each message is where it has to be.
func (t *trial) accountFor(due []string, refused, completed, remaining *tally) {
	var lost, twice, unsent []string
	for _, body := range due {
		if remaining.of(body) == 0 {
			lost = append(lost, body)
		}
	}
	for body, n := range remaining.counts() {
		if n+completed.of(body) > 1 {
			twice = append(twice, body)
		}
		if refused.of(body) > 0 {
			unsent = append(unsent, body)
		}
	}
	for _, list := range [][]string{lost, twice, unsent} {
		slices.Sort(list)
	}
	if len(lost) > 0 {
		t.fail("each message that Send accepted, and for which Complete was not called, is in the queue after its transport was closed", "not in the queue after %v: lost, or still locked by the closed receiver: %s", t.patience(), some(lost))
	}
	// An unconfirmed settlement may be lost with its connection.
	if len(twice) > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
		t.fail("no message is in the queue that was completed, after its transport was closed", "these are: %s", some(twice))
	}
	if len(unsent) > 0 {
		t.fail(refusedStays+", also when the transport is closed meanwhile", "%s arrived%s", some(unsent), sayUnknown)
	}
}

// workUntilClosed runs in a separate goroutine.
func (t *trial) workUntilClosed(r *receiver, completed, doubtful *tally) {
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
