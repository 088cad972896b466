package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// The recoverability of the endpoints. An order that always fails is attempted attempts
// times, in rounds rounds.
const (
	immediateRetries = 2
	delayedRetries   = 2
	rounds           = delayedRetries + 1
	attempts         = (immediateRetries + 1) * rounds

	delayIncrease = time.Second
	longestDelay  = delayedRetries * delayIncrease
)

// A promise is checked by the run.
type promise struct {
	text  string
	rules string // in docs/adapter-rules.md and docs/recoverability.md
}

var (
	promiseHandled   = promise{"every accepted order is handled", "C2, C7, R25, R27"}
	promiseSends     = promise{"every handled order's command and event are handled", "C2, C19, R20"}
	promiseExact     = promise{"in SendsAtomicWithReceive the rows of an order, of its command and of its event are there exactly once, and none of a failed order", "C12, R20"}
	promiseMoved     = promise{"every order that always fails is in the error queue", "R1, R23, R25"}
	promiseMovedOnce = promise{"in SendsAtomicWithReceive it is there exactly once", "C12, R7"}
	promiseHealthy   = promise{"no other order is in the error queue", "R1, R34"}
	promiseAttempts  = promise{"an order is moved after all its rounds of attempts", "R1, R2, R3, C9"}
	promiseOrder     = promise{"in queues that keep groups, the orders, commands and events of a group are handled in their order", "C24, R61"}
	promiseNothing   = promise{"nothing is left in a queue, and nothing is there that was not sent", "C7, C14, R28"}
	promiseRuns      = promise{"no fault ends an endpoint that runs", "C15"}
	promiseRecovers  = promise{"messages are handled again after every fault", "C15"}
	promiseShutdown  = promise{"a worker that is asked to end does so in order", "R27, C14"}
	promiseSecrets   = promise{"no log has the password", "C21"}
)

// A finding says whether one promise was kept. It was broken if there are ids or texts.
type finding struct {
	promise promise
	ids     []int    // of orders
	details []string // about the first of these orders
	texts   []string // about problems that do not concern a single order
}

func (f *finding) isBroken() bool { return len(f.ids)+len(f.texts) > 0 }

// shownIDs is the largest number of ids, and shownDetails the largest number of described
// orders, that String returns.
const (
	shownIDs     = 20
	shownDetails = 5
)

// String returns a line that says whether the promise was kept, and the ids and texts if
// it was not.
func (f *finding) String() string {
	if !f.isBroken() {
		return fmt.Sprintf("kept    %s (%s)", f.promise.text, f.promise.rules)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "BROKEN  %s (%s)", f.promise.text, f.promise.rules)
	if len(f.ids) > 0 {
		fmt.Fprintf(&b, "\n        not so for %d orders: %s", len(f.ids), strings.Trim(fmt.Sprint(f.ids[:min(shownIDs, len(f.ids))]), "[]"))
		if len(f.ids) > shownIDs {
			b.WriteString(" ...")
		}
		for _, detail := range f.details {
			b.WriteString("\n        " + detail)
		}
	}
	for i, text := range f.texts {
		if i == shownIDs {
			fmt.Fprintf(&b, "\n        and %d more", len(f.texts)-i)
			break
		}
		b.WriteString("\n        " + text)
	}
	return b.String()
}

// guarantees has the promises that a transport makes.
type guarantees struct {
	mode        core.TransactionMode
	nativeCount bool // core.Capabilities.NativeDeliveryCount
	ordered     bool // queues keep groups in order (core.Capabilities.GroupOrder)
}

// orderedSuffix is the suffix of the names of queues and topics that keep groups in order.
// Amazon requires it; Service Bus accepts any name.
const orderedSuffix = ".fifo"

// queue returns the queue of a stage, which is also the name of its endpoint.
func (g guarantees) queue(s stage) string { return s.String() + g.suffix() }

// messageType returns the type of the messages for a stage. The type of an event is a topic.
func (g guarantees) messageType(s stage) string {
	if s == notices {
		return types[s] + g.suffix()
	}
	return types[s]
}

func (g guarantees) suffix() string {
	if g.ordered {
		return orderedSuffix
	}
	return ""
}

func (g guarantees) isAtomic() bool { return g.mode == core.TransactionSendsAtomicWithReceive }

