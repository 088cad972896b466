package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// The fate of messages when processes are killed. A case starts processes that run an
// endpoint, or send, and kills them as kill -9 does.

var processCases = []testCase{
	{rule: "C7", title: "what a killed process had handled but not settled comes again", in: givingBack, needs: []need{processes}, run: func(t *trial) {
		w := t.workplace(4)
		sent := t.command(w.queue, workType, "work")
		t.send(t.open(), sent)
		w.HoldSettlement = true
		first := t.start(w.job)
		first.until(isSettling, t.patience())
		first.kill()
		w.HoldSettlement = false
		second := t.start(w.job)
		second.until(hasSettled, t.comesAgain())
		t.rest(t.quiet()) // so that a third delivery would be noticed
		second.shut()
		copies := len(t.contents(w.forward, 1))
		switch {
		case copies == 0, copies > 1 && t.mode == core.TransactionSendsAtomicWithReceive && !t.caps.MayDuplicate:
			t.fail(fmt.Sprintf("the message is handled again by the next process, and what the handler sends arrives: %s", t.oftenAs()), "it arrived %d times", copies)
		case copies > 1:
			t.note("what the handler sent arrived %d times", copies)
		}
		t.nothingLeft(w)
	}},
	{rule: "C7", title: "what a killed process was handling in None does not come again", in: inNone, needs: []need{processes}, run: func(t *trial) {
		w := t.workplace(1)
		t.send(t.open(), t.command(w.queue, workType, "work"))
		w.HoldSettlement = true
		first := t.start(w.job)
		first.until(isSettling, t.patience())
		first.kill()
		w.HoldSettlement = false
		second := t.start(w.job)
		second.until(isReady, t.patience())
		t.rest(min(t.lock(), t.quiet()) + t.quiet())
		second.shut()
		for _, e := range second.all() {
			if e.What == isHandling && !t.caps.MayDuplicate {
				t.fail("in None a message is consumed before it is handed out, so that the next process does not get it", "the next process handled it")
			}
		}
		t.note("of a message that was handled in None when its process was killed, %d of 1 sent messages arrived", len(t.contents(w.forward, 0)))
		t.nothingLeft(w)
	}},
	{rule: "C7", title: "nothing is lost when processes are killed at random", in: inReceiveOnly, needs: []need{processes}, run: func(t *trial) {
		t.killAtRandom()
	}},
	{rule: "C7", title: "nothing comes twice in None when processes are killed at random", in: inNone, needs: []need{processes}, run: func(t *trial) {
		t.killAtRandom()
	}},
	{rule: "C12", title: "nothing is lost or doubled when processes are killed at random", in: inAtomic, needs: []need{processes}, run: func(t *trial) {
		t.killAtRandom()
	}},
	{rule: "C2", title: "what Send had accepted is there when its process was killed", in: once, needs: []need{processes}, run: func(t *trial) {
		queue := t.queue(t.open())
		accepted := map[string]bool{}
		for range 3 {
			p := t.start(job{To: queue, Prefix: t.id(), Count: 100})
			for range 1 + t.random.IntN(40) {
				p.until(hasSent, t.patience())
			}
			p.kill()
			for _, e := range p.all() {
				accepted[e.ID] = true
			}
		}
		for _, in := range t.contents(queue, len(accepted)) {
			delete(accepted, in.ID)
		}
		if len(accepted) > 0 {
			t.fail("the queue holds every message for which Send returned nil before its process was killed", "%d are missing", len(accepted))
		}
	}},
	// In SendsAtomicWithReceive without AtomicLeases a crash may roll back the count.
	{rule: "R34", title: "what kills its process goes to the error queue", in: leasing, needs: []need{processes, nativeCount}, run: func(t *trial) {
		w := t.workplace(1)
		w.Then, w.MaxDeliveries = crashes, 2
		sent := t.command(w.queue, workType, "deadly")
		transport := t.open()
		t.send(transport, sent)
		runs, most := 0, w.MaxDeliveries
		newCopies := 0
		if t.caps.CountsReleases {
			newCopies = 1
		}
		// The count may rise by more than one at a time, but not by less than one.
		for ; runs <= most; runs++ {
			p := t.start(w.job)
			handles := p.handles(t.comesAgain())
			for ; !handles && newCopies > 0; newCopies-- {
				handles = p.handles(t.comesAgain())
			}
			if !handles {
				break
			}
			p.kill()
		}
		expected := fmt.Sprintf("with MaxDeliveries %d a message that kills its process is given to a handler %d times, then moved to the error queue", w.MaxDeliveries, most)
		switch {
		case runs > most:
			t.stop(expected, "the handler began %d times: the deliveries to the killed processes did not count", runs)
		case runs < most && !t.caps.CountsReleases, runs == 0:
			t.fail(expected, "the handler began %d times", runs)
		}
		failed := t.contents(w.ErrorQueue, 1)
		if len(failed) == 0 || len(failed) > 1 && !t.caps.MayDuplicate {
			t.stop(expected, "the error queue holds %d messages", len(failed))
		}
		if failed[0].ID != sent.ID {
			t.fail(fmt.Sprintf("the error queue holds the message %s", sent.ID), "%s", failed[0].ID)
		}
		if why, want := failed[0].Headers.Get(core.HeaderExceptionMessage), core.ErrDeliveryCountExceeded.Error(); !strings.Contains(why, want) {
			t.fail(fmt.Sprintf("%s says why: %q", core.HeaderExceptionMessage, want), "%q", why)
		}
		t.left(w.queue, "after the message was moved to the error queue")
	}},
	{rule: "R35", title: "what kills its process takes no other message along", in: leasing, needs: []need{processes, nativeCount}, run: func(t *trial) {
		t.besideDeadly(1)
	}},
	{rule: "R35", title: "what kills three processes in turn takes no other message along", in: leasing, needs: []need{processes, nativeCount}, run: func(t *trial) {
		t.besideDeadly(3)
	}},
	{rule: "C9", title: "a delivery after its process was killed counts", in: leasing, needs: []need{processes, nativeCount}, run: func(t *trial) {
		w := t.workplace(1)
		w.Then = blocks
		transport := t.open()
		t.send(transport, t.command(w.queue, workType, "work"))
		p := t.start(w.job)
		p.until(isHandling, t.patience())
		p.kill()
		var in *core.Incoming
		t.receiver(transport, w.queue, 1).collect(t.comesAgain(), func(next *core.Incoming) bool {
			in = next
			return true
		})
		if in == nil {
			t.stop("a message comes again after the process that handled it was killed", "it did not within %v", t.comesAgain())
		}
		if in.DeliveryCount < 2 {
			t.fail("NativeDeliveryCount is claimed, so the delivery to the process that was killed counts: DeliveryCount is 2, or more", "%d", in.DeliveryCount)
		}
		if !in.Redelivered {
			t.fail("Redelivered is true after the message was delivered to a process that was killed", "false, with DeliveryCount %d", in.DeliveryCount)
		}
	}},
	{rule: "C13", title: "a delayed message outlives the process that sent it", in: once, needs: []need{processes, delays}, run: func(t *trial) {
		queue := t.queue(t.open())
		delay := 2*t.caps.DelayPrecision + time.Second
		if t.caps.MaxDelay > 0 {
			delay = min(delay, t.caps.MaxDelay)
		}
		start := time.Now()
		p := t.start(job{To: queue, Prefix: t.id(), Count: 1, Delay: delay})
		p.until(hasSent, t.patience())
		sent := time.Now()
		p.kill()
		latest := delay + t.caps.DelayPrecision + t.suite.h.DelayTolerance
		var arrived time.Time
		t.receiver(t.open(), queue, 1).collect(latest+t.patience(), func(*core.Incoming) bool {
			arrived = time.Now()
			return true
		})
		switch after := arrived.Sub(sent); {
		case arrived.IsZero():
			t.fail(fmt.Sprintf("a message sent with a delay of %v arrives, although its sender was killed meanwhile", delay), "it did not within %v", latest+t.patience())
		case arrived.Sub(start) < delay:
			t.fail(fmt.Sprintf("a message sent with a delay of %v does not arrive before", delay), "after %v", arrived.Sub(start))
		case after > latest:
			t.fail(fmt.Sprintf("a message sent with a delay of %v arrives within %v, although its sender was killed meanwhile", delay, latest), "after %v", after)
		}
	}},
}

