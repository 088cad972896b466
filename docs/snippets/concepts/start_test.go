package concepts

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: wait
func runSoon(ctx context.Context, ep *core.Endpoint, limit time.Duration) error {
	ready, late := ep.Ready(), make(chan error, 1)
	timer := time.AfterFunc(limit, func() {
		select {
		case <-ready:
		default:
			late <- fmt.Errorf("not ready after %v: %w", limit, ep.Health().ConnectionError)
			_ = ep.Shutdown(ctx)
		}
	})
	defer timer.Stop()
	if err := ep.Run(ctx); err != nil || len(late) == 0 {
		return err
	}
	return <-late
}

// end

// unreachable is a transport whose broker cannot be reached.
type unreachable struct{ core.Transport }

func (unreachable) OpenReceiver(context.Context, core.ReceiverConfig) (core.Receiver, error) {
	return nil, core.ErrUnavailable
}

func TestRunSoon_EndsWithoutABroker(t *testing.T) {
	for _, isUnreachable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var transport core.Transport = inmemory.Open()
			defer transport.Close(context.Background())
			if isUnreachable {
				transport = unreachable{transport}
			}
			ep, err := core.New("orders", transport, core.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if err := runSoon(ctx, ep, time.Minute); errors.Is(err, core.ErrUnavailable) != isUnreachable || (time.Since(began) < time.Hour) != isUnreachable {
				t.Errorf("isUnreachable: %v; after %v: %v", isUnreachable, time.Since(began), err)
			}
		})
	}
}
