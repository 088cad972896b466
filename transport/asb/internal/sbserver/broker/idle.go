package broker

// useLocked records that a sender or a receiver uses an entity, or that it is changed.
// "Idleness" on page message-expiration: a queue without sends, receives, updates,
// scheduled messages and browsing; a topic without sends, updates and scheduled messages;
// a subscription without receives, updates, new rules and browsing.
func (b *Broker) useLocked(e *entity) {
	e.accessed = b.now
	if e.settings.AutoDeleteOnIdle < MaxTimeToLive && e.idle.position == 0 {
		b.agenda.set(&e.idle, b.now.add(e.settings.AutoDeleteOnIdle))
	}
}

// fireLocked deletes an entity that has been idle, or checks again later. A waiting
// receiver keeps an entity in use, as a scheduled message does.
func (e *entity) fireLocked(*event) {
	b := e.broker
	if e.settings.AutoDeleteOnIdle >= MaxTimeToLive {
		return
	}
	for _, s := range e.stores() {
		if len(s.consumers) > 0 || s.scheduled > 0 {
			e.accessed = b.now
		}
	}
	if at := e.accessed.add(e.settings.AutoDeleteOnIdle); at > b.now {
		b.agenda.set(&e.idle, at)
		return
	}
	b.removeLocked(e)
}
