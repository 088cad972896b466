package broker

import (
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// An ending is the reason for which a consumer gets no more messages.
type ending struct {
	consumer *Consumer
	err      *condition.Error
}

// lock begins an operation: when it returns, all due events have been handled.
func (b *Broker) lock() {
	b.mu.Lock()
	b.now = max(b.now, clock.At(b.clock.Now()))
	for ev := b.agenda.Pop(b.now); ev != nil; ev = b.agenda.Pop(b.now) {
		ev.Owner.FireLocked(ev)
	}
}

// unlock ends an operation: it writes the journal, then wakes up consumers. It returns
// the error of the journal.
func (b *Broker) unlock() error {
	wakeUps, endings := b.wakeUps, b.endings
	b.wakeUps, b.endings = nil, nil
	b.armLocked()
	b.collectLocked()
	b.mu.Unlock()
	err := b.flush()
	for _, c := range wakeUps {
		c.ready()
	}
	for _, e := range endings {
		if e.consumer.cfg.Ended != nil {
			e.consumer.cfg.Ended(e.err)
		}
	}
	return err
}

// finish is unlock for functions that return an error by name.
func (b *Broker) finish(err *error) {
	if failed := b.unlock(); *err == nil && failed != nil {
		*err = failed
	}
}

// armLocked makes the timer call tick at the next event. A timer that is early enough is
// kept.
func (b *Broker) armLocked() {
	if b.closed {
		if b.disarm != nil {
			b.disarm()
		}
		return
	}
	next := b.agenda.Next()
	if next == 0 || b.armed != 0 && b.armed <= next {
		return
	}
	if b.disarm != nil {
		b.disarm()
	}
	b.armed = next
	// The clock's now may be within the millisecond before next.
	b.disarm = b.clock.AfterFunc(next.Time().Sub(b.clock.Now()), func() { b.tick(next) })
}

// tick handles all due events.
func (b *Broker) tick(armed clock.Instant) {
	b.lock()
	if b.armed == armed {
		b.armed = 0
	}
	_ = b.unlock() // the journal keeps its error for the next operation
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
