package measure

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Stream is messages that are sent and handled at the same time.
type Stream struct {
	Messages int
	Snapshot bool // an old snapshot is held during the run
}

// The most messages that a stream's sender is ahead of the handlers.
const (
	streamWindow = 2000
	streamBatch  = 100
)

// StreamParts is the number of equal parts into which a stream is divided for its rates.
const StreamParts = 4

// snapshotStore is a store that can be made to keep data that it otherwise cleans up.
type snapshotStore interface {
	HoldSnapshot(ctx context.Context) (release func() error, err error)
}

// Rates returns the messages per second of each part of a stream.
func (c StoreContender) Rates(ctx context.Context, w Stream) (rates []float64, err error) {
	var laps []int
	for i := range StreamParts {
		laps = append(laps, (i+1)*w.Messages/StreamParts)
	}
	l := newLedger(w.Messages, 0, append([]int{1}, laps...)...)
	l.expect(w.Messages)
	err = c.withStore(ctx, l, func(ctx context.Context, s Store) (err error) {
		if w.Snapshot {
			release, err := s.(snapshotStore).HoldSnapshot(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, release()) }()
		}
		if err := s.Start(ctx, l.handle); err != nil {
			return err
		}
		err = w.feed(ctx, s, l)
		if err == nil {
			err = l.wait()
		}
		if err = errors.Join(err, s.Stop(ctx)); err != nil {
			return err
		}
		return errors.Join(l.check(), nothingWaits(ctx, s))
	})
	if err != nil {
		return nil, err
	}
	for i := range StreamParts {
		rates = append(rates, float64(w.Messages/StreamParts)/max(l.took(i, i+1), time.Nanosecond).Seconds())
	}
	return rates, nil
}

// feed sends the stream's messages, a window ahead of the handlers.
func (w Stream) feed(ctx context.Context, s Store, l *ledger) error {
	list := workload.NewSequences(w.Messages)
	for from := 0; from < w.Messages; from += streamBatch {
		for int(l.handled.Load()) < from-streamWindow {
			if !WaitPollInterval(ctx) {
				return context.Cause(ctx)
			}
		}
		var sequences []string
		for i := from; i < min(from+streamBatch, w.Messages); i++ {
			sequences = append(sequences, list.At(i))
		}
		if err := s.Send(ctx, sequences); err != nil {
			return err
		}
	}
	return nil
}
