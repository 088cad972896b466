package amqp10

// sendBatch is the most deliveries that a link takes from its outlet at once.
const sendBatch = 64

type linkState int

const (
	linkAttaching linkState = iota // the broker has not decided
	linkAttached
	linkDetaching // the server has detached it, and the client has not answered
	linkEnded
)

// Link is a link that a client has attached. Its methods may be called concurrently.
type Link struct {
	session *session
	request *Attach
	inlet   Inlet  // of an incoming link
	outlet  Outlet // of an outgoing link
	done    chan struct{}
	wake    chan struct{}

	// The connection's mutex guards the following fields.

	state         linkState
	deliveryCount uint32
	credit        uint32

	// Of an outgoing link.
	drain bool

	// Of an incoming link. Only the reader uses them, except for window.
	window     uint32 // the credit of the client
	maxMessage uint64 // 0: no limit
	partial    *Incoming
}

// Inlet accepts the messages of an incoming link, on which the client sends.
type Inlet interface {
	// Transfer accepts a message. The connection reads no other frame until it returns.
	// Unless the message is settled, the broker calls Settle of the link with its ID, at
	// any time.
	Transfer(m Incoming)

	// Closed is called once, when the link has ended.
	Closed()
}

// Incoming is a message that a client sent.
type Incoming struct {
	ID      uint32
	Tag     []byte
	Format  uint32
	Settled bool
	Payload []byte // belongs to the connection after Transfer has returned
	State   State  // usually nil
}

// Outlet provides the messages of an outgoing link, on which the client receives.
type Outlet interface {
	// Next returns up to n available messages, without waiting. The link's goroutine
	// calls it when the client has given credit, and again after Wake of the link.
	Next(n int) []Outgoing

	// Unsent returns messages to the outlet that Next returned, and that were not sent
	// because the link ended or the client withdrew its credit.
	Unsent(messages []Outgoing)

	// Settle accepts the client's state of a delivery. The connection reads no other
	// frame until it returns. Unless the client has settled the delivery, the broker
	// calls Settle of the link with its ID, at any time; before that the client may send
	// another state.
	Settle(s Settlement)

	// Closed is called once, when the link has ended. Next is not called after it.
	Closed()
}

// Outgoing is a message for a client.
type Outgoing struct {
	Tag     []byte // up to 32 bytes
	Format  uint32
	Settled bool
	Payload []byte
	Ref     any // is passed to Settle
}

// Settlement is a client's state of a delivery.
type Settlement struct {
	ID      uint32
	Ref     any
	State   State // nil: none
	Settled bool
}

// Reply is a broker's acceptance of a link. Source and target default to those of the
// client.
type Reply struct {
	Source         *Source
	Target         *Target
	Properties     Map
	MaxMessageSize uint64 // 0: no limit
	Credit         uint32 // of an incoming link: most waiting messages; default 1000
}

// Name returns the client's name for the link.
func (l *Link) Name() string { return l.request.Name }

// Request returns the client's attach, which belongs to the link.
func (l *Link) Request() *Attach { return l.request }

// Incoming reports whether the client sends on the link, rather than receives.
func (l *Link) Incoming() bool { return l.request.Role == RoleSender }

// Address returns the node on the server's side of the link, or "" if there is none.
func (l *Link) Address() string {
	switch {
	case l.Incoming() && l.request.Target != nil:
		return l.request.Target.Address
	case !l.Incoming() && l.request.Source != nil:
		return l.request.Source.Address
	}
	return ""
}

// Done is closed when the link ends.
func (l *Link) Done() <-chan struct{} { return l.done }

// Wake makes the link's goroutine call Next of its outlet if there is credit.
func (l *Link) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// AcceptIncoming attaches a link on which the client sends. It reports whether the link
// is attached: if the client has disconnected, inlet is not used.
func (l *Link) AcceptIncoming(inlet Inlet, r Reply) bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttaching {
		return false
	}
	l.inlet = inlet
	l.maxMessage = r.MaxMessageSize
	l.window = r.Credit
	if l.window == 0 {
		l.window = 1000
	}
	l.attachLocked(r)
	l.replenishLocked()
	return true
}

func (l *Link) attachLocked(r Reply) {
	p := l.request
	reply := &Attach{
		Name:               p.Name,
		Handle:             p.Handle,
		Role:               !p.Role,
		SenderSettleMode:   p.SenderSettleMode,
		ReceiverSettleMode: p.ReceiverSettleMode,
		Source:             r.Source,
		Target:             r.Target,
		MaxMessageSize:     r.MaxMessageSize,
		Properties:         r.Properties,
	}
	if reply.Source == nil {
		reply.Source = p.Source
	}
	if reply.Source == nil {
		reply.Source = &Source{}
	}
	if reply.Target == nil {
		reply.Target = p.Target
	}
	if reply.Target == nil {
		reply.Target = &Target{}
	}
	if reply.Role == RoleSender {
		reply.InitialDeliveryCount = new(uint32)
	}
	l.state = linkAttached
	l.session.conn.sendLocked(l.session.channel, reply)
}

