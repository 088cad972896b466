package broker

import (
	"container/heap"
	"context"
	"slices"
	"time"
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
	Ended func(*Error)
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
// refused with [CondTimeout]. A named session that has a receiver is refused at once with
// [CondSessionCannotLock].
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
		return nil, nil, errorf(CondNotAllowed, "A sessionful message receiver cannot be created on an entity that does not require sessions: '%s'.", s.path())
	case !cfg.AcceptSession && s.sessions != nil:
		return nil, nil, errorf(CondNotAllowed, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: '%s'.", s.path())
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
	return c.session.lockedUntil.time()
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
	b.agenda.remove(&m.expiry)
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

// wakeLocked makes Ready be called after the operation.
func (c *Consumer) wakeLocked() {
	c.isWaiting = false
	if !c.ended && !c.isWoken {
		c.isWoken = true
		c.broker.wakeUps = append(c.broker.wakeUps, c)
	}
}

// ready calls Ready. It runs without the lock.
func (c *Consumer) ready() {
	c.broker.mu.Lock()
	c.isWoken = false
	ended := c.ended
	c.broker.mu.Unlock()
	if !ended && c.cfg.Ready != nil {
		c.cfg.Ready()
	}
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

// endLocked removes the consumer from its store.
func (c *Consumer) endLocked() {
	c.ended = true
	delete(c.store.consumers, c)
	if c.isWaiting {
		c.isWaiting = false
		c.store.waiting = slices.DeleteFunc(c.store.waiting, func(other *Consumer) bool { return other == c })
	}
}

// endConsumersLocked ends all consumers and acceptors of a store.
func (s *store) endConsumersLocked(err *Error) {
	for c := range s.consumers {
		c.endLocked()
		if c.session != nil {
			s.releaseSessionLocked(c.session)
		}
		s.entity.broker.endings = append(s.entity.broker.endings, ending{c, err})
	}
	for _, a := range s.acceptors {
		a.err = err
		a.consumer.endLocked()
		close(a.done)
	}
	s.acceptors = nil
}
