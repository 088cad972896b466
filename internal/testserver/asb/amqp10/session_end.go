package amqp10

// endLocked ends all links and returns them.
func (s *session) endLocked() []*Link {
	closed := make([]*Link, 0, len(s.links))
	for _, l := range s.links {
		if l.endLocked() {
			closed = append(closed, l)
		}
	}
	clear(s.links)
	clear(s.unsettled)
	return closed
}

// end answers the client's end.
func (s *session) end() {
	c := s.conn
	c.mu.Lock()
	closed := s.endLocked()
	delete(c.sessions, s.channel)
	if !s.ended && !c.losesEnds {
		c.sendLocked(s.channel, &End{})
	}
	c.mu.Unlock()
	for _, l := range closed {
		l.notifyClosed()
	}
}

// fail ends the session with an error.
func (s *session) fail(err *Error) {
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return
	}
	closed := s.endLocked()
	s.ended = true
	c.sendLocked(s.channel, &End{Error: err})
	c.mu.Unlock()
	for _, l := range closed {
		l.notifyClosed()
	}
}
