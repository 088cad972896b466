package suite

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Processes that a case starts, and kills as kill -9 does. They run an endpoint, or send.

// workerProcess is a process started by a case.
type workerProcess struct {
	process
	t      *caseT
	events []event // all events returned by next
}

// startWorker starts a process, which is killed at the end of the case.
func (t *caseT) startWorker(spec workerSpec) *workerProcess {
	spec.Mode = t.mode
	p := t.suite.h.process(t, spec)
	t.Cleanup(p.kill)
	return &workerProcess{process: p, t: t}
}

func (p *workerProcess) next(limit time.Duration) (event, error) {
	e, err := p.process.next(limit)
	if err == nil {
		p.t.recordProgress()
		p.events = append(p.events, e)
	}
	return e, err
}

// awaitEvent waits for an event of the process.
func (p *workerProcess) awaitEvent(kind eventKind, limit time.Duration) {
	deadline := time.Now().Add(limit)
	for {
		e, err := p.next(time.Until(deadline))
		switch {
		case errors.Is(err, errEnded):
			p.t.stop(fmt.Sprintf("a process of an endpoint %s", kind), "it has ended: %s", p.exitReport())
		case err != nil:
			p.kill()
			p.t.stop(fmt.Sprintf("a process of an endpoint %s", kind), "it does not within %v; its output until it was killed: %s", limit, p.exitReport())
		case e.Kind == kind:
			return
		}
	}
}

// allEvents returns all events of a process that has ended.
func (p *workerProcess) allEvents() []event {
	for {
		if _, err := p.next(p.t.timeout()); err != nil {
			return p.events
		}
	}
}

// shutdown shuts the process down gracefully.
func (p *workerProcess) shutdown() {
	if err := p.stop(p.t.timeout()); err != nil {
		p.t.stop("a process of an endpoint ends without an error when it is asked to", "%v", err)
	}
}

// workerFixture is a workerSpec with its own queues, before its other fields are set.
type workerFixture struct {
	workerSpec
	queue, forward string
	optional       []string // bodies of messages that may be left: those of awaitNewHandled
}

func (t *caseT) workerFixture(concurrency int) *workerFixture {
	transport := t.open()
	w := &workerFixture{queue: t.queue(transport), forward: t.queue(transport)}
	w.workerSpec = workerSpec{Queue: w.queue, Forward: w.forward, ErrorQueue: t.queue(transport), Concurrency: concurrency}
	return w
}

// awaitNewHandled sends messages until the process handles one of them. The broker may
// have delivered the first ones to processes that have ended, without having noticed that
// they ended. On a slow machine some are left in the queue.
func (t *caseT) awaitNewHandled(p *workerProcess, sender core.Transport, w *workerFixture) {
	expected := "a process of an endpoint handles one of the messages that are sent after its start"
	sent := map[string]bool{}
	for deadline := time.Now().Add(t.timeout()); ; {
		m := t.command(w.queue, workType, fmt.Sprint("after all others, ", len(sent)))
		sent[m.ID] = true
		w.optional = append(w.optional, string(m.Body))
		t.send(sender, m)
		for {
			e, err := p.next(max(t.quietPeriod(), time.Second))
			switch {
			case errors.Is(err, errEnded):
				t.stop(expected, "it has ended: %s", p.exitReport())
			case err == nil && e.Kind == isHandling && sent[e.ID]:
				return
			case err == nil:
				continue
			case time.Now().After(deadline):
				p.kill()
				t.stop(expected, "it does not within %v; its output until it was killed: %s", t.timeout(), p.exitReport())
			}
			break
		}
	}
}

// wantDrained checks that a worker's queues are empty. Messages that may be delivered
// twice may be so at the end, too.
func (t *caseT) wantDrained(w *workerFixture) {
	if !t.caps.MayDuplicate {
		t.wantContents(w.queue, "messages that the case sent at its end", nil, w.optional)
	}
	t.wantLeft(w.ErrorQueue, "the error queue, after all was handled without a failure")
}

const (
	killRounds   = 8
	killMessages = 300
)

// killAtRandom lets processes handle many messages and forward each of them. It kills the
// processes one after the other, half of them during a settlement.
func (t *caseT) killAtRandom() {
	w := t.workerFixture(4)
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
	count := func(p *workerProcess) {
		for _, e := range p.allEvents() {
			if e.Kind == isHandling {
				handled[e.ID]++
			}
		}
	}
	for round := range killRounds {
		p := t.startWorker(w.workerSpec)
		p.awaitEvent(isReady, t.timeout())
		moment := []eventKind{isHandling, isSettling}[round%2]
		for n := 1 + t.random.IntN(30); n > 0; {
			e, err := p.next(max(t.quietPeriod(), 2*time.Second))
			if err != nil {
				break // the remaining messages are still locked by processes killed before
			}
			if e.Kind == moment {
				n--
			}
		}
		if moment == isHandling {
			t.sleep(time.Duration(t.random.IntN(2000)) * time.Microsecond)
		} else { // between the send and the settlement
			t.sleep(time.Duration(t.random.IntN(300)) * time.Microsecond)
		}
		p.kill()
		count(p)
	}
	last := t.startWorker(w.workerSpec)
	last.awaitEvent(isReady, t.timeout())

	arrived := map[string]int{}
	seen := func(in *core.Incoming) bool {
		arrived[string(in.Body)]++
		return len(arrived) == killMessages
	}
	forwarded := t.receiverIn(t.caps.HighestTransaction(), t.open(), w.forward, 64)
	if t.mode != core.TransactionNone {
		for before := -1; len(arrived) > before && len(arrived) < killMessages; { // as long as more arrive, however slowly
			before = len(arrived)
			forwarded.collect(t.redeliveryTimeout(), seen)
		}
		t.sleep(t.lock()) // until all held messages are redelivered, if they are
	}
	if t.mode == core.TransactionNone { // lost messages never arrive, but messages sent now are processed
		t.awaitNewHandled(last, sender, w)
	}
	for err := error(nil); err == nil; { // until the last process has no more messages
		_, err = last.next(max(t.quietPeriod(), time.Second))
	}
	last.shutdown()
	count(last)
	forwarded.collect(max(t.quietPeriod(), time.Second), func(in *core.Incoming) bool { seen(in); return false })
	forwarded.close()

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
		t.fail(fmt.Sprintf("%d messages are handled, and one is forwarded for each, although %d processes are killed at the same time", killMessages, killRounds),
			"nothing was forwarded for %d", lost)
	}
	if t.mode == core.TransactionSendsAtomicWithReceive && duplicates > 0 && !t.caps.MayDuplicate {
		t.fail("in SendsAtomicWithReceive a handler's message arrives once, although its process may be killed at any moment", "%d of %d arrived again", duplicates, killMessages)
	}
	t.wantDrained(w)
}