// besideDeadly lets processes handle messages, one of which ends its process, and
// restarts each process that has ended.
func (t *trial) besideDeadly(processes int) {
	const healthy = 60
	w := t.workplace(16)
	w.MaxDeliveries, w.Pause = 5, 20*time.Millisecond
	sender := t.open()
	deadly := t.command(w.queue, workType, "deadly")
	w.Deadly = deadly.ID
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
	var running []*running
	for range processes {
		running = append(running, t.start(w.job))
	}
	const moment = 10 * time.Millisecond
	last := time.Now()
	for len(bodies) > 0 && len(bodies)+1 > len(failed) || failed[deadly.ID] == nil {
		for i, p := range running {
			_, err := p.next(moment)
			if errors.Is(err, errEnded) {
				if crashed++; crashed > w.MaxDeliveries {
					t.stop(expected, "it has killed %d: %s", crashed, p.remains())
				}
				running[i] = t.start(w.job)
				err = nil
			}
			if err == nil {
				last = time.Now()
			}
		}
		forwarded.collect(moment, arrived)
		moved.collect(moment, given)
		if time.Since(last) > t.comesAgain()+10*time.Second { // a new copy is delayed
			break
		}
	}
	why := failed[deadly.ID]
	if len(bodies) == 0 && len(failed) == 1 && why != nil {
		for _, p := range running {
			var err error
			for err == nil {
				_, err = p.next(t.quiet())
			}
			if errors.Is(err, errEnded) { // the process killed last
				crashed++
			} else {
				p.shut()
			}
		}
		moved.collect(t.quiet(), given)
	}
	if len(bodies) > 0 || len(failed) != 1 || why == nil {
		t.stop(fmt.Sprintf("of %d messages the one that kills its process goes to the error queue, alone: what was delivered several times is attempted with nothing beside it, so a receiver holds no more than MaxInFlight", 1+healthy),
			"%d others were not handled, and the error queue got %d, after %d crashes", len(bodies), len(failed), crashed)
	}
	if text, want := why.Headers.Get(core.HeaderExceptionMessage), core.ErrDeliveryCountExceeded.Error(); !strings.Contains(text, want) {
		t.fail(fmt.Sprintf("%s says why: %q", core.HeaderExceptionMessage, want), "%q", text)
	}
	if crashed > w.MaxDeliveries {
		t.fail(expected, "it has killed %d", crashed)
	}
	t.measure("processes that one message killed, with MaxDeliveries 5", float64(crashed))
	t.left(w.queue, "after all was handled or moved")
}

