package recoverability_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: pause
var pausing = core.Recoverability{
	Immediate: core.Immediate{
		Pause:    200 * time.Millisecond, // 0.2, 0.4, 0.8, 1.6, 3.2 s, each up to a half longer
		MaxPause: 5 * time.Second,
	},
}

// end

// outageCost is what an outage of 34 s costs an endpoint with 12 slots, for which 916 messages
// wait, and whose calls of the service that is away fail after 20 ms.
type outageCost struct{ attempts, lines, failed int }

func outageOf34Seconds(t *testing.T, c core.Config, folded bool) (cost outageCost) {
	const messages = 916
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		defer transport.Close(context.Background())
		var text bytes.Buffer
		c.Concurrency = 12
		c.Logger = slog.New(slog.NewTextHandler(&text, nil))
		if folded {
			c.Logger = slog.New(logformat.FoldRepeats(c.Logger.Handler(), 100))
		}
		ep, err := core.New("bridge", transport, c)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var attempts atomic.Int64
		core.Handle(ep, forward, func(context.Context, *core.Message, []byte) error {
			time.Sleep(20 * time.Millisecond)
			if time.Since(began) > 34*time.Second {
				return nil
			}
			attempts.Add(1)
			return fmt.Errorf("publish: %w", errors.New("dial tcp 10.0.0.1:5672: connection refused"))
		})
		if err := ep.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range messages {
			if err := ep.Send(t.Context(), "bridge", forward.Of([]byte("x"))); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		time.Sleep(time.Hour)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		failed, err := transport.Depth(t.Context(), "error")
		if err != nil {
			t.Fatal(err)
		}
		cost = outageCost{int(attempts.Load()), bytes.Count(text.Bytes(), []byte("\n")), failed.Ready}
	})
	return cost
}

// The figures of docs/recoverability.md, which says "some".
func TestOutageOf34Seconds_Costs(t *testing.T) {
	for name, c := range map[string]struct {
		config core.Config
		folded bool
		want   outageCost
	}{
		"without a pause":         {core.Config{}, false, outageCost{11_000, 11_000, 0}},
		"without a pause, folded": {core.Config{}, true, outageCost{11_000, 400, 0}},
		"with a pause":            {core.Config{Recoverability: pausing}, false, outageCost{1_500, 1_500, 0}},
		"with a pause, folded":    {core.Config{Recoverability: pausing}, true, outageCost{1_500, 400, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := outageOf34Seconds(t, c.config, c.folded)
			t.Logf("%+v", got)
			for name, pair := range map[string][2]int{"attempts": {got.attempts, c.want.attempts}, "lines": {got.lines, c.want.lines}} {
				if pair[0] > pair[1]*5/4 || pair[0] < pair[1]*3/4 {
					t.Errorf("%d %s, want some %d", pair[0], name, pair[1])
				}
			}
			if got.failed != c.want.failed {
				t.Errorf("%d messages in the error queue, want %d", got.failed, c.want.failed)
			}
		})
	}
}
