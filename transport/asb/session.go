package asb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

const (
	// sessionFirst is the longest wait for the first message of a session, which exists
	// when the service offers the session.
	sessionFirst = 5 * time.Second
	// sessionIdle is the longest wait for the next message of a session before the
	// receiver takes another session.
	sessionIdle = 100 * time.Millisecond
	// acceptPatience is the longest wait for the service's answer that there is no
	// session, until the connection is replaced. The service itself waits for one for a
	// minute at most. Before the SDK returns, and whenever it needs a token, it waits for
	// up to a minute for the service to confirm the end of a session of AMQP
	// (azservicebus v1.11.0, AMQPSessionWrapper.Close).
	acceptPatience = time.Minute + 2*openAttempt
	// minPause is the time from a failed renewal of the session's lock to the next one.
	minPause = 50 * time.Millisecond
	// longestWait is the longest time after which a due message looks for a place once
	// more.
	longestWait = time.Second
	// defaultMaxPostponed is the most sessions with a message that is not due yet that a
	// receiver keeps locked without a place. Further ones are handed back.
	defaultMaxPostponed = 1000
)

// pollSessions runs a poller, which takes one session after the other.
func (r *receiver) pollSessions() {
	lost := false
	losses := 0 // sessions in a row that were lost before a message arrived
	for {
		places, wait, waiting, open := r.reserve(1)
		switch {
		case !open:
			return
		case places == 0:
			_ = transport.Sleep(r.closing, r.closing, wait, r.room) // reserve detects that the receiver is closed
			continue
		}
		began := time.Now()
		if lost {
			// While there are no sessions, a request for one does not show whether the
			// connection works again.
			name, _ := r.t.cfg.names().Source(r.address)
			if err := r.reach(r.closing, name); err != nil {
				r.notAnswered(waiting, 1, err, began)
				continue
			}
			r.works()
		}
		s, places, err := r.accept(waiting)
		lost = err != nil && faultOf(err) != faultNoSession && waiting.Err() == nil
		if err != nil {
			if faultOf(err) != faultNoSession {
				r.notAnswered(waiting, places, err, began)
			} else if r.noSession(places) {
				return
			}
			continue
		}
		r.accepted()
		if places == 0 {
			if places, _, _, _ = r.reserve(1); places == 0 {
				s.close() // so that others can take it
				continue
			}
		}
		switch err := s.serve(); {
		case err == nil:
			losses = 0
		case errors.Is(err, errCrowded):
			r.outages.Failed(err, time.Now())
			_ = transport.Sleep(r.closing, r.closing, longestWait, nil) // the service offers the session again
		default:
			if losses++; losses > 1 {
				r.notAnswered(waiting, 0, err, began)
			}
		}
	}
}

// accept waits for a session that has messages and no receiver. It begins with a place,
// and returns the number of places that it still has: a due message may have taken the
// place.
func (r *receiver) accept(ctx context.Context) (s *session, places int, err error) {
	r.mu.Lock()
	r.accepting++
	r.mu.Unlock()
	s, err = r.acceptNext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepting--
	if r.lent > 0 {
		r.lent--
		return s, 0, err
	}
	return s, 1, err
}

func (r *receiver) acceptNext(ctx context.Context) (*session, error) {
	name, _ := r.t.cfg.names().Source(r.address)
	options := &azservicebus.SessionReceiverOptions{}
	if r.mode == core.TransactionNone {
		options.ReceiveMode = azservicebus.ReceiveModeReceiveAndDelete
	}
	c := r.currentClient()
	defer time.AfterFunc(acceptPatience, c.GiveUp).Stop() // the SDK would send a deadline of ctx to the service
	sdk, err := sdkclient.Call(ctx, c, "accept a session", func() (*azservicebus.SessionReceiver, error) {
		return c.SDK.AcceptNextSessionForQueue(ctx, name, options)
	}, nil) // the connection of a session that is accepted late is closed
	if err != nil {
		return nil, err
	}
	return &session{r: r, sdk: sdk, client: c, connection: c.Connection(), end: r.lockEnd(sdk.LockedUntil(), time.Now())}, nil
}

// serve hands on the messages of the session, one at a time, until there are none. It
// begins with a place for the first one. It returns an error only if no message arrived
// from the session, or errCrowded.
func (s *session) serve() error {
	defer s.close()
	patience := sessionFirst
	for first := true; ; first, patience = false, sessionIdle {
		d, err := s.nextOrLast(patience)
		if d == nil {
			s.r.giveUpPlace()
			if !first {
				return nil
			}
			return err
		}
		if due, err := s.awaitDue(d); !due {
			return err
		}
		s.r.releaseUnseen(s.r.answered(1, []*delivery{d}))
		s.await(d)
		if s.r.mode != core.TransactionNone && !d.isSettled() {
			return nil // the service may still have it locked for this session, and the next message would overtake it
		}
		places, _, _, open := s.r.reserve(1)
		if !open || places == 0 {
			return nil
		}
		if time.Until(s.lockedUntil()) < s.r.lockDuration()/2 && s.renew(s.r.closing) != nil {
			s.r.giveUpPlace()
			return nil
		}
	}
}

