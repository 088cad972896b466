package coretest

import (
	"context"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// Run runs endpoints until the test ends, on package inmemory for example. It returns when
// all are receiving, and fails the test at once if one cannot start. At the end of the
// test it lets them drain, and reports the error of [core.RunAll]. [core.Endpoint.Shutdown]
// stops one earlier.
//
// The endpoints stop before the functions that [testing.T.Cleanup] got before the call of
// Run are called. A transport that must be closed is closed there, not by defer, which is
// too early. inmemory's need not be closed.
func Run(t testing.TB, endpoints ...*core.Endpoint) {
	t.Helper()
	RunContext(t.Context(), t, endpoints...)
}

// RunContext is [Run] for endpoints whose handlers need values of ctx, such as the
// transaction that sqlservertest.Begin returns. Handlers, [core.HandleFailed], policies
// and observers get the values, but not the end of ctx. The values are the same in each
// attempt: a transaction that attempts must not share at the same time needs
// [core.Config] with a Concurrency of 1.
func RunContext(ctx context.Context, t testing.TB, endpoints ...*core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- core.RunAll(ctx, endpoints...) }()
	for _, ep := range endpoints {
		select {
		case <-ep.Ready():
		case err := <-ended:
			stop()
			t.Fatalf("coretest: endpoint %q ended before it was ready: %v", ep.Name(), err)
		}
	}
	t.Cleanup(func() {
		stop()
		switch err := <-ended; {
		case errors.Is(err, core.ErrClosed):
			t.Errorf("coretest: %v; the transport was closed while its endpoint was running: close it in a t.Cleanup before the call of Run, not by defer", err)
		case err != nil:
			t.Errorf("coretest: %v", err)
		}
	})
}