// Refuse answers the client's attach with err.
func (l *Link) Refuse(err *Error) {
	c := l.session.conn
	c.mu.Lock()
	if l.state != linkAttaching {
		c.mu.Unlock()
		return
	}
	l.refuseLocked(err)
	c.mu.Unlock()
}

// refuseLocked attaches the link without a terminus and detaches it: AMQP 1.0, part 2, section
// 2.6.3.
func (l *Link) refuseLocked(err *Error) {
	c, s, p := l.session.conn, l.session, l.request
	reply := &Attach{Name: p.Name, Handle: p.Handle, Role: !p.Role, SenderSettleMode: p.SenderSettleMode, ReceiverSettleMode: p.ReceiverSettleMode}
	if reply.Role == RoleSender {
		reply.InitialDeliveryCount = new(uint32)
	}
	c.sendLocked(s.channel, reply)
	c.sendLocked(s.channel, &Detach{Handle: p.Handle, Closed: true, Error: err})
	l.state = linkDetaching
	close(l.done)
}

// Detach detaches the link with err, which may be nil.
func (l *Link) Detach(err *Error) {
	c := l.session.conn
	c.mu.Lock()
	if l.state == linkAttaching {
		l.refuseLocked(err)
		c.mu.Unlock()
		return
	}
	closed := l.endLocked()
	if closed {
		c.sendLocked(l.session.channel, &Detach{Handle: l.request.Handle, Closed: true, Error: err})
		l.state = linkDetaching // the handle becomes free when the client has answered
	}
	c.mu.Unlock()
	if closed {
		l.notifyClosed()
	}
}

// SetWindow opens or closes the window of the link's session. While it is closed, a client
// may send no messages on the session. The function that it returns waits until the client
// has answered, or the link has ended; it must not be called by the connection's reader.
func (l *Link) SetWindow(open bool) (wait func()) {
	s, c := l.session, l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.shut = !open
	f := s.flowLocked()
	f.Echo = true
	c.sendLocked(s.channel, f)
	answered := make(chan struct{})
	s.asked = append(s.asked, answered)
	return func() {
		select {
		case <-answered:
		case <-l.done:
		case <-c.done:
		}
	}
}

// endLocked ends the link. It reports whether the link was attached until now: if so, the
// caller must call notifyClosed without the mutex.
func (l *Link) endLocked() bool {
	state := l.state
	l.state = linkEnded
	switch state {
	case linkAttaching:
		close(l.done)
		return false
	case linkAttached:
		close(l.done)
		for id, u := range l.session.unsettled {
			if u.link == l {
				delete(l.session.unsettled, id)
			}
		}
		return true
	}
	return false
}

// notifyClosed tells the broker that the link has ended. The goroutine of an outgoing
// link does that itself.
func (l *Link) notifyClosed() {
	if l.inlet != nil {
		l.inlet.Closed()
	}
}

// replenishLocked gives the client of an incoming link its credit.
func (l *Link) replenishLocked() {
	l.credit = l.window
	l.sendFlowLocked(false)
}

// sendFlowLocked sends the link's credit to the client.
func (l *Link) sendFlowLocked(drain bool) {
	f := l.session.flowLocked()
	handle, count, credit := l.request.Handle, l.deliveryCount, l.credit
	f.Handle, f.DeliveryCount, f.LinkCredit, f.Drain = &handle, &count, &credit, drain
	l.session.conn.sendLocked(l.session.channel, f)
}

// flowLocked applies a client's flow for the link.
func (l *Link) flowLocked(p *Flow) {
	if l.state != linkAttached {
		return
	}
	if l.outlet != nil && p.LinkCredit != nil {
		var count uint32 // the first one, before the client has the server's attach
		if p.DeliveryCount != nil {
			count = *p.DeliveryCount
		}
		l.credit = excess(*p.LinkCredit, l.deliveryCount-count)
		l.drain = p.Drain
		l.Wake()
	}
	if p.Echo {
		l.sendFlowLocked(false)
	}
}

// Settle settles the delivery with the ID and sends its outcome to the client.
func (l *Link) Settle(id uint32, outcome State) {
	s, c := l.session, l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached {
		return
	}
	role := RoleReceiver
	if l.outlet != nil {
		role = RoleSender
		delete(s.unsettled, id)
	}
	c.sendLocked(s.channel, &Disposition{Role: role, First: id, Settled: true, State: outcome})
}
