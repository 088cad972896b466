package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// failingOrder is the one of goodLedger that always fails.
const failingOrder = failEvery / 2

var (
	sendsAtomic = guarantees{core.TransactionSendsAtomicWithReceive, true, false}
	receiveOnly = guarantees{core.TransactionReceiveOnly, true, false}
	counting    = guarantees{core.TransactionReceiveOnly, false, false} // each process counts by itself
	inOrder     = guarantees{core.TransactionReceiveOnly, true, true}
)

// goodLedger returns the ledger of a run that kept every promise.
func goodLedger(t *testing.T) *ledger {
	t.Helper()
	l := newLedger()
	l.record(fact{kind: factReady})
	for range failingOrder + 20 {
		id, ok := l.open(failingOrder+20, len(l.orders)%4)
		if !ok {
			t.Fatal("there is no room for an order")
		}
		l.accept(id, false)
		if alwaysFails(id) {
			for range attempts {
				l.record(fact{kind: factBegan, id: id})
				l.record(fact{kind: factFailed, id: id})
			}
			l.addMoved(id, moved(3, 3, 3))
			continue
		}
		for s := range stages {
			l.record(fact{kind: factHandled, stage: s, id: id, at: time.Now()})
			l.addRow(s, id)
		}
	}
	if incomplete, _ := l.progress(); incomplete != 0 {
		t.Fatalf("%d orders are incomplete", incomplete)
	}
	return l
}

// moved returns a copy in the error queue, after rounds of as many attempts as given.
func moved(attempts ...int) movedCopy {
	c := movedCopy{fromOrders: true}
	for _, n := range attempts {
		c.rounds = append(c.rounds, headers.Round{Attempts: n})
	}
	return c
}

// broken returns the promises that a ledger says are broken.
func broken(l *ledger, g guarantees) (all []finding) {
	return slices.DeleteFunc(l.verdict(g), func(f finding) bool { return !f.isBroken() })
}

func TestVerdict_GoodLedgerBreaksNoPromise(t *testing.T) {
	for _, g := range []guarantees{sendsAtomic, receiveOnly, counting, inOrder} {
		if found := broken(goodLedger(t), g); len(found) > 0 {
			t.Errorf("%v: %v", g, &found[0])
		}
	}
}

