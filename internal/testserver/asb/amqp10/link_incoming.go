package amqp10

// transfer handles a frame of a message on an incoming link.
func (l *Link) transfer(p *Transfer) {
	c := l.session.conn
	c.mu.Lock()
	state, credit := l.state, l.credit
	c.mu.Unlock()
	switch {
	case state == linkDetaching || state == linkEnded:
		return
	case state == linkAttaching || l.inlet == nil:
		l.session.fail(Errorf(ErrNotAllowed, "a transfer on handle %d, on which the client cannot send", p.Handle))
		return
	case l.partial == nil && credit == 0:
		l.Detach(Errorf(ErrTransferLimitExceeded, "a transfer without credit"))
		return
	case l.partial == nil && p.DeliveryID == nil:
		l.Detach(Errorf(ErrInvalidField, "a transfer without a delivery-id"))
		return
	case l.partial != nil && p.DeliveryID != nil && *p.DeliveryID != l.partial.ID:
		// "It is an error if the delivery-id on a continuation transfer differs from the delivery-id on the first transfer of a
		// delivery": AMQP 1.0, part 2, section 2.7.5.
		l.Detach(Errorf(ErrInvalidField, "a transfer of the delivery %d within the delivery %d", *p.DeliveryID, l.partial.ID))
		return
	}
	if p.Aborted {
		l.partial = nil
		return
	}
	m, whole := l.assemble(p)
	if m == nil {
		l.Detach(Errorf(ErrMessageSizeExceeded, "The received message (delivery-id:%d) exceeds the limit (%d bytes) currently allowed on the link.",
			*p.DeliveryID, l.maxMessage))
		return
	}
	if !whole {
		return
	}
	c.mu.Lock()
	l.deliveryCount++
	l.credit--
	if l.credit <= l.window/2 && l.state == linkAttached {
		l.replenishLocked()
	}
	c.mu.Unlock()
	l.inlet.Transfer(*m)
}

// assemble adds the frame to its message and reports whether the message is complete. It
// returns nil if the message is too large.
func (l *Link) assemble(p *Transfer) (m *Incoming, whole bool) {
	m = l.partial
	if m == nil {
		m = &Incoming{ID: *p.DeliveryID, Tag: append([]byte(nil), p.DeliveryTag...)}
		if p.MessageFormat != nil {
			m.Format = *p.MessageFormat
		}
	}
	if p.DeliveryID == nil {
		p.DeliveryID = &m.ID
	}
	if l.maxMessage > 0 && uint64(len(m.Payload)+len(p.Payload)) > l.maxMessage {
		l.partial = nil
		return nil, false
	}
	m.Settled = m.Settled || p.Settled
	if p.State != nil {
		m.State = p.State
	}
	if l.partial == nil && !p.More {
		m.Payload = p.Payload // part of the reader's buffer, which is valid until the next frame
		return m, true
	}
	m.Payload = append(m.Payload, p.Payload...)
	if p.More {
		l.partial = m
		return m, false
	}
	l.partial = nil
	return m, true
}
