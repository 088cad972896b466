package broker

import (
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// FireLocked deletes an entity that has been idle, or checks again later. A waiting
// receiver keeps an entity in use, as a scheduled message does.
func (e *entity) FireLocked(*clock.Event) {
	b := e.broker
	if e.settings.AutoDeleteOnIdle >= properties.MaxTimeToLive {
		return
	}
	for _, s := range e.stores() {
		if len(s.consumers) > 0 || s.scheduled > 0 {
			e.accessed = b.now
		}
	}
	if at := e.accessed.Add(e.settings.AutoDeleteOnIdle); at > b.now {
		b.agenda.Set(&e.idle, at)
		return
	}
	b.removeLocked(e)
}
