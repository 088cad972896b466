package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
)

// confirmChannel is a channel with publisher confirms.
type confirmChannel struct {
	t      *Transport
	conn   *connection
	ch     *amqp.Channel
	closes chan *amqp.Error

	// returns has room for twice as many messages as can be unconfirmed, and is read before
	// each further maxUnconfirmed messages: the library's reader does not wait long for
	// room, and an unread return would make a lost message look accepted. The broker
	// returns a message before it confirms it, so the return is in the channel when the
	// confirm is done.
	returns chan amqp.Return

	abandoned chan struct{} // closed when the channel is abandoned
	discarded chan struct{} // closed when the abandoned channel is closed

	// Only the publisher's goroutine uses the next fields. Unconfirmed messages begin at
	// head.
	unconfirmed    []pendingConfirm
	head           int
	oldest         *amqp.DeferredConfirmation // the confirm that is waited for
	oldestSince    time.Time
	confirmTimeout time.Duration // for oldest
	confirmedAny   bool          // the broker has confirmed messages on this channel

	mu       sync.Mutex // guards the fields below
	returned map[string]string
	reason   error // why the channel was closed
}

// maxUnconfirmed is the maximum number of unconfirmed messages on a channel.
const maxUnconfirmed = 1024

// pendingConfirm is a written message without a confirm, as far as is known.
type pendingConfirm struct {
	confirm *amqp.DeferredConfirmation
	batch   *publishBatch
	copyID  string
}

const (
	// watchInterval is the interval of checks on a channel with unconfirmed messages.
	watchInterval = 500 * time.Millisecond

	// confirmTimeout is how long the first unconfirmed message may wait for its confirm,
	// from when it is the first, before the channel is abandoned; firstConfirmTimeout is
	// the same for a new channel. Brokers confirm within milliseconds or, under load, a
	// second or two. But messages published to a quorum queue without a leader, as right
	// after a broker's start, may never be confirmed, and neither are later messages on the
	// same channel.
	//
	// After each abandoned channel the next one has twice the timeout, up to
	// maxConfirmTimeout: otherwise no confirm of a broker with a slow disk would ever
	// arrive in time.
	confirmTimeout      = 5 * time.Second
	firstConfirmTimeout = 2 * time.Second
	maxConfirmTimeout   = time.Minute
)