// nextOrLast is next, and in mode None makes sure that there is no message. There a
// message that is on its way when the session's link is closed is lost, or overtaken by the
// next one on another link, and the machine or the network may be slower than patience.
func (s *session) nextOrLast(patience time.Duration) (d *delivery, err error) {
	d, err = s.next(patience)
	if s.r.mode != core.TransactionNone {
		return d, err
	}
	const limit = int(sessionFirst / sessionIdle) // an expired message may stay for longer
	for try, more := 0, true; d == nil && err == nil && more && try < limit; try++ {
		ctx, cancel := context.WithTimeout(s.r.closing, requestTimeout)
		more, err = sdkclient.HasActive(ctx, s.client, s.sdk)
		cancel()
		if err != nil {
			return nil, nil //nolint:nilerr // the link is lost, or the receiver is closed: close finds out
		}
		d, err = s.next(sessionIdle) // messages that were sent before the answer have arrived
	}
	return d, err
}

// next returns the next message of the session, or nil if none arrives within patience,
// with an error if the session's link is lost.
func (s *session) next(patience time.Duration) (*delivery, error) {
	ctx, cancel := context.WithTimeout(s.r.closing, patience)
	defer cancel()
	messages, err := sdkclient.Fetch(ctx, s.client, s.sdk, 1, s.r.takeAbandoned)
	switch {
	case len(messages) > 0:
		return newDelivery(s.r, messages[0], time.Now(), nil, s), nil
	case err == nil:
		return nil, errLinkLost
	case sdkclient.IsStuck(err):
		return nil, err
	case ctx.Err() != nil:
		return nil, nil
	}
	return nil, err
}

// errCrowded is the error of a session that is handed back, since the receiver keeps too many. The service counts no delivery of
// its message.
var errCrowded = fmt.Errorf("the receiver keeps %d sessions locked whose messages are postponed, and hands others back, whose messages arrive late; to fix: find out why the groups fail, or run more instances", defaultMaxPostponed)

// awaitDue keeps a postponed message until it is due and there is a place for it. Others
// may use its place until then. It returns false if the session was lost, or the receiver
// closed, with errCrowded if the receiver keeps too many.
func (s *session) awaitDue(d *delivery) (bool, error) {
	due := func() time.Duration { return d.in.NotBefore.Sub(s.r.t.clock.Now()) }
	if d.in.NotBefore.IsZero() || due() <= 0 || s.r.mode == core.TransactionNone {
		return true, nil
	}
	if !s.r.lendPlace() {
		return false, errCrowded
	}
	for {
		left := due()
		var room transport.Signal
		if left <= 0 {
			if s.r.reclaimPlace() {
				return true, nil
			}
			left, room = longestWait, s.r.room
		}
		pause := min(left, max(minPause, time.Until(s.lockedUntil())/2))
		if transport.Sleep(s.r.closing, s.r.closing, pause, room) != nil {
			s.r.forgoPlace()
			ctx, cancel := context.WithTimeout(s.r.graceful, closeGrace)
			_ = d.releaseUnplaced(ctx)
			cancel()
			return false, nil //nolint:nilerr // the receiver closes, which is no error of the message
		}
		if time.Until(s.lockedUntil()) <= s.r.lockDuration()/2 && s.renew(s.r.closing) != nil && time.Now().After(s.lockedUntil()) {
			s.r.forgoPlace()
			return false, nil
		}
	}
}

// await waits until a message is settled, its session's lock has ended, or the receiver
// closes; in the last case it releases the message.
func (s *session) await(d *delivery) {
	for {
		timer := time.NewTimer(time.Until(s.lockedUntil()))
		select {
		case <-d.done:
			timer.Stop()
			return
		case <-timer.C:
			if time.Now().Before(s.lockedUntil()) {
				continue // it was renewed
			}
			s.r.mu.Lock()
			s.r.dropLocked(d)
			s.r.mu.Unlock()
			return
		case <-s.r.closing.Done():
			timer.Stop()
			s.abort(d)
			return
		}
	}
}

// abort releases a message when the receiver closes, unless the message is settled.
func (s *session) abort(d *delivery) {
	ctx, cancel := context.WithTimeout(s.r.graceful, closeGrace)
	defer cancel()
	transport.Await(ctx, &s.r.settlements)
	s.r.mu.Lock()
	_, isUnsettled := s.r.unsettled[d]
	if s.r.mode != core.TransactionNone { // in None Close sends the message again
		delete(s.r.unsettled, d)
	}
	s.r.mu.Unlock()
	if isUnsettled && s.r.mode != core.TransactionNone {
		_ = d.releaseUnplaced(ctx)
	}
}

// close ends the session's lock, and with it those of its messages.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(s.r.graceful, closeGrace)
	defer cancel()
	for _, m := range s.r.closeLink(ctx, s.client, s.sdk) {
		s.r.mu.Lock()
		s.r.arriveLocked(newDelivery(s.r, m, time.Now(), nil, s))
		s.r.mu.Unlock()
	}
}