// workplace is a job with its own queues, before its other fields are set.
type workplace struct {
	job
	queue, forward string
}

func (t *trial) workplace(concurrency int) *workplace {
	transport := t.open()
	w := &workplace{queue: t.queue(transport), forward: t.queue(transport)}
	w.job = job{Queue: w.queue, Forward: w.forward, ErrorQueue: t.queue(transport), Concurrency: concurrency}
	return w
}

// untilHandlesNew sends messages until the process handles one of them. The broker may
// have delivered the first ones to processes that have ended, without having noticed that
// they ended.
func (t *trial) untilHandlesNew(p *running, sender core.Transport, queue string) {
	expected := "a process of an endpoint handles one of the messages that are sent after its start"
	sent := map[string]bool{}
	for deadline := time.Now().Add(t.patience()); ; {
		m := t.command(queue, workType, "after all others")
		sent[m.ID] = true
		t.send(sender, m)
		for {
			e, err := p.next(max(t.quiet(), time.Second))
			switch {
			case errors.Is(err, errEnded):
				t.stop(expected, "it has ended: %s", p.remains())
			case err == nil && e.What == isHandling && sent[e.ID]:
				return
			case err == nil:
				continue
			case time.Now().After(deadline):
				p.kill()
				t.stop(expected, "it does not within %v; what it left when it was killed: %s", t.patience(), p.remains())
			}
			break
		}
	}
}

// oftenAs says how often messages that a handler sends arrive after a crash.
func (t *trial) oftenAs() string {
	if t.mode == core.TransactionSendsAtomicWithReceive && !t.caps.MayDuplicate {
		return "once in SendsAtomicWithReceive"
	}
	return "once or more"
}

// nothingLeft checks that a job's queues are empty. Messages that may be delivered twice
// may be so at the end, too.
func (t *trial) nothingLeft(w *workplace) {
	if !t.caps.MayDuplicate {
		t.left(w.queue, "after all was handled")
	}
	t.left(w.ErrorQueue, "the error queue, after all was handled without a failure")
}

// comesAgain returns the time in which messages held by a killed process are redelivered.
func (t *trial) comesAgain() time.Duration { return t.patience() + t.lock() }

