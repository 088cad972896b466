package conformance

import (
	"errors"
	"time"
)

var unansweredMutants = []mutant{
	{rule: "C6", name: "makes a return again that had no answer, by the message's id", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Abandon" && errors.Is(err, errNoAnswer) {
				s, id := d.receiver.transport.base.(*remote).server, d.in.NativeID
				time.AfterFunc(time.Second, func() { s.giveBack(id) })
			}
			return err
		}}
	}},
}

// giveBack returns the message, whoever holds it.
func (s *server) giveBack(nativeID string) {
	s.mu.Lock()
	connections := s.all()
	s.mu.Unlock()
	for _, c := range connections {
		c.mu.Lock()
		for d := range c.held {
			if d.Incoming().NativeID == nativeID {
				_ = d.Release(ctxBackground)
				delete(c.held, d)
			}
		}
		c.mu.Unlock()
	}
}
