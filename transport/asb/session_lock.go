package asb

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// This file has the lock of a session, on which its messages are settled; session.go
// receives them.

// session is a session that the receiver has locked. Its messages are received one at a
// time.
type session struct {
	r      *receiver
	sdk    *azservicebus.SessionReceiver
	client *sdkclient.Client

	connection context.Context // ends with that of the link

	mu       sync.Mutex // guards the fields below
	end      time.Time  // of its lock
	renewing sync.Mutex // held during a renewal: the SDK does not make two at the same time
}

func (s *session) lockedUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// renew renews the session's lock.
func (s *session) renew(ctx context.Context) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	var lockedUntil time.Time
	err := attempt(ctx, settleAttempt, func(ctx context.Context) (err error) {
		lockedUntil, err = sdkclient.Call(ctx, s.client, "renew a lock", func() (time.Time, error) {
			err := s.sdk.RenewSessionLock(ctx, nil)
			return s.sdk.LockedUntil(), err
		}, nil)
		return err
	})
	if err != nil {
		return s.r.settleError(ctx, err)
	}
	end := s.r.lockEnd(lockedUntil, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if end.After(s.end) {
		s.end = end
	}
	return nil
}

// settle settles a message. If the session's link is lost, so is its lock.
func (s *session) settle(ctx context.Context, m *azservicebus.ReceivedMessage, how settlement) error {
	err := attemptOn(ctx, s.connection, settleAttempt, func(ctx context.Context) error {
		return s.client.Do(ctx, "settle", func() error { return how(ctx, s.sdk, m) })
	})
	if err != nil && ctx.Err() == nil && !answered(err) && faultOf(err) == faultOutage {
		return &sessionLostError{err}
	}
	return err
}

// sessionLostError is the error of a settlement on a link that is lost.
type sessionLostError struct{ error }

func (e *sessionLostError) Unwrap() error { return e.error }
