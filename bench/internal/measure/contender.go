// Package measure takes samples of contenders: of running systems ([Contender]) and of systems that store messages while no
// handler runs ([StoreContender]). Each sample ends with a check that every message was handled exactly as often as it had
// to be, and that none is left.
package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"time"
)

// System is an open messaging system with a running handler.
type System interface {
	// Send sends one message as its user would, built from scratch except for the body.
	Send(ctx context.Context, sequence string) error
	// Close ends the system when all messages were handled. A message that is left, or
	// was moved to another queue, is an error.
	Close(ctx context.Context) error
}

// Contender is one way of doing a scenario's work.
type Contender struct {
	Name string
	// Open starts the system. The handler calls handle with the header that identifies
	// the message, and returns handle's error.
	Open func(ctx context.Context, handle func(sequence string) error) (System, error)
}

// patience is the time after which the messages of a sample count as lost.
const patience = 10 * time.Minute

// withSystem runs f while the contender's system is open, and ends f's wait for the ledger
// when patience ends. Profiles label its time with the contender's name.
func (c Contender) withSystem(ctx context.Context, l *ledger, handle func(sequence string) error, f func(ctx context.Context, sys System) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %v", patience))
	defer cancel()
	defer context.AfterFunc(ctx, l.giveUp)()
	pprof.Do(ctx, pprof.Labels("contender", c.Name), func(ctx context.Context) {
		var sys System
		if sys, err = c.Open(ctx, handle); err != nil {
			err = fmt.Errorf("open: %w", err)
			return
		}
		if err = f(ctx, sys); err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		err = errors.Join(err, sys.Close(ctx))
	})
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// Delayed returns a contender whose handler waits before its work.
func (c Contender) Delayed(d time.Duration) Contender {
	return Contender{c.Name, func(ctx context.Context, handle func(string) error) (System, error) {
		return c.Open(ctx, func(sequence string) error {
			time.Sleep(d)
			return handle(sequence)
		})
	}}
}