// collectConfirms forgets confirmed messages. With a beforeWait it also waits until one
// more message may be written. It abandons a channel that no longer confirms messages.
func (c *confirmChannel) collectConfirms(beforeWait func()) {
	for c.head < len(c.unconfirmed) && !c.isAbandoned() {
		first := &c.unconfirmed[c.head]
		if isDone(first.confirm) {
			c.dropConfirmed(first)
			c.head++
			if c.head == len(c.unconfirmed) || c.head == maxUnconfirmed {
				n := copy(c.unconfirmed, c.unconfirmed[c.head:])
				clear(c.unconfirmed[n:])
				c.unconfirmed, c.head = c.unconfirmed[:n], 0
			}
			continue
		}
		c.checkTimeout(first.confirm)
		if beforeWait == nil || c.hasRoom() {
			return
		}
		beforeWait()
		timer := time.NewTimer(watchInterval)
		select { // the end of the channel ends all confirms
		case <-first.confirm.Done():
		case <-c.unconfirmed[c.head+maxUnconfirmed/2].confirm.Done(): // the first may be to a queue without a leader
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

// dropConfirmed forgets a message.
func (c *confirmChannel) dropConfirmed(u *pendingConfirm) {
	c.confirmedAny, c.confirmTimeout = true, confirmTimeout
	c.discardReturn(u)
	*u = pendingConfirm{}
}

// hasRoom reports whether one more message may be written. It makes room by forgetting
// confirmed messages behind the first.
func (c *confirmChannel) hasRoom() bool {
	if len(c.unconfirmed)-c.head < maxUnconfirmed {
		return true
	}
	left := c.unconfirmed[:c.head]
	for i := c.head; i < len(c.unconfirmed); i++ {
		if u := &c.unconfirmed[i]; isDone(u.confirm) {
			c.dropConfirmed(u)
		} else {
			left = append(left, *u)
		}
	}
	clear(c.unconfirmed[len(left):])
	c.unconfirmed = left
	return len(c.unconfirmed)-c.head < maxUnconfirmed
}

func (c *confirmChannel) setOldest(first *amqp.DeferredConfirmation) {
	c.oldest, c.oldestSince = first, time.Now()
}

// checkTimeout abandons the channel if it has waited too long for the first message. Time
// during which the broker blocks connections does not count.
func (c *confirmChannel) checkTimeout(first *amqp.DeferredConfirmation) {
	if c.oldest != first {
		c.setOldest(first)
	}
	if c.t.blocked.unblockedTime(c.oldestSince) < c.confirmTimeout {
		return
	}
	c.mu.Lock()
	c.reason = fmt.Errorf("the broker has not confirmed a message for %v", c.confirmTimeout)
	c.mu.Unlock()
	close(c.abandoned)
	c.unconfirmed, c.head, c.oldest = nil, 0, nil
	if !c.t.life.Go(c.discard) {
		close(c.discarded)
	}
}

// discard closes an abandoned channel. If the broker does not answer that either, it closes
// the connection.
func (c *confirmChannel) discard() {
	defer close(c.discarded)
	hopeless := time.AfterFunc(grace, func() { closeConnection(c.conn, time.Now()) })
	defer hopeless.Stop()
	_ = c.ch.Close()
}

func (c *confirmChannel) isAbandoned() bool {
	select {
	case <-c.abandoned:
		return true
	default:
		return false
	}
}

// discardReturn drops the return of a message whose caller has stopped waiting.
func (c *confirmChannel) discardReturn(u *pendingConfirm) {
	u.batch.mu.Lock()
	canceled := u.batch.canceled
	u.batch.mu.Unlock()
	if canceled {
		c.collectReturns()
		c.mu.Lock()
		delete(c.returned, u.copyID)
		c.mu.Unlock()
	}
}

// collectReturns records the messages returned so far.
func (c *confirmChannel) collectReturns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		select {
		case r, ok := <-c.returns:
			if !ok {
				return // the channel is closed
			}
			if id, ok := r.Headers[header.CopyID].(string); ok {
				c.returned[id] = fmt.Sprintf("%d %s", r.ReplyCode, r.ReplyText)
			}
		default:
			return
		}
	}
}

// outcome returns the result of a publication that was written.
func (c *confirmChannel) outcome(ctx context.Context, m *publication) (core.SendState, error) {
	select {
	case <-m.confirm.Done():
	default:
		err := ctx.Err()
		if c.isAbandoned() {
			err = c.closeReason()
		}
		return core.SendUnknown, fmt.Errorf("waiting for its confirm: %w", err)
	}
	c.mu.Lock()
	text, returned := c.returned[m.copyID]
	delete(c.returned, m.copyID)
	c.mu.Unlock()
	switch {
	case returned:
		return core.SendRefused, fmt.Errorf("%w: the broker returned the message: %s", core.ErrQueueNotFound, text)
	case m.confirm.Acked():
		return core.SendAccepted, nil
	}
	if c.ch.IsClosed() || c.isAbandoned() {
		err := c.closeReason()
		if err == nil {
			err = errors.New("the channel was closed")
		}
		return core.SendUnknown, fmt.Errorf("the connection was lost before its confirm: %w", err)
	}
	if m.event || !m.mandatory { // some of a topic's queues may have the message
		return core.SendUnknown, errNegative
	}
	return core.SendRefused, errNegative
}

var errNegative = errors.New("the broker confirmed negatively: the queue is full (x-max-length with reject-publish), or has no leader")

// closeReason returns the reason for which the channel was closed, or nil.
func (c *confirmChannel) closeReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case e := <-c.closes:
		if e != nil {
			c.reason = e
		}
	default:
	}
	return c.reason
}