func TestVerdict_WrongLedgerBreaksItsPromise(t *testing.T) {
	all := []guarantees{sendsAtomic, receiveOnly, counting, inOrder}
	for name, test := range map[string]struct {
		spoil      func(l *ledger)
		promises   []promise
		guarantees []guarantees
		id         int    // that is named; -1 for none
		text       string // that is shown
	}{
		"an order that was not handled": {
			func(l *ledger) { l.orders[7].handled = [stages]int{} },
			[]promise{promiseHandled}, all, 7, "order 7: accepted true",
		},
		"a command that was not handled": {
			func(l *ledger) { l.orders[8].handled[shipping] = 0 },
			[]promise{promiseSends}, all, 8, "handled [1 0 1]",
		},
		"an event that was not handled": {
			func(l *ledger) { l.orders[9].handled[notices] = 0 },
			[]promise{promiseSends}, all, 9, "handled [1 1 0]",
		},
		"a row that is missing": {
			func(l *ledger) { l.orders[10].rows[notices] = 0 },
			[]promise{promiseExact}, []guarantees{sendsAtomic}, 10, "rows [1 1 0]",
		},
		"a row that is there twice": {
			func(l *ledger) { l.addRow(shipping, 11) },
			[]promise{promiseExact}, []guarantees{sendsAtomic}, 11, "rows [1 2 1]",
		},
		"a row of an order that failed": {
			func(l *ledger) { l.addRow(orders, failingOrder) },
			[]promise{promiseExact}, []guarantees{sendsAtomic}, failingOrder, "rows [1 0 0]",
		},
		"a failed order that is nowhere": {
			func(l *ledger) { l.orders[failingOrder].moved = nil },
			[]promise{promiseMoved}, all, failingOrder, "",
		},
		"a failed order that was moved twice": {
			func(l *ledger) { l.addMoved(failingOrder, moved(3, 3, 3)) },
			[]promise{promiseMovedOnce}, []guarantees{sendsAtomic}, failingOrder, "",
		},
		"a healthy order in the error queue": {
			func(l *ledger) { l.addMoved(12, moved(3, 3, 3)) },
			[]promise{promiseHealthy}, all, 12, "",
		},
		"an order that was handled before an earlier one of its group": {
			func(l *ledger) { l.orders[13].first[orders] = l.orders[9].first[orders].Add(-time.Nanosecond) },
			[]promise{promiseOrder}, []guarantees{inOrder}, 13, "",
		},
		"an event that was handled before an earlier one of its group": {
			func(l *ledger) { l.orders[21].first[notices] = l.orders[17].first[notices].Add(-time.Nanosecond) },
			[]promise{promiseOrder}, []guarantees{inOrder}, 21, "",
		},
		"a round that is missing": {
			func(l *ledger) { l.orders[failingOrder].moved = []movedCopy{moved(3, 6)} },
			[]promise{promiseAttempts}, []guarantees{sendsAtomic, receiveOnly, counting}, failingOrder, "rounds of 3 6",
		},
		"a round that is too short": {
			func(l *ledger) { l.orders[failingOrder].moved = []movedCopy{moved(3, 2, 4)} },
			[]promise{promiseAttempts}, []guarantees{sendsAtomic, receiveOnly, inOrder}, failingOrder, "rounds of 3 2 4",
		},
		"an attempt that was not counted": {
			func(l *ledger) { l.record(fact{kind: factBegan, id: failingOrder}) },
			[]promise{promiseAttempts}, []guarantees{receiveOnly}, failingOrder, "attempts begun 10",
		},
		"a failed order from another queue": {
			func(l *ledger) { l.orders[failingOrder].moved[0].fromOrders = false },
			[]promise{promiseAttempts}, all, failingOrder, "",
		},
		"a message that is left": {
			func(l *ledger) { l.setLeft(map[string]int{"shipping": 1, "orders": 0}) },
			[]promise{promiseNothing}, all, -1, `"shipping" still has 1 messages`,
		},
		"an order that was never sent": {
			func(l *ledger) { l.record(fact{kind: factHandled, stage: shipping, id: 4711}) },
			[]promise{promiseNothing}, all, -1, "shipping has handled order 4711",
		},
		"a row of an order that was never sent": {
			func(l *ledger) { l.addRow(shipping, 4711) },
			[]promise{promiseNothing}, all, -1, "order 4711",
		},
		"something else in the error queue": {
			func(l *ledger) { l.addMoved(-1, movedCopy{}) },
			[]promise{promiseNothing}, all, -1, "the error queue has 1 messages",
		},
		"an endpoint that ended": {
			func(l *ledger) { l.record(fact{kind: factEnded, text: "connection reset"}) },
			[]promise{promiseRuns}, all, -1, "connection reset",
		},
		"a worker that died": {
			func(l *ledger) { l.addDeath("exit status 2") },
			[]promise{promiseRuns}, all, -1, "exit status 2",
		},
		"a fault without recovery": {
			func(l *ledger) { l.addStalled("nothing was handled") },
			[]promise{promiseRecovers}, all, -1, "nothing was handled",
		},
		"a worker that did not end in order": {
			func(l *ledger) { l.addFailedEnd("exit status 1") },
			[]promise{promiseShutdown}, all, -1, "exit status 1",
		},
		"a password in a log": {
			func(l *ledger) { l.addLeak("worker-1.log has the password") },
			[]promise{promiseSecrets}, all, -1, "worker-1.log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, g := range all {
				l := goodLedger(t)
				test.spoil(l)
				found := broken(l, g)
				if !slices.Contains(test.guarantees, g) {
					if len(found) > 0 {
						t.Errorf("%v: %v", g, &found[0])
					}
					continue
				}
				var promises []promise
				for i := range found {
					promises = append(promises, found[i].promise)
				}
				if !slices.Equal(promises, test.promises) {
					t.Fatalf("%v: broken are %q, want %q", g, promises, test.promises)
				}
				if test.id >= 0 && !slices.Equal(found[0].ids, []int{test.id}) {
					t.Errorf("%v: the ids are %v, want %d", g, found[0].ids, test.id)
				}
				if shown := found[0].String(); !strings.HasPrefix(shown, "BROKEN") || !strings.Contains(shown, test.text) {
					t.Errorf("%v: it is shown as %q, which does not have %q", g, shown, test.text)
				}
			}
		})
	}
}

