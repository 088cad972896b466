package measure

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Pauses that are long enough for every goroutine to park, and for a receiver to find the
// queue empty.
const (
	InMemoryPause = 300 * time.Microsecond
	ServerPause   = 20 * time.Millisecond
)

// Latencies sends one message at a time to an idle system, and returns the time of each
// from before the send to the handler's first line.
func (c Contender) Latencies(ctx context.Context, messages int, pause time.Duration) ([]time.Duration, error) {
	warm := max(messages/warmUp, 1)
	l := newLedger(warm+messages, 0)
	sent := make([]time.Time, warm+messages)
	took := make([]time.Duration, warm+messages)
	handle := func(sequence string) error {
		if n := workload.SequenceNumber(sequence); n >= 0 && n < len(sent) {
			took[n] = time.Since(sent[n])
		}
		return l.handle(sequence)
	}
	list := workload.NewSequences(warm + messages)
	err := c.withSystem(ctx, l, handle, func(ctx context.Context, sys System) error {
		for i := range warm + messages {
			time.Sleep(pause)
			l.expect(i + 1)
			sent[i] = time.Now()
			if err := sys.Send(ctx, list.At(i)); err != nil {
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
