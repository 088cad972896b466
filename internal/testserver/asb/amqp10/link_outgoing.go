package amqp10

import "encoding/binary"

// pump sends the messages of the outlet until the link ends.
func (l *Link) pump() {
	c := l.session.conn
	defer c.pumps.Done()
	defer l.outlet.Closed()
	for {
		c.mu.Lock()
		credit, drain := l.credit, l.drain
		ended := l.state != linkAttached || c.closing
		c.mu.Unlock()
		if ended {
			<-l.done
			return
		}
		if credit > 0 {
			messages := l.outlet.Next(int(min(credit, sendBatch)))
			for i := range messages {
				if !l.send(&messages[i]) {
					l.outlet.Unsent(messages[i:])
					break
				}
			}
			if len(messages) > 0 {
				continue
			}
		}
		if drain {
			l.drained()
		}
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
	}
}

// drained uses up the credit, because there are no messages for it.
func (l *Link) drained() {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.drain || l.state != linkAttached {
		return
	}
	l.deliveryCount += l.credit
	l.credit = 0
	l.drain = false
	l.sendFlowLocked(true)
}

// send sends a message in as many frames as needed, and waits for the session's window
// and for earlier frames to be written. It returns false if the link ended before, or if
// the client has withdrawn the credit.
func (l *Link) send(m *Outgoing) bool {
	s, c := l.session, l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := m.Payload
	var id uint32
	for first := true; first || len(rest) > 0; first = false {
		for l.state == linkAttached && (s.remoteIncomingWindow == 0 || len(c.out) > pauseLinks) {
			if len(c.out) > pauseLinks {
				c.blocked = append(c.blocked, l)
			}
			c.mu.Unlock()
			select {
			case <-l.wake:
			case <-l.done:
			}
			c.mu.Lock()
		}
		if l.state != linkAttached || c.closing || first && l.credit == 0 {
			return false
		}
		t := Transfer{Handle: l.request.Handle, Settled: m.Settled}
		if first {
			id = s.nextDeliveryID
			s.nextDeliveryID++
			t.DeliveryID, t.DeliveryTag, t.MessageFormat = &id, m.Tag, &m.Format
			if !m.Settled {
				s.unsettled[id] = unsettled{l, m.Ref}
			}
			l.deliveryCount++
			l.credit--
		}
		rest = c.appendTransferLocked(s.channel, &t, rest)
		s.nextOutgoingID++
		s.remoteIncomingWindow--
	}
	return true
}

// appendTransferLocked appends a frame with as much of the payload as fits, and returns
// the rest.
func (c *Conn) appendTransferLocked(channel uint16, t *Transfer, payload []byte) []byte {
	start := len(c.out)
	b := c.out
	b = append(b, 0, 0, 0, 0, frameHeader/4, frameAMQP, byte(channel>>8), byte(channel))
	body := len(b)
	b, _ = t.appendTo(b) // its fields have AMQP types
	room := c.frameMax - (len(b) - start)
	if len(payload) > room {
		t.More = true
		b, _ = t.appendTo(b[:body])
		room = c.frameMax - (len(b) - start)
	} else {
		room = len(payload)
	}
	b = append(b, payload[:room]...)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))
	c.out = b
	c.wakeLocked()
	return payload[room:]
}

// AcceptOutgoing attaches a link on which the client receives. It reports whether the
// link is attached: if the client has disconnected, outlet is not used.
func (l *Link) AcceptOutgoing(outlet Outlet, r Reply) bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttaching {
		return false
	}
	l.outlet = outlet
	l.attachLocked(r)
	c.pumps.Add(1)
	go l.pump()
	return true
}