// handles reports whether the process handles a message; if not, the message is in the
// error queue.
func (p *running) handles(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		e, err := p.next(p.t.quiet())
		switch {
		case err == nil && e.What == isHandling:
			return true
		case err == nil && e.What == hasSettled: // where the move was not a commit
			return false
		case errors.Is(err, errEnded):
			p.t.stop("a process of an endpoint handles a message", "it has ended before: %s", p.remains())
		case time.Now().After(deadline):
			p.t.stop("a message comes again after the process that handled it was killed", "the next process neither handled nor moved it within %v", limit)
		}
	}
}

const (
	killRounds   = 8
	killMessages = 300
)

// killAtRandom lets processes handle many messages and forward each of them. It kills the
// processes one after the other, half of them during a settlement.
func (t *trial) killAtRandom() {
	w := t.workplace(4)
	w.Pause = 5 * time.Millisecond
	sender := t.open()
	bodies := make([]string, killMessages)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("body %d", i)
	}
	for first := 0; first < killMessages; first += 50 {
		var out []core.Outgoing
		for _, body := range bodies[first : first+50] {
			out = append(out, t.command(w.queue, workType, body))
		}
		t.send(sender, out...)
	}
	handled := map[string]int{}
	count := func(p *running) {
		for _, e := range p.all() {
			if e.What == isHandling {
				handled[e.ID]++
			}
		}
	}
	for round := range killRounds {
		p := t.start(w.job)
		p.until(isReady, t.patience())
		moment := []happening{isHandling, isSettling}[round%2]
		for n := 1 + t.random.IntN(30); n > 0; {
			e, err := p.next(max(t.quiet(), 2*time.Second))
			if err != nil {
				break // the remaining messages are still locked by processes killed before
			}
			if e.What == moment {
				n--
			}
		}
		if moment == isHandling {
			t.rest(time.Duration(t.random.IntN(2000)) * time.Microsecond)
		} else { // between the send and the settlement
			t.rest(time.Duration(t.random.IntN(300)) * time.Microsecond)
		}
		p.kill()
		count(p)
	}
	last := t.start(w.job)
	last.until(isReady, t.patience())

	arrived := map[string]int{}
	seen := func(in *core.Incoming) bool {
		arrived[string(in.Body)]++
		return len(arrived) == killMessages
	}
	forwarded := t.receiverIn(t.caps.HighestTransaction(), t.open(), w.forward, 64)
	if t.mode != core.TransactionNone {
		for before := -1; len(arrived) > before && len(arrived) < killMessages; { // as long as more arrive, however slowly
			before = len(arrived)
			forwarded.collect(t.comesAgain(), seen)
		}
		t.rest(t.lock()) // until all held messages are redelivered, if they are
	}
	if t.mode == core.TransactionNone { // lost messages never arrive, but messages sent now are processed
		t.untilHandlesNew(last, sender, w.queue)
	}
	for err := error(nil); err == nil; { // until the last process has no more messages
		_, err = last.next(max(t.quiet(), time.Second))
	}
	last.shut()
	count(last)
	forwarded.collect(max(t.quiet(), time.Second), func(in *core.Incoming) bool { seen(in); return false })
	forwarded.shut()

	duplicates, lost, twice := 0, 0, 0
	for _, body := range bodies {
		if n := arrived[body]; n == 0 {
			lost++
		} else {
			duplicates += n - 1
		}
	}
	for _, n := range handled {
		twice += n - 1
	}
	t.measure("duplicates after killed processes", float64(duplicates))
	switch {
	case t.mode == core.TransactionNone:
		t.measure("losses after killed processes", float64(lost))
		t.note("%d of %d messages were lost with %d killed processes", lost, killMessages, killRounds)
		if twice+duplicates > 0 && !t.caps.MayDuplicate {
			t.fail("in None a message is consumed before it is handed out, so that none is handled twice", "%d were handled again after their process was killed", twice)
		}
	case lost > 0:
		t.fail(fmt.Sprintf("%d messages are handled, and one is forwarded for each, although %d processes are killed meanwhile", killMessages, killRounds),
			"nothing was forwarded for %d", lost)
	}
	if t.mode == core.TransactionSendsAtomicWithReceive && duplicates > 0 && !t.caps.MayDuplicate {
		t.fail("in SendsAtomicWithReceive what a handler sends arrives once, although its process may be killed at any moment", "%d of %d arrived again", duplicates, killMessages)
	}
	t.nothingLeft(w)
}
