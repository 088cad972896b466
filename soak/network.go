//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// server is one that this program has started.
type server interface {
	Kill() error
	Shutdown() error
	Restart() error
	Freeze() error
	Thaw() error
}

// networkFaults are those that every server and every network has.
func networkFaults(s server, network *proxy.Proxy) []fault {
	down := func(end func() error) func(context.Context, time.Duration) error {
		return func(ctx context.Context, length time.Duration) error {
			if err := end(); err != nil {
				return err
			}
			pause(ctx, length/4)
			return s.Restart()
		}
	}
	return []fault{
		{"kill -9 of the server, restart", down(s.Kill)},
		{"shutdown of the server, restart", down(s.Shutdown)},
		{"all TCP connections cut", func(context.Context, time.Duration) error {
			network.Cut()
			return nil
		}},
		{"connections cut and refused", lasting(
			func(context.Context) error {
				err := network.Refuse()
				network.Cut()
				return err
			},
			func(context.Context) error { return network.Accept() },
		)},
		{"the network swallows everything", lasting(
			func(context.Context) error {
				network.Stall()
				return nil
			},
			func(context.Context) error {
				network.Resume()
				return nil
			},
		)},
		{"the server is stopped (SIGSTOP)", lasting(
			func(context.Context) error { return s.Freeze() },
			func(context.Context) error { return s.Thaw() },
		)},
	}
}

// closeAll calls functions that release something, the last one first.
func closeAll(closers []func() error) error {
	var errs []error
	for n := range closers {
		errs = append(errs, closers[len(closers)-1-n]())
	}
	return errors.Join(errs...)
}
