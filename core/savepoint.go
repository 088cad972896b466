package core

import (
	"context"
	"errors"
	"fmt"
)

// This file is about savepoints.

// Savepoint is a state of an attempt to which [Savepoint.Rollback] returns.
type Savepoint struct {
	message *Message
	undo    func(ctx context.Context) error // of the transport's transaction, or nil
	before  collectedSends
}

// Savepoint marks the state of this attempt, so that the work after it can be undone alone.
// [Savepoint.Rollback] drops the messages that were collected since and, in
// SendsAtomicWithReceive, undoes the work since then in the transport's transaction; if the
// transport cannot do that ([Abilities.Savepoints]), the error matches
// errors.ErrUnsupported. Other work, and [Message.SendNow], is not undone. A database
// transaction that a handler got from the context after the savepoint cannot be used after
// a Rollback. Savepoint and Rollback are called by one goroutine at a time, not while next
// or the transaction is in use.
func (m *Message) Savepoint(ctx context.Context) (*Savepoint, error) {
	before, ok := m.sends.mark()
	if !ok {
		return nil, fmt.Errorf("core: savepoint for message %s: %w", m.ID, ErrHandlingEnded)
	}
	s := &Savepoint{message: m, before: before}
	a := m.transaction()
	if a == nil {
		return s, nil
	}
	if !m.deps.composer.caps.Savepoints {
		return nil, fmt.Errorf("core: savepoint for message %s: the transport cannot undo a part of its transaction (Capabilities.Savepoints); "+
			"let the attempt fail, which undoes all of it, or use the transaction mode ReceiveOnly: %w", m.ID, errors.ErrUnsupported)
	}
	var err error
	if s.undo, err = a.delivery.Savepoint(ctx); err != nil {
		return nil, fmt.Errorf("core: savepoint for message %s: %w", m.ID, err)
	}
	return s, nil
}

// Rollback undoes the work since the savepoint. It may be called several times, until an
// earlier savepoint of the attempt is rolled back, or its run ends. If it returns an error,
// the attempt fails even if its handlers return nil, and all its work is undone.
func (s *Savepoint) Rollback(ctx context.Context) error {
	m := s.message
	if m.sends.isEnded() {
		return fmt.Errorf("core: rollback to a savepoint of message %s: %w", m.ID, ErrHandlingEnded)
	}
	if s.undo != nil {
		if err := s.undo(ctx); err != nil {
			err = fmt.Errorf("core: rollback to a savepoint of message %s: %w", m.ID, err)
			if a := m.transaction(); a != nil {
				a.refuseCommit(err)
			}
			return err
		}
	}
	m.sends.restore(s.before)
	return nil
}

// transaction returns the attempt whose transaction m's handlers use, or nil if there is
// none.
func (m *Message) transaction() *attempt {
	if !m.deps.atomic {
		return nil
	}
	if a := m.attempt(); a != nil && a.delivery != nil {
		return a
	}
	return nil
}

// attempt returns the attempt that m belongs to, or nil outside of an endpoint.
func (m *Message) attempt() *attempt {
	ctx := m.outermost().ctx
	if ctx == nil {
		return nil
	}
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// refuseCommit lets the attempt fail: a part of its work could not be undone.
func (a *attempt) refuseCommit(err error) { a.partialUndoErr.CompareAndSwap(nil, &err) }

// allowCommit is called after a Reset.
func (a *attempt) allowCommit() { a.partialUndoErr.Store(nil) }

// commitError returns the reason why the work of the attempt must not be committed, or
// nil.
func (a *attempt) commitError() error {
	if err := a.partialUndoErr.Load(); err != nil {
		return *err
	}
	return nil
}
