package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// slowClosingTransport is a transport whose receivers close when a request to the broker
// has ended, or their time has.
type slowClosingTransport struct {
	transport.Wrapper
	closeTime time.Duration
	cut       *bool
}

func (t slowClosingTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.Wrapper.OpenReceiver(ctx, cfg)
	return slowReceiver{r, t}, err
}

type slowReceiver struct {
	core.Receiver
	t slowClosingTransport
}

func (r slowReceiver) Close(ctx context.Context) error {
	select {
	case <-time.After(r.t.closeTime):
	case <-ctx.Done():
		*r.t.cut = true
	}
	return r.Receiver.Close(context.WithoutCancel(ctx))
}

// A receiver has the rest of DrainTimeout to close, and 4 s at least.
func TestShutdown_WaitsForARequestInProgress(t *testing.T) {
	for name, c := range map[string]struct {
		drain, takes time.Duration
		hurried      bool
		want         time.Duration
		cut          bool
	}{
		"as long as it takes":                   {20 * time.Second, 15 * time.Second, false, 15 * time.Second, false},
		"no longer than DrainTimeout":           {20 * time.Second, time.Minute, false, 20 * time.Second, true},
		"4 s at least":                          {time.Second, time.Minute, false, 4 * time.Second, true},
		"4 s when Shutdown's context has ended": {20 * time.Second, time.Minute, true, 4 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cut := false
				ep, err := core.New("orders", slowClosingTransport{transport.Wrapper{Transport: inmemory.Open()}, c.takes, &cut}, core.Config{DrainTimeout: c.drain})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := make(chan error, 1)
				go func() { done <- ep.Run(ctx) }()
				<-ep.Ready()
				began := time.Now()
				if c.hurried {
					ended, end := context.WithCancel(t.Context())
					end()
					_ = ep.Shutdown(ended)
				} else {
					stop()
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != c.want || cut != c.cut {
					t.Errorf("it took %v, and the receiver was cut off: %v; want %v, %v", took, cut, c.want, c.cut)
				}
			})
		})
	}
}
