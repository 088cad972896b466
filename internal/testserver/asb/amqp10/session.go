package amqp10

import (
	"math"
)

// session is a session of a connection, whose mutex guards the fields. The reader calls its
// methods. Its channel and the handles of its links are those that the client has chosen.
type session struct {
	conn    *Conn
	channel uint16

	nextIncomingID       uint32
	unreported           uint32 // transfer frames since the client last got the window
	nextOutgoingID       uint32
	remoteIncomingWindow uint32
	nextDeliveryID       uint32
	links                map[uint32]*Link
	unsettled            map[uint32]unsettled // by delivery-id
	shut                 bool                 // the client may send no transfers
	asked                []chan<- struct{}    // closed one by one, as the client answers flows
	ended                bool                 // the server has ended it, and the client has not answered
}

// unsettled is a delivery of an outgoing link that the client has not settled.
type unsettled struct {
	link *Link
	ref  any
}

// discards reports whether p must be ignored because the server has ended the session.
func (s *session) discards(p Performative) bool {
	if _, ok := p.(*End); ok {
		return false
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.ended
}

// flowLocked returns a flow with the state of the session.
func (s *session) flowLocked() *Flow {
	s.unreported = 0
	next := s.nextIncomingID
	window := s.conn.cfg.Window
	if s.shut {
		window = 0
	}
	return &Flow{
		NextIncomingID: &next,
		IncomingWindow: window,
		NextOutgoingID: s.nextOutgoingID,
		OutgoingWindow: math.MaxInt32,
	}
}

// link returns the link with a handle. If there is none, it ends the session and returns false.
func (s *session) link(handle uint32) (*Link, bool) {
	s.conn.mu.Lock()
	l := s.links[handle]
	s.conn.mu.Unlock()
	if l == nil {
		s.fail(Errorf(ErrUnattachedHandle, "handle %d has no link", handle))
	}
	return l, l != nil
}

// excess returns the unused part of a window.
func excess(window, used uint32) uint32 {
	if used >= window {
		return 0
	}
	return window - used
}
