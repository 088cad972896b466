package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"
)

// pace sets when a sender continues after a message.
type pace int

const (
	freeRunning pace = iota // at once
	blocking                // when the message has reached the end of its handler
)

// work is the work of one sample.
type work struct {
	pace     pace
	messages int
	failures int // failed attempts of each message
}

// sample is one measurement.
type sample struct {
	messages int
	elapsed  time.Duration
	allocs   uint64 // of the whole process
	bytes    uint64
	requests float64 // to the server, if the store counts them
}

func (s sample) rate() float64         { return float64(s.messages) / s.elapsed.Seconds() }
func (s sample) micros() float64       { return s.elapsed.Seconds() * 1e6 / float64(s.messages) }
func (s sample) allocsEach() float64   { return float64(s.allocs) / float64(s.messages) }
func (s sample) requestsEach() float64 { return s.requests / float64(s.messages) }
func (s sample) bytesEach() float64    { return float64(s.bytes) / float64(s.messages) }

// patience is the time after which the messages of a sample count as lost.
const patience = 2 * time.Minute

// warmUp is the part of a sample before the measurement starts.
const warmUp = 10

// measure opens the contender's system, does the work and closes the system. It
// returns an error unless each message was handled and none is left.
func (c contender) measure(ctx context.Context, w work) (s sample, err error) {
	warm := max(w.messages/warmUp, 1)
	l := newLedger(warm+w.messages, w.failures)
	list := newSequences(warm + w.messages)
	err = c.opened(ctx, l, l.handle, func(ctx context.Context, sys system) error {
		if err := w.drive(ctx, sys, l, list, 0, warm); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		err := w.drive(ctx, sys, l, list, warm, warm+w.messages)
		s.elapsed = time.Since(start)
		runtime.ReadMemStats(&after)
		s.messages = w.messages
		s.allocs = after.Mallocs - before.Mallocs
		s.bytes = after.TotalAlloc - before.TotalAlloc
		return err
	})
	return s, err
}

// opened runs f while the contender's system is open, and ends f's wait for the ledger
// when patience ends. Profiles label its time with the contender's name.
func (c contender) opened(ctx context.Context, l *ledger, handle func(sequence string) error, f func(ctx context.Context, sys system) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %v", patience))
	defer cancel()
	defer context.AfterFunc(ctx, l.giveUp)()
	pprof.Do(ctx, pprof.Labels("contender", c.name), func(ctx context.Context) {
		var sys system
		if sys, err = c.open(ctx, handle); err != nil {
			err = fmt.Errorf("open: %w", err)
			return
		}
		if err = f(ctx, sys); err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		err = errors.Join(err, sys.close(ctx))
	})
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// drive sends the messages from..to-1 and returns when they are handled. Earlier ones
// were handled before.
func (w work) drive(ctx context.Context, sys system, l *ledger, list sequences, from, to int) error {
	if w.pace == freeRunning {
		l.expect(to)
	}
	for i := from; i < to; i++ {
		if w.pace == blocking {
			l.expect(i + 1)
		}
		if err := sys.send(ctx, list.at(i)); err != nil {
			return err
		}
		if w.pace == blocking {
			if err := l.wait(); err != nil {
				return err
			}
		}
	}
	if w.pace == freeRunning {
		return l.wait()
	}
	return nil
}

// inTurn takes samples A B C A B C: other load on the machine affects all of them alike.
// The result has a row for each subject, a column for each round.
func inTurn[S, R any](subjects []S, rounds int, take func(S) (R, error)) ([][]R, error) {
	results := make([][]R, len(subjects))
	for range rounds {
		for i, subject := range subjects {
			r, err := take(subject)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}
