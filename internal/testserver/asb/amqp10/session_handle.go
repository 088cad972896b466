package amqp10

import (
	"cmp"
	"slices"
)

func (s *session) attach(p *Attach) {
	c := s.conn
	c.mu.Lock()
	if c.ended || s.ended { // since the frame was read: nothing would end the link
		c.mu.Unlock()
		return
	}
	if s.links[p.Handle] != nil {
		c.mu.Unlock()
		s.fail(Errorf(ErrHandleInUse, "handle %d has a link already", p.Handle))
		return
	}
	if p.Handle > c.cfg.HandleMax {
		c.mu.Unlock()
		s.fail(Errorf(ErrResourceLimitExceeded, "handle %d; the highest is %d", p.Handle, c.cfg.HandleMax))
		return
	}
	l := &Link{session: s, request: p, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	if p.Role == RoleSender && p.InitialDeliveryCount != nil {
		l.deliveryCount = *p.InitialDeliveryCount
	}
	s.links[p.Handle] = l
	c.mu.Unlock()
	c.handler.Attach(l)
}

func (s *session) flow(p *Flow) {
	var l *Link
	if p.Handle != nil {
		var ok bool
		if l, ok = s.link(*p.Handle); !ok {
			return
		}
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.nextIncomingID = p.NextOutgoingID
	var next uint32 // the first one, before the client has the server's begin
	if p.NextIncomingID != nil {
		next = *p.NextIncomingID
	}
	s.remoteIncomingWindow = excess(p.IncomingWindow, s.nextOutgoingID-next)
	if s.remoteIncomingWindow > 0 {
		for _, l := range s.links {
			l.Wake()
		}
	}
	if l != nil {
		l.flowLocked(p)
		return
	}
	if len(s.asked) > 0 { // a client sends such flows as answers
		close(s.asked[0])
		s.asked = s.asked[1:]
	}
	if p.Echo {
		c.sendLocked(s.channel, s.flowLocked())
	}
}

func (s *session) transfer(p *Transfer) {
	l, ok := s.link(p.Handle)
	if !ok {
		return
	}
	c := s.conn
	c.mu.Lock()
	s.nextIncomingID++
	// Each frame is handled before the next one is read, so the window is never used up.
	if s.unreported++; s.unreported >= c.cfg.Window/2 {
		c.sendLocked(s.channel, s.flowLocked())
	}
	c.mu.Unlock()
	l.transfer(p)
}

// disposition passes the client's states of deliveries to their links. It skips
// deliveries that are already settled, or do not exist.
func (s *session) disposition(p *Disposition) {
	if p.Role == RoleSender {
		return // deliveries of the client are settled by the server alone
	}
	first, last := p.First, p.First
	if p.Last != nil {
		last = *p.Last
	}
	var settlements []settlement
	c := s.conn
	c.mu.Lock()
	take := func(id uint32) {
		u, ok := s.unsettled[id]
		if !ok {
			return
		}
		if p.Settled {
			delete(s.unsettled, id)
		}
		settlements = append(settlements, settlement{u.link, Settlement{ID: id, Ref: u.ref, State: p.State, Settled: p.Settled}})
	}
	if n := last - first; int(n) < len(s.unsettled) {
		for i := uint32(0); i <= n; i++ {
			take(first + i)
		}
	} else { // the range may be long, but the deliveries are few
		var ids []uint32
		for id := range s.unsettled {
			if id-first <= n {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b uint32) int { return cmp.Compare(a-first, b-first) })
		for _, id := range ids {
			take(id)
		}
	}
	c.mu.Unlock()
	for _, st := range settlements {
		st.link.outlet.Settle(st.Settlement)
	}
}

type settlement struct {
	link *Link
	Settlement
}

func (s *session) detach(p *Detach) {
	l, ok := s.link(p.Handle)
	if !ok {
		return
	}
	c := s.conn
	c.mu.Lock()
	delete(s.links, p.Handle)
	switch l.state {
	case linkAttaching: // the attach must be answered first
		l.refuseLocked(nil)
	case linkAttached:
		c.sendLocked(s.channel, &Detach{Handle: p.Handle, Closed: p.Closed})
	}
	closed := l.endLocked()
	c.mu.Unlock()
	if closed {
		l.notifyClosed()
	}
}
