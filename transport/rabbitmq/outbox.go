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

// outbox is one channel with publisher confirms.
type outbox struct {
	t      *Transport
	conn   *connection
	ch     *amqp.Channel
	closes chan *amqp.Error

	// returns has room for twice as many messages as can be under way, and is read before
	// each window of more is sent: the library's reader does not wait long for room, and
	// then a lost message would look accepted. A message is returned before it is
	// confirmed, so it is in there when its confirm is done.
	returns chan amqp.Return

	given     chan struct{} // closed when the channel is given up
	discarded chan struct{} // closed when it is closed

	// What follows is the publisher's goroutine's own. Those under way are from head on.
	under    []underWay
	head     int
	first    *amqp.DeferredConfirmation // that is waited for
	since    time.Time
	patience time.Duration // with first
	heard    bool          // there were confirms

	mu       sync.Mutex // guards what follows
	returned map[string]string
	reason   error // why the channel was closed
}

// window is how many messages may be under way on a channel without their confirms.
const window = 1024

// underWay is a message that is written but, as far as is known, not confirmed.
type underWay struct {
	confirm *amqp.DeferredConfirmation
	of      *parcel
	copyID  string
}

const (
	// watchEvery is how often a channel is looked at on which messages are under way.
	watchEvery = 500 * time.Millisecond

	// patience is how long the first of them may be waited for, from when it is the first,
	// before the channel is given up, and firstPatience that of a new channel. Brokers
	// confirm within milliseconds or, under load, a second or two. But what is published on
	// a channel to a quorum queue while that has no leader, as right after a broker's start,
	// may never be confirmed, and neither is what follows on the same channel.
	//
	// A broker whose disk is slow is waited for twice as long on each channel that follows
	// one that was given up, up to mostPatience: otherwise it would never be heard.
	patience      = 5 * time.Second
	firstPatience = 2 * time.Second
	mostPatience  = time.Minute
)

// admit forgets what has been confirmed and, if there is a beforeWait, waits until one more
// message may be under way. It gives a channel up that confirms nothing any more.
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
		select { // the end of the channel is the end of all
		case <-first.confirm.Done():
		case <-s.under[s.head+window/2].confirm.Done(): // the first may be of a queue that has no leader
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

// room reports whether one more message may be under way. It makes room where others than
// the first are confirmed.
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

// judge gives the channel up if it has waited for the first message for too long, but not
// because of a blockade.
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

// discard closes a channel that was given up, or where the broker does not even answer
// to that, the connection.
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

// forget drops the return of a message that nobody asks for any more.
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

// collectReturns takes what has been returned so far.
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

// outcome is what became of a letter that was written.
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
	if !l.mandatory { // some of a topic's queues may have it
		return core.SendUnknown, errNegative
	}
	return core.SendRefused, errNegative
}

var errNegative = errors.New("the broker confirmed negatively: the queue is full (x-max-length with reject-publish), or has no leader")

// why is the reason for which the channel was closed, or nil.
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
