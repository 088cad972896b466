package main

import (
	"context"
	"errors"
	"time"
)

// stream is messages that are sent and handled at the same time.
type stream struct {
	messages int
	snapshot bool // an old snapshot is held during the run
}

// The most messages that a stream's sender is ahead of the handlers.
const (
	streamWindow = 2000
	streamBatch  = 100
)

// parts is the number of equal parts into which a stream is divided for its rates.
const parts = 4

// snapshotStore is a store that can be made to keep data that it otherwise cleans up.
type snapshotStore interface {
	holdSnapshot(ctx context.Context) (release func() error, err error)
}

// rates returns the messages per second of each part of a stream.
func (k keeper) rates(ctx context.Context, w stream) (rates []float64, err error) {
	var laps []int
	for i := range parts {
		laps = append(laps, (i+1)*w.messages/parts)
	}
	l := newLedger(w.messages, 0, append([]int{1}, laps...)...)
	l.expect(w.messages)
	err = k.opened(ctx, l, func(ctx context.Context, s store) (err error) {
		if w.snapshot {
			release, err := s.(snapshotStore).holdSnapshot(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, release()) }()
		}
		if err := s.start(ctx, l.handle); err != nil {
			return err
		}
		err = w.feed(ctx, s, l)
		if err == nil {
			err = l.wait()
		}
		if err = errors.Join(err, s.stop(ctx)); err != nil {
			return err
		}
		return errors.Join(l.check(), nothingWaits(ctx, s))
	})
	if err != nil {
		return nil, err
	}
	for i := range parts {
		rates = append(rates, float64(w.messages/parts)/max(l.took(i, i+1), time.Nanosecond).Seconds())
	}
	return rates, nil
}

// feed sends the stream's messages, a window ahead of the handlers.
func (w stream) feed(ctx context.Context, s store, l *ledger) error {
	list := newSequences(w.messages)
	for from := 0; from < w.messages; from += streamBatch {
		for int(l.handled.Load()) < from-streamWindow {
			if !idle(ctx) {
				return context.Cause(ctx)
			}
		}
		var sequences []string
		for i := from; i < min(from+streamBatch, w.messages); i++ {
			sequences = append(sequences, list.at(i))
		}
		if err := s.send(ctx, sequences); err != nil {
			return err
		}
	}
	return nil
}
