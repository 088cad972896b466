//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// server is a server that this program has started.
type server interface {
	Kill() error
	Shutdown() error
	Restart() error
	Freeze() error
	Thaw() error
}

// A network is the path from workers to a server: a proxy for each of its addresses.
type network []*proxy.Proxy

// Cut ends all connections.
func (n network) Cut() {
	for _, p := range n {
		p.Cut()
	}
}

// Refuse refuses new connections until Accept is called.
func (n network) Refuse() error { return n.each((*proxy.Proxy).Refuse) }

// Accept accepts new connections after Refuse.
func (n network) Accept() error { return n.each((*proxy.Proxy).Accept) }

// Stall holds back all traffic until Resume is called.
func (n network) Stall() {
	for _, p := range n {
		p.Stall()
	}
}

// Resume lets the traffic that was held back pass.
func (n network) Resume() {
	for _, p := range n {
		p.Resume()
	}
}

func (n network) each(f func(*proxy.Proxy) error) error {
	var errs []error
	for _, p := range n {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// networkFaults are the faults that every server and every network has.
func networkFaults(s server, proxies ...*proxy.Proxy) []fault {
	n := network(proxies)
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
			n.Cut()
			return nil
		}},
		{"connections cut and refused", lasting(
			func(context.Context) error {
				err := n.Refuse()
				n.Cut()
				return err
			},
			func(context.Context) error { return n.Accept() },
		)},
		{"the network swallows everything", lasting(
			func(context.Context) error {
				n.Stall()
				return nil
			},
			func(context.Context) error {
				n.Resume()
				return nil
			},
		)},
		{"the server is stopped (SIGSTOP)", lasting(
			func(context.Context) error { return s.Freeze() },
			func(context.Context) error { return s.Thaw() },
		)},
	}
}

// closeAll calls functions that release resources, the last one first.
func closeAll(closers []func() error) error {
	var errs []error
	for n := range closers {
		errs = append(errs, closers[len(closers)-1-n]())
	}
	return errors.Join(errs...)
}
