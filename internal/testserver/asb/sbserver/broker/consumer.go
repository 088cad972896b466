package broker

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// A ReceiveMode decides when a message leaves its queue (page
// message-transfers-locks-settlement).
type ReceiveMode int

// The values of ReceiveMode. The zero value is PeekLock.
const (
	PeekLock         ReceiveMode = iota // when the receiver completes it
	ReceiveAndDelete                    // when it is delivered
)

// A ConsumerConfig configures a [Consumer].
type ConsumerConfig struct {
	Mode ReceiveMode
	// AcceptSession asks for a session: the one that Session names, or the next one that has
	// messages and no receiver if Session is nil.
	AcceptSession bool
	Session       *string
	// Ready is called when there may be messages for a consumer whose last call of
	// [Consumer.Next] returned fewer than it asked for. It may call the consumer. It is also
	// called once for a consumer that never called Next.
	Ready func()
	// Ended is called at most once, when the consumer gets no more messages: its entity was
	// deleted or disabled, or it lost the lock of its session. It is not called after
	// [Consumer.Close].
	Ended func(*condition.Error)
}

// A Consumer is a receiver of one queue, subscription, dead-letter queue or session.
type Consumer struct {
	broker    *Broker
	store     *store
	cfg       ConsumerConfig
	session   *session // nil without sessions
	sessionID string
	isWaiting bool // in store.waiting
	isWoken   bool // in broker.wakeUps
	ended     bool
}

// Consume adds a receiver to the queue, subscription or dead-letter queue with a path. It waits
// for a session until ctx is done if [ConsumerConfig] asks for the next session, and is then
// refused with [condition.Timeout]. A named session that has a receiver is refused at once with
// [condition.SessionCannotLock].
func (b *Broker) Consume(ctx context.Context, path string, cfg ConsumerConfig) (*Consumer, error) {
	c, wait, err := b.attach(path, cfg)
	if err != nil || wait == nil {
		return c, err
	}
	select {
	case <-wait.done:
	case <-ctx.Done():
	}
	return b.stopAccepting(wait)
}

// attach adds a consumer, or an acceptor for one that waits for a session.
func (b *Broker) attach(path string, cfg ConsumerConfig) (c *Consumer, wait *acceptor, err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, nil, err
	}
	e := s.entity
	if err := e.receiveRefusal(s.subqueue); err != nil {
		return nil, nil, err
	}
	if cfg.AcceptSession {
		e.requireSessionsLocked()
	}
	c = &Consumer{broker: b, store: s, cfg: cfg}
	switch {
	case cfg.AcceptSession && s.sessions == nil:
		return nil, nil, condition.Errorf(condition.NotAllowed, "A sessionful message receiver cannot be created on an entity that does not require sessions: '%s'.", s.path())
	case !cfg.AcceptSession && s.sessions != nil:
		return nil, nil, condition.Errorf(condition.NotAllowed, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: '%s'.", s.path())
	case cfg.AcceptSession:
		wait, err = s.acceptLocked(c)
		if err != nil {
			return nil, nil, err
		}
	}
	s.consumers[c] = struct{}{}
	if wait == nil {
		c.waitLocked()
	}
	return c, wait, nil
}

// SessionID returns the id of the consumer's session, "" without one.
func (c *Consumer) SessionID() string { return c.sessionID }

// SessionLockedUntil returns the time at which the lock of the consumer's session ends unless it
// is renewed. It is zero without a session, and after the lock was lost.
func (c *Consumer) SessionLockedUntil() time.Time {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.session == nil || c.session.holder != c {
		return time.Time{}
	}
	return c.session.lockedUntil.Time()
}

// Next returns at most limit messages that are available now, in their order.
func (c *Consumer) Next(limit int) []Delivery {
	b := c.broker
	b.lock()
	taken := c.takeLocked(limit)
	if err := b.unlock(); err != nil {
		return nil // the journal has failed: the messages were not delivered
	}
	deliveries := make([]Delivery, len(taken))
	for i := range taken {
		deliveries[i] = taken[i].delivery()
	}
	return deliveries
}

func (c *Consumer) takeLocked(limit int) []snapshot {
	if c.ended {
		return nil
	}
	s := c.store
	list := &s.available
	if c.session != nil {
		list = &c.session.available
	}
	c.broker.useLocked(s.entity)
	taken := make([]snapshot, 0, min(limit, len(*list)))
	for len(taken) < limit {
		if len(*list) == 0 {
			c.waitLocked()
			break
		}
		m := heap.Pop(list).(*message)
		taken = append(taken, s.deliverLocked(m, c, c.cfg.Mode))
	}
	return taken
}

