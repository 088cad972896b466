package broker

import "time"

// limitTTL returns the time to live of a message in an entity; ttl is 0 if the sender gave none.
// "The default expiration is used for all messages sent to the entity where time-to-live isn't
// explicitly set", it "also functions as a ceiling", and longer values are "silently adjusted"
// (page message-expiration, "Entity-level expiration").
func (e *entity) limitTTL(ttl time.Duration) time.Duration {
	limit := e.settings.DefaultMessageTimeToLive
	if ttl <= 0 || ttl > limit {
		return limit
	}
	return ttl
}

// expireLocked removes a message whose time to live has ended: "all expiring messages are moved to
// the DLQ" with the reason TTLExpiredException if the entity is configured so (page
// service-bus-dead-letter-queues, "Time to live"); else they are dropped.
//
// Service Bus may do so later, when "there are clients actively listening" (page
// message-expiration); here it happens at the time.
func (s *store) expireLocked(m *message) {
	if s.entity.settings.DeadLetteringOnMessageExpiration {
		s.deadLetterLocked(m, "TTLExpiredException", "The message expired and was dead lettered.")
		return
	}
	s.removeLocked(m)
}
