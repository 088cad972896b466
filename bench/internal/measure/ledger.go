package measure

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// ledger counts the attempts of every message, and lets the sender wait until all are
// handled.
type ledger struct {
	failures int // attempts of each message that fail before one succeeds
	attempts []atomic.Int32
	strange  atomic.Int64 // messages that were not sent
	laps     []lap

	handled  atomic.Int64
	expected atomic.Int64
	reached  chan struct{}
}

// lap is the time at which a number of messages had been handled.
type lap struct {
	handled int64
	reached atomic.Pointer[time.Time]
}

// newLedger returns the ledger of the given number of messages. It records the time at
// which the count of each lap was reached; laps are in ascending order.
func newLedger(messages, failures int, laps ...int) *ledger {
	l := &ledger{failures: failures, attempts: make([]atomic.Int32, messages), reached: make(chan struct{}, 1), laps: make([]lap, len(laps))}
	for i, handled := range laps {
		l.laps[i].handled = int64(handled)
	}
	return l
}

// took is the time between two laps, both of them reached.
func (l *ledger) took(from, to int) time.Duration {
	return l.laps[to].reached.Load().Sub(*l.laps[from].reached.Load())
}

var errAttempt = errors.New("this attempt fails, as every first one does")

// handle is the handler's work: it counts the attempt, and returns an error if the
// attempt should fail.
func (l *ledger) handle(sequence string) error {
	n := workload.SequenceNumber(sequence)
	if n < 0 || n >= len(l.attempts) {
		l.strange.Add(1)
		return nil
	}
	if int(l.attempts[n].Add(1)) <= l.failures {
		return errAttempt
	}
	handled := l.handled.Add(1)
	for i := range l.laps {
		if lap := &l.laps[i]; lap.handled == handled {
			now := time.Now()
			lap.reached.Store(&now)
		}
	}
	if handled == l.expected.Load() {
		l.reached <- struct{}{}
	}
	return nil
}

// expect sets the number of messages that must be handled before wait returns. It is
// called before the last of them is sent.
func (l *ledger) expect(handled int) { l.expected.Store(int64(handled)) }

// wait returns when the expected number of messages was handled, or with an error after
// giveUp. It costs one receive from a channel, since a blocking sender calls it for every
// message.
func (l *ledger) wait() error {
	<-l.reached
	if handled, expected := l.handled.Load(), l.expected.Load(); handled < expected {
		return fmt.Errorf("%d of %d messages were handled", handled, expected)
	}
	return nil
}

// giveUp ends wait.
func (l *ledger) giveUp() {
	select {
	case l.reached <- struct{}{}:
	default:
	}
}

// check returns an error unless every message was attempted exactly as often as expected.
func (l *ledger) check() error {
	want := int32(l.failures + 1)
	wrong, first := 0, 0
	for i := range l.attempts {
		if l.attempts[i].Load() != want {
			if wrong == 0 {
				first = i
			}
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d messages were not attempted exactly %d times; the first, %d, was %d times",
			wrong, len(l.attempts), want, first, l.attempts[first].Load())
	}
	if n := l.strange.Load(); n > 0 {
		return fmt.Errorf("%d messages were handled that nobody had sent", n)
	}
	return nil
}