// deliverLocked delivers a message that is in no list to a receiver.
func (s *store) deliverLocked(m *message, c *Consumer, mode ReceiveMode) snapshot {
	m.holder = c
	if mode == ReceiveAndDelete {
		m.state = locked // in no list of the store
		taken := m.snapshot()
		s.removeLocked(m)
		return taken
	}
	b := s.entity.broker
	// An expiration "doesn't affect messages that are currently locked for delivery" (page
	// message-expiration).
	b.agenda.Remove(&m.expiry)
	m.state, m.lock = locked, newLockToken()
	s.locks[m.lock] = m
	if m.session != nil {
		m.session.locked[m] = struct{}{}
	}
	s.lockUntilLocked(m)
	return m.snapshot()
}

// waitLocked registers the consumer to be woken up at the next message.
func (c *Consumer) waitLocked() {
	if c.session != nil {
		if c.session.holder == c {
			c.session.isWaiting = true
			if len(c.session.available) > 0 {
				c.store.offerSessionLocked(c.session)
			}
		}
		return
	}
	if c.isWaiting {
		return
	}
	if len(c.store.available) > 0 {
		c.wakeLocked()
		return
	}
	c.isWaiting = true
	c.store.waiting = append(c.store.waiting, c)
}

// Close removes the consumer. Its message locks stay until they end or the messages are settled,
// but the messages of a session become available again.
func (c *Consumer) Close() error {
	c.broker.lock()
	if !c.ended {
		c.endLocked()
		if c.session != nil {
			c.store.releaseSessionLocked(c.session)
		}
	}
	return c.broker.unlock()
}

// An acceptor is a receiver that waits for a session.
type acceptor struct {
	consumer *Consumer
	done     chan struct{} // closed when the consumer has a session, or err is set
	granted  bool
	err      *condition.Error
}

// acceptLocked gives a session to a consumer, or returns an acceptor that waits for one.
// A named session need not have messages.
func (s *store) acceptLocked(c *Consumer) (*acceptor, error) {
	if id := c.cfg.Session; id != nil {
		if n := s.sessions[*id]; n != nil && n.holder != nil {
			return nil, condition.Errorf(condition.SessionCannotLock, "The requested session '%s' cannot be accepted. It may be locked by another receiver.", *id)
		}
		s.grantLocked(s.sessionLocked(*id), c)
		return nil, nil
	}
	if first := s.offers.Front(); first != nil {
		s.grantLocked(first.Value.(*session), c)
		return nil, nil
	}
	a := &acceptor{consumer: c, done: make(chan struct{})}
	s.acceptors = append(s.acceptors, a)
	return a, nil
}

// stopAccepting returns the consumer if it has got a session, and otherwise refuses it.
func (b *Broker) stopAccepting(a *acceptor) (c *Consumer, err error) {
	b.lock()
	defer b.finish(&err)
	c = a.consumer
	switch {
	case a.granted:
		if !c.ended {
			c.waitLocked()
		}
		return c, nil
	case a.err != nil:
		return nil, a.err
	}
	c.store.acceptors = slices.DeleteFunc(c.store.acceptors, func(other *acceptor) bool { return other == a })
	c.endLocked()
	return nil, condition.Errorf(condition.Timeout, "The operation did not complete within the allotted timeout: no session of '%s' is available.", c.store.path())
}

// requireSessionsLocked turns a queue that was created by its first use into one with
// sessions, unless it has a receiver. Its messages without a session id belong to the
// session "".
func (e *entity) requireSessionsLocked() {
	s := e.main
	if !e.automatic || s.sessions != nil || len(s.consumers) > 0 {
		return
	}
	e.settings.RequiresSession = true
	e.changeLocked()
	messages := s.messages.all()
	for _, m := range messages {
		if m.state == locked {
			s.unlockLocked(m)
			s.returnLocked(m)
		}
	}
	s.sessions, s.available = map[string]*session{}, nil
	for _, m := range messages {
		if m.state == gone {
			continue
		}
		m.session = s.sessionLocked(m.content.Session)
		m.session.messages++
		if m.state == available {
			s.offerLocked(m)
		}
	}
}
