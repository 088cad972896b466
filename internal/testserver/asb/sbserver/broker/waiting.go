package broker

import "slices"

// wakeLocked makes Ready be called after the operation.
func (c *Consumer) wakeLocked() {
	c.isWaiting = false
	if !c.ended && !c.isWoken {
		c.isWoken = true
		c.broker.wakeUps = append(c.broker.wakeUps, c)
	}
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

// wakeLocked wakes up all receivers that wait for messages.
func (s *store) wakeLocked() {
	for _, c := range s.waiting {
		c.wakeLocked()
	}
	s.waiting = s.waiting[:0]
}