// verdict compares the orders that were sent with the reports of the workers, the rows and
// the error queue, promise by promise.
func (l *ledger) verdict(g guarantees) []finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	byOrder := []struct {
		promise promise
		applies bool
		keeps   func(o *order, fails bool) bool
	}{
		{promiseHandled, true, func(o *order, fails bool) bool { return fails || !o.accepted || o.handled[orders] > 0 }},
		{promiseSends, true, func(o *order, fails bool) bool { return fails || o.handled[orders] == 0 || o.isComplete() }},
		{promiseExact, g.isAtomic(), rowsAreExact},
		{promiseMoved, true, func(o *order, fails bool) bool { return !fails || !o.accepted || len(o.moved) > 0 }},
		{promiseMovedOnce, g.isAtomic(), func(o *order, fails bool) bool { return !fails || o.doubtful || len(o.moved) <= 1 }},
		{promiseHealthy, true, func(o *order, fails bool) bool { return fails || len(o.moved) == 0 }},
		{promiseAttempts, true, func(o *order, fails bool) bool { return !fails || g.attemptsAreRight(o) }},
	}
	var all []finding
	for _, check := range byOrder {
		if !check.applies {
			continue
		}
		f := finding{promise: check.promise}
		for id := range l.orders {
			if !check.keeps(&l.orders[id], alwaysFails(id)) {
				f.ids = append(f.ids, id)
				if len(f.ids) <= shownDetails {
					f.details = append(f.details, fmt.Sprintf("order %d: %v", id, &l.orders[id]))
				}
			}
		}
		all = append(all, f)
	}
	if g.ordered {
		f := finding{promise: promiseOrder}
		for id := range l.disorderLocked() {
			f.ids = append(f.ids, id)
			if len(f.ids) <= shownDetails {
				f.details = append(f.details, fmt.Sprintf("order %d: %v", id, &l.orders[id]))
			}
		}
		all = append(all, f)
	}
	return append(all,
		finding{promise: promiseNothing, texts: l.remainsLocked()},
		finding{promise: promiseRuns, texts: slices.Concat(l.ended, l.deaths)},
		finding{promise: promiseRecovers, texts: l.stalled},
		finding{promise: promiseShutdown, texts: l.failedEnds},
		finding{promise: promiseSecrets, texts: l.leaks},
	)
}

// disorderLocked yields the orders that a stage handled before an earlier order of their
// group. A redelivered message may be handled again later.
func (l *ledger) disorderLocked() iter.Seq[int] {
	return func(yield func(int) bool) {
		var latest [stages]map[int]time.Time // by group
		for s := range latest {
			latest[s] = map[int]time.Time{}
		}
		for id := range l.orders {
			o, early := &l.orders[id], false
			for s, at := range o.first {
				if at.IsZero() {
					continue // it was never handled
				}
				early = early || at.Before(latest[s][o.group])
				latest[s][o.group] = at
			}
			if early && !yield(id) {
				return
			}
		}
	}
}

// rowsAreExact reports whether each stage has one row for an order that was handled, and none
// for an order that failed. An order that was perhaps sent twice may have more rows.
func rowsAreExact(o *order, fails bool) bool {
	for _, n := range o.rows {
		switch {
		case fails && n > 0:
			return false
		case !fails && o.accepted && n == 0:
			return false
		case n > 1 && !o.doubtful:
			return false
		}
	}
	return true
}

// attemptsAreRight reports whether each copy in the error queue came from the queue of orders
// and went through every round, and whether each round was long enough, by the broker's
// count. A delivery to a worker that is killed counts without a run of the handler. So the
// broker counts at least as many attempts as there were runs, unless the count is part of a
// transaction. A message that keeps its place because of its group cannot carry its rounds
// with it: only its last round is known.
func (g guarantees) attemptsAreRight(o *order) bool {
	counted := 0
	for _, c := range o.moved {
		if !c.fromOrders || len(c.rounds) != rounds && !g.ordered || len(c.rounds) == 0 {
			return false
		}
		for _, r := range c.rounds {
			if g.nativeCount && r.Attempts < immediateRetries+1 {
				return false
			}
			counted += r.Attempts
		}
	}
	if len(o.moved) == 0 || !g.nativeCount || g.isAtomic() || g.ordered {
		return true // promiseMoved covers an order that is not there
	}
	return counted >= o.began
}

func (l *ledger) remainsLocked() (texts []string) {
	for _, queue := range slices.Sorted(maps.Keys(l.left)) {
		if n := l.left[queue]; n > 0 {
			texts = append(texts, fmt.Sprintf("%q still has %d messages", queue, n))
		}
	}
	for _, f := range l.strange {
		texts = append(texts, fmt.Sprintf("%v has handled order %d, which was not sent", f.stage, f.id))
	}
	if l.unread > 0 {
		texts = append(texts, fmt.Sprintf("the error queue has %d messages that are no orders", l.unread))
	}
	return texts
}

// counts are figures of a run that do not break a promise.
type counts struct {
	orders    int
	handled   int // handler runs that ended without an error
	failures  int // failed attempts
	repeated  [stages]int
	doubtful  int
	failing   int // orders that always fail
	movedMore int // the number of these that are in the error queue more than once
	asOften   int // the number of these with exactly as many attempts as configured
	fewest    int
	max       int
	refused   int // starts of workers
}

// counts returns the figures of the run.
func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{orders: l.accepted, handled: l.completed, failures: l.attempts, refused: l.refused}
	for id := range l.orders {
		o := &l.orders[id]
		if o.doubtful {
			c.doubtful++
		}
		for s, n := range o.handled {
			if n > 1 {
				c.repeated[s]++
			}
		}
		if !alwaysFails(id) {
			continue
		}
		if c.failing == 0 {
			c.fewest = o.began
		}
		c.failing++
		c.fewest, c.max = min(c.fewest, o.began), max(c.max, o.began)
		if o.began == attempts {
			c.asOften++
		}
		if len(o.moved) > 1 {
			c.movedMore++
		}
	}
	return c
}
