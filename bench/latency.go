package main

import (
	"context"
	"time"
)

// Pauses that are long enough for every goroutine to park, and for a receiver to find the
// queue empty.
const (
	inMemoryPause = 300 * time.Microsecond
	serverPause   = 20 * time.Millisecond
)

// latency sends one message at a time to an idle system, and returns the time of each
// from before the send to the handler's first line.
func (c contender) latency(ctx context.Context, messages int, pause time.Duration) ([]time.Duration, error) {
	warm := max(messages/warmUp, 1)
	l := newLedger(warm+messages, 0)
	sent := make([]time.Time, warm+messages)
	took := make([]time.Duration, warm+messages)
	handle := func(sequence string) error {
		if n := sequenceNumber(sequence); n >= 0 && n < len(sent) {
			took[n] = time.Since(sent[n])
		}
		return l.handle(sequence)
	}
	list := newSequences(warm + messages)
	err := c.opened(ctx, l, handle, func(ctx context.Context, sys system) error {
		for i := range warm + messages {
			time.Sleep(pause)
			l.expect(i + 1)
			sent[i] = time.Now()
			if err := sys.send(ctx, list.at(i)); err != nil {
				return err
			}
			if err := l.wait(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return took[warm:], nil
}