// A sender that got no answer sends again, so that duplicates of its order are its own.
func TestVerdict_OrderOfUnknownSendMayBeDuplicated(t *testing.T) {
	l := goodLedger(t)
	l.accept(13, true)
	l.addRow(orders, 13)
	l.accept(failingOrder, true)
	l.addMoved(failingOrder, moved(3, 3, 3))
	if found := broken(l, sendsAtomic); len(found) > 0 {
		t.Error(&found[0])
	}
}

func TestVerdict_OrderThatWasNotAcceptedMayBeMissing(t *testing.T) {
	l := goodLedger(t)
	if _, ok := l.open(1, 0); !ok {
		t.Fatal("there is no room for an order")
	}
	if found := broken(l, sendsAtomic); len(found) > 0 {
		t.Error(&found[0])
	}
}

func TestVerdict_ManyIDsAreCut(t *testing.T) {
	l := goodLedger(t)
	for id := range 30 {
		l.orders[id].handled = [stages]int{}
	}
	found := broken(l, receiveOnly)
	if len(found) != 1 || len(found[0].ids) != 30 {
		t.Fatalf("broken is %v", found)
	}
	if shown := found[0].String(); !strings.Contains(shown, "30 orders: 0 1 2") || strings.Contains(shown, " 29") || strings.Count(shown, "\n        order ") != shownDetails {
		t.Errorf("it is shown as %q", shown)
	}
}

func TestCounts(t *testing.T) {
	l := goodLedger(t)
	l.record(fact{kind: factHandled, stage: shipping, id: 3})
	l.record(fact{kind: factHandled, stage: shipping, id: 4})
	l.record(fact{kind: factHandled, stage: shipping, id: 4})
	l.record(fact{kind: factBegan, id: failingOrder})
	l.record(fact{kind: factRefused})
	l.addMoved(failingOrder, moved(3, 3, 4))
	l.accept(5, true)
	want := counts{
		orders: failingOrder + 21, handled: 3*(failingOrder+19) + 3, failures: attempts, repeated: [stages]int{shipping: 2}, doubtful: 1,
		failing: 1, movedMore: 1, asOften: 0, fewest: attempts + 1, max: attempts + 1, refused: 1,
	}
	if got := l.counts(); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func TestLedger_OpenWaitsWhileTheWindowIsFull(t *testing.T) {
	l := newLedger()
	for range 2 {
		if _, ok := l.open(2, 0); !ok {
			t.Fatal("open returned false")
		}
	}
	opened := make(chan int)
	go func() {
		id, _ := l.open(2, 0)
		opened <- id
	}()
	for s := range stages {
		select {
		case id := <-opened:
			t.Fatalf("order %d was opened while two were incomplete", id)
		default:
		}
		l.record(fact{kind: factHandled, stage: s, id: 1})
	}
	if id := <-opened; id != 2 {
		t.Errorf("order %d was opened, want 2", id)
	}
	l.stop()
	if _, ok := l.open(2, 0); ok {
		t.Error("an order was opened after stop")
	}
}

func TestWatch_MeasuresRecoveryAndPause(t *testing.T) {
	l := goodLedger(t)
	began := time.Now()
	w := l.watch(began)
	handled := func(after time.Duration) {
		l.record(fact{kind: factHandled, id: 1, at: began.Add(after), took: 100 * time.Millisecond})
	}
	handled(-time.Second) // reported late
	handled(time.Second)
	handled(2 * time.Second)
	recovered, _ := w.faultEnded(began.Add(10 * time.Second))
	handled(3 * time.Second)                      // reported late
	handled(10*time.Second + 50*time.Millisecond) // began during the fault
	select {
	case <-recovered:
		t.Fatal("a completion before the end of the fault counts as recovery")
	default:
	}
	handled(11 * time.Second)
	<-recovered
	during, recovery, pause := w.stop()
	if during != 2 || recovery != time.Second || pause != 7050*time.Millisecond {
		t.Errorf("%d completions during the fault, recovery %v, pause %v; want 2, 1s, 7.05s", during, recovery, pause)
	}
}

func TestLoad_RefusedSendsAreNotDoubtful(t *testing.T) {
	unknown := &core.SendError{Results: []core.SendResult{{State: core.SendUnknown, Err: errors.New("cut")}}}
	refused := &core.SendError{Results: []core.SendResult{{State: core.SendRefused, Err: errors.New("full")}}}
	for err, want := range map[error]bool{unknown: false, refused: true, errors.New("closed"): false} {
		if got := isRefused(err); got != want {
			t.Errorf("isRefused(%v) = %t", err, got)
		}
	}
}
