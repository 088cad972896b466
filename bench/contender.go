package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"time"
)

// system is an open messaging system with a running handler.
type system interface {
	// send sends one message as its user would, built from scratch except for the body.
	send(ctx context.Context, sequence string) error
	// close ends the system when all messages were handled. A message that is left, or
	// was moved to another queue, is an error.
	close(ctx context.Context) error
}

// contender is one way of doing a scenario's work.
type contender struct {
	name string
	// open starts the system. The handler calls handle with the header that identifies
	// the message, and returns handle's error.
	open func(ctx context.Context, handle func(sequence string) error) (system, error)
}

// patience is the time after which the messages of a sample count as lost.
const patience = 2 * time.Minute

// opened runs f while the contender's system is open, and ends f's wait for the ledger
// when patience ends. Profiles label its time with the contender's name.
func (c contender) opened(ctx context.Context, l *ledger, handle func(sequence string) error, f func(ctx context.Context, sys system) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %v", patience))
	defer cancel()
	defer context.AfterFunc(ctx, l.giveUp)()
	pprof.Do(ctx, pprof.Labels("contender", c.name), func(ctx context.Context) {
		var sys system
		if sys, err = c.open(ctx, handle); err != nil {
			err = fmt.Errorf("open: %w", err)
			return
		}
		if err = f(ctx, sys); err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		err = errors.Join(err, sys.close(ctx))
	})
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// delayed returns a contender whose handler waits before its work.
func (c contender) delayed(d time.Duration) contender {
	return contender{c.name, func(ctx context.Context, handle func(string) error) (system, error) {
		return c.open(ctx, func(sequence string) error {
			time.Sleep(d)
			return handle(sequence)
		})
	}}
}
