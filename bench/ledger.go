package main

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ledger knows of every message how often it was attempted, and lets the sender
// wait until they are handled.
type ledger struct {
	failures int // attempts of each message that fail before one succeeds
	attempts []atomic.Int32
	strange  atomic.Int64 // messages that nobody sent

	handled  atomic.Int64
	expected atomic.Int64
	reached  chan struct{}
}

func newLedger(messages, failures int) *ledger {
	return &ledger{failures: failures, attempts: make([]atomic.Int32, messages), reached: make(chan struct{}, 1)}
}

var errAttempt = errors.New("this attempt fails, as every first one does")

// handle is the handler's work: it notes the attempt, and fails if it is to.
func (l *ledger) handle(sequence string) error {
	n := sequenceNumber(sequence)
	if n < 0 || n >= len(l.attempts) {
		l.strange.Add(1)
		return nil
	}
	if int(l.attempts[n].Add(1)) <= l.failures {
		return errAttempt
	}
	if l.handled.Add(1) == l.expected.Load() {
		l.reached <- struct{}{}
	}
	return nil
}

// expect says how many messages will have been handled when wait returns. It is
// called before the last of them is sent.
func (l *ledger) expect(handled int) { l.expected.Store(int64(handled)) }

// wait returns when as many messages were handled as expected, or with an error
// after giveUp. It costs one receive from a channel, since a blocking sender
// waits for every message.
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

// check returns an error unless every message was attempted exactly as often as
// it had to be.
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
