package main

import (
	"context"
	"fmt"
	"runtime"
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

// at returns a trial of the contender with some work.
func (c contender) at(w work) trial {
	return trial{c.name, func(ctx context.Context) (sample, error) { return c.measure(ctx, w) }}
}

// at returns a trial of each contender with the same work.
func (w work) at(contenders ...contender) []trial {
	trials := make([]trial, len(contenders))
	for i, c := range contenders {
		trials[i] = c.at(w)
	}
	return trials
}
