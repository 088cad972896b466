package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// outbox is a channel with publisher confirms.
type outbox struct {
	t      *Transport
	conn   *connection
	ch     *amqp.Channel
	closes chan *amqp.Error

	// returns has room for twice as many messages as can be unconfirmed, and is read before
	// each further window of messages: the library's reader does not wait long for room,
	// and an unread return would make a lost message look accepted. The broker returns a
	// message before it confirms it, so the return is in the channel when the confirm is
	// done.
	returns chan amqp.Return

	given     chan struct{} // closed when the channel is given up
	discarded chan struct{} // closed when the channel is closed

	// Only the publisher's goroutine uses the next fields. Unconfirmed messages begin at
	// head.
	under    []underWay
	head     int
	first    *amqp.DeferredConfirmation // the confirm that is waited for
	since    time.Time
	patience time.Duration // for first
	heard    bool          // the broker has confirmed messages on this channel

	mu       sync.Mutex // guards the fields below
	returned map[string]string
	reason   error // why the channel was closed
}

// window is the maximum number of unconfirmed messages on a channel.
const window = 1024

// underWay is a written message without a confirm, as far as is known.
type underWay struct {
	confirm *amqp.DeferredConfirmation
	of      *parcel
	copyID  string
}

const (
	// watchEvery is the interval of checks on a channel with unconfirmed messages.
	watchEvery = 500 * time.Millisecond

	// patience is how long the first unconfirmed message may wait for its confirm, from
	// when it is the first, before the channel is given up; firstPatience is the same for a
	// new channel. Brokers confirm within milliseconds or, under load, a second or two. But
	// messages published to a quorum queue without a leader, as right after a broker's
	// start, may never be confirmed, and neither are later messages on the same channel.
	//
	// After each channel that was given up the next one has twice the patience, up to
	// mostPatience: otherwise no confirm of a broker with a slow disk would ever arrive in
	// time.
	patience      = 5 * time.Second
	firstPatience = 2 * time.Second
	mostPatience  = time.Minute
)

// admit forgets confirmed messages. With a beforeWait it also waits until one more message
// may be written. It gives up a channel that no longer confirms messages.
func (s *outbox) admit(beforeWait func()) {
	for s.head < len(s.under) && !s.isGiven() {
		first := &s.under[s.head]
		if isDone(first.confirm) {
			s.confirmed(first)
			s.head++
			if s.head == len(s.under) || s.head == window {
				n := copy(s.under, s.under[s.head:])
				clear(s.under[n:])
				s.under, s.head = s.under[:n], 0
			}
			continue
		}
		s.judge(first.confirm)
		if beforeWait == nil || s.room() {
			return
		}
		beforeWait()
		timer := time.NewTimer(watchEvery)
		select { // the end of the channel ends all confirms
		case <-first.confirm.Done():
		case <-s.under[s.head+window/2].confirm.Done(): // the first may be to a queue without a leader
		case <-timer.C:
		}
		timer.Stop()
	}
}

func isDone(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// confirmed forgets a message.
func (s *outbox) confirmed(u *underWay) {
	s.heard, s.patience = true, patience
	s.forget(u)
	*u = underWay{}
}

// room reports whether one more message may be written. It makes room by forgetting
// confirmed messages behind the first.
func (s *outbox) room() bool {
	if len(s.under)-s.head < window {
		return true
	}
	left := s.under[:s.head]
	for i := s.head; i < len(s.under); i++ {
		if u := &s.under[i]; isDone(u.confirm) {
			s.confirmed(u)
		} else {
			left = append(left, *u)
		}
	}
	clear(s.under[len(left):])
	s.under = left
	return len(s.under)-s.head < window
}

func (s *outbox) waitFor(first *amqp.DeferredConfirmation) {
	s.first, s.since = first, time.Now()
}

// judge gives the channel up if it has waited too long for the first message. The time of a
// blockade does not count.
func (s *outbox) judge(first *amqp.DeferredConfirmation) {
	if s.first != first {
		s.waitFor(first)
	}
	if s.t.blocked.waited(s.since) < s.patience {
		return
	}
	s.mu.Lock()
	s.reason = fmt.Errorf("the broker has not confirmed a message for %v", s.patience)
	s.mu.Unlock()
	close(s.given)
	s.under, s.head, s.first = nil, 0, nil
	if !s.t.life.Go(s.discard) {
		close(s.discarded)
	}
}

// discard closes a channel that was given up. If the broker does not answer that either, it
// closes the connection.
func (s *outbox) discard() {
	defer close(s.discarded)
	hopeless := time.AfterFunc(grace, func() { closeConnection(s.conn, time.Now()) })
	defer hopeless.Stop()
	_ = s.ch.Close()
}

func (s *outbox) isGiven() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}

// forget drops the return of a message whose caller has stopped waiting.
func (s *outbox) forget(u *underWay) {
	u.of.mu.Lock()
	unwanted := u.of.unwanted
	u.of.mu.Unlock()
	if unwanted {
		s.collectReturns()
		s.mu.Lock()
		delete(s.returned, u.copyID)
		s.mu.Unlock()
	}
}

// collectReturns records the messages returned so far.
func (s *outbox) collectReturns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				return // the channel is closed
			}
			if id, ok := r.Headers[copyIDHeader].(string); ok {
				s.returned[id] = fmt.Sprintf("%d %s", r.ReplyCode, r.ReplyText)
			}
		default:
			return
		}
	}
}

// outcome returns the result of a letter that was written.
func (s *outbox) outcome(ctx context.Context, l *letter) (core.SendState, error) {
	select {
	case <-l.confirm.Done():
	default:
		err := ctx.Err()
		if s.isGiven() {
			err = s.why()
		}
		return core.SendUnknown, fmt.Errorf("waiting for its confirm: %w", err)
	}
	s.mu.Lock()
	text, returned := s.returned[l.copyID]
	delete(s.returned, l.copyID)
	s.mu.Unlock()
	switch {
	case returned:
		return core.SendRefused, fmt.Errorf("%w: the broker returned the message: %s", core.ErrQueueNotFound, text)
	case l.confirm.Acked():
		return core.SendAccepted, nil
	}
	if s.ch.IsClosed() || s.isGiven() {
		err := s.why()
		if err == nil {
			err = errors.New("the channel was closed")
		}
		return core.SendUnknown, fmt.Errorf("the connection was lost before its confirm: %w", err)
	}
	if !l.mandatory { // some of a topic's queues may have the message
		return core.SendUnknown, errNegative
	}
	return core.SendRefused, errNegative
}

var errNegative = errors.New("the broker confirmed negatively: the queue is full (x-max-length with reject-publish), or has no leader")

// why returns the reason for which the channel was closed, or nil.
func (s *outbox) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case e := <-s.closes:
		if e != nil {
			s.reason = e
		}
	default:
	}
	return s.reason
}
