package suite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var poisonMessageCases = []testCase{
	// In SendsAtomicWithReceive without AtomicLeases a crash may roll back the count.
	{rule: "R34", title: "a message that kills its process goes to the error queue", modes: withLeases, needs: []need{processes, nativeCount}, run: func(t *caseT) {
		w := t.workerFixture(1)
		w.Then, w.MaxDeliveries = crashes, 2
		sent := t.command(w.queue, workType, "deadly")
		transport := t.open()
		t.send(transport, sent)
		runs, maximum := 0, w.MaxDeliveries
		newCopies := 0
		if t.caps.CountsReleases {
			newCopies = 1
		}
		// The count may rise by more than one at a time, but not by less than one.
		for ; runs <= maximum; runs++ {
			p := t.startWorker(w.workerSpec)
			handles := p.handles(t.redeliveryTimeout())
			for ; !handles && newCopies > 0; newCopies-- {
				handles = p.handles(t.redeliveryTimeout())
			}
			if !handles {
				break
			}
			p.kill()
		}
		expected := fmt.Sprintf("with MaxDeliveries %d a message that kills its process is given to a handler %d times, then moved to the error queue", w.MaxDeliveries, maximum)
		switch {
		case runs > maximum:
			t.stop(expected, "the handler began %d times: the deliveries to the killed processes did not count", runs)
		case runs < maximum && !t.caps.CountsReleases, runs == 0:
			t.fail(expected, "the handler began %d times", runs)
		}
		failed := t.contents(w.ErrorQueue, 1)
		if len(failed) == 0 || len(failed) > 1 && !t.caps.MayDuplicate {
			t.stop(expected, "the error queue holds %d messages", len(failed))
		}
		if failed[0].ID != sent.ID {
			t.fail(fmt.Sprintf("the error queue holds the message %s", sent.ID), "%s", failed[0].ID)
		}
		if why, want := failed[0].Headers.Get(headers.ExceptionMessage), core.ErrDeliveryCountExceeded.Error(); !strings.Contains(why, want) {
			t.fail(fmt.Sprintf("%s says why: %q", headers.ExceptionMessage, want), "%q", why)
		}
		t.wantLeft(w.queue, "after the message was moved to the error queue")
	}},
	{rule: "R35", title: "a message that kills its process moves no other message to the error queue", modes: withLeases, needs: []need{processes, nativeCount}, run: func(t *caseT) {
		t.handlePoisonMessage(1)
	}},
	{rule: "R35", title: "a message that kills three processes in turn moves no other message to the error queue", modes: withLeases, needs: []need{processes, nativeCount}, run: func(t *caseT) {
		t.handlePoisonMessage(3)
	}},
}

// handlePoisonMessage lets processes handle messages, one of which ends its process, and
// restarts each process that has ended.
func (t *caseT) handlePoisonMessage(processes int) {
	const healthy = 60
	w := t.workerFixture(8)
	w.MaxDeliveries, w.Pause = 5, 20*time.Millisecond
	sender := t.open()
	deadly := t.command(w.queue, workType, "deadly")
	w.Poison = deadly.ID
	t.send(sender, deadly)
	bodies := map[string]bool{}
	var out []core.Outgoing
	for i := range healthy {
		body := fmt.Sprintf("body %d", i)
		bodies[body] = true
		out = append(out, t.command(w.queue, workType, body))
	}
	t.send(sender, out...)

	forwarded, moved := t.receiver(t.open(), w.forward, healthy), t.receiver(t.open(), w.ErrorQueue, 1+healthy)
	failed := map[string]*core.Incoming{}
	arrived := func(in *core.Incoming) bool {
		delete(bodies, string(in.Body))
		return false
	}
	given := func(in *core.Incoming) bool {
		failed[in.ID] = in
		return false
	}
	expected := fmt.Sprintf("with MaxDeliveries %d a message that kills its process does so %d times at most, and then goes to the error queue", w.MaxDeliveries, w.MaxDeliveries)
	crashed := 0
	var running []*workerProcess
	for range processes {
		running = append(running, t.startWorker(w.workerSpec))
	}
	const moment = 10 * time.Millisecond
	last := time.Now()
	for len(bodies) > 0 && len(bodies)+1 > len(failed) || failed[deadly.ID] == nil {
		for i, p := range running {
			_, err := p.next(moment)
			if errors.Is(err, errEnded) {
				if crashed++; crashed > w.MaxDeliveries {
					t.stop(expected, "it has killed %d: %s", crashed, p.exitReport())
				}
				running[i] = t.startWorker(w.workerSpec)
				err = nil
			}
			if err == nil {
				last = time.Now()
			}
		}
		forwarded.collect(moment, arrived)
		moved.collect(moment, given)
		if time.Since(last) > t.redeliveryTimeout()+10*time.Second { // a new copy is delayed
			break
		}
	}
	why := failed[deadly.ID]
	if len(bodies) == 0 && len(failed) == 1 && why != nil {
		for _, p := range running {
			var err error
			for err == nil {
				_, err = p.next(t.quietPeriod())
			}
			if errors.Is(err, errEnded) { // the process killed last
				crashed++
			} else {
				p.shutdown()
			}
		}
		moved.collect(t.quietPeriod(), given)
	}
	if len(bodies) > 0 || len(failed) != 1 || why == nil {
		t.stop(fmt.Sprintf("of %d messages the one that kills its process goes to the error queue, and no other does: a message that was delivered several times is attempted alone, so a receiver has no more than MaxInFlight in flight", 1+healthy),
			"%d others were not handled, and the error queue got %d, after %d crashes", len(bodies), len(failed), crashed)
	}
	if text, want := why.Headers.Get(headers.ExceptionMessage), core.ErrDeliveryCountExceeded.Error(); !strings.Contains(text, want) {
		t.fail(fmt.Sprintf("%s says why: %q", headers.ExceptionMessage, want), "%q", text)
	}
	if crashed > w.MaxDeliveries {
		t.fail(expected, "it has killed %d", crashed)
	}
	t.measure("processes that one message killed, with MaxDeliveries 5", float64(crashed))
	t.wantLeft(w.queue, "after all was handled or moved")
}

// handles reports whether the process handles a message; if not, the message is in the
// error queue.
func (p *workerProcess) handles(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		e, err := p.next(p.t.quietPeriod())
		switch {
		case err == nil && e.Kind == isHandling:
			return true
		case err == nil && e.Kind == hasSettled: // where the move was not a commit
			return false
		case errors.Is(err, errEnded):
			p.t.stop("a process of an endpoint handles a message", "it has ended before: %s", p.exitReport())
		case time.Now().After(deadline):
			p.t.stop("a message is redelivered after the process that handled it was killed", "the next process neither handled nor moved it within %v", limit)
		}
	}
}
