//go:build darwin || linux

package sbserver

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

// Op is an operation of a client that is counted and can be made to fail.
type Op string

// The operations. Those from OpComplete to OpDeadLetter are settlements, on the link of the
// delivery or by update-disposition on $management; those from OpRenewLock on are requests on
// $management by their names there.
const (
	OpConnect        Op = "connect"
	OpAttachSender   Op = "attach-sender"
	OpAttachReceiver Op = "attach-receiver"
	OpSend           Op = "send"    // a message or a batch
	OpDeliver        Op = "deliver" // a message to a receiver
	OpComplete       Op = "complete"
	OpAbandon        Op = "abandon"
	OpRelease        Op = "release"
	OpDefer          Op = "defer"
	OpDeadLetter     Op = "dead-letter"
	OpToken          Op = "put-token"
	OpAdministration Op = "administration" // a request of the administration API

	OpRenewLock       Op = "renew-lock"
	OpRenewSession    Op = "renew-session-lock"
	OpPeek            Op = "peek-message"
	OpReceiveDeferred Op = "receive-by-sequence-number"
	OpSchedule        Op = "schedule-message"
	OpCancelScheduled Op = "cancel-scheduled-message"
	OpGetSessionState Op = "get-session-state"
	OpSetSessionState Op = "set-session-state"
	OpListSessions    Op = "get-message-sessions"
)

// Action is the effect of a Fault on an operation.
type Action int

// The actions.
const (
	// Proceed continues the operation, after the delay of the fault.
	Proceed Action = iota

	// Refuse answers with the error of the fault. The default error is [ServerBusy].
	Refuse

	// Silence sends no answer: the reply or the delivery is lost.
	Silence

	// Detach detaches the link with the error. The default is amqp:link:detach-forced.
	Detach

	// CloseConnection closes the connection with the error. The default is amqp:connection:forced.
	CloseConnection

	// Cut resets the connection.
	Cut

	// CloseWindow closes the window of the link's session, and continues the operation. The
	// client can send no more messages on the session.
	CloseWindow
)

// ServerBusy is the answer of Service Bus to a client that it throttles (page
// service-bus-throttling).
var ServerBusy = &amqp10.Error{
	Condition:   "com.microsoft:server-busy",
	Description: "The request was terminated because the namespace is being throttled. Error code: 50009. Please wait 2 seconds and try again.",
}

// Fault makes operations fail.
type Fault struct {
	// Ops are the operations. The default is all except OpConnect and OpAdministration.
	Ops []Op

	// Entity is the path of the only entity whose operations fail, in any case. The default is
	// all entities.
	Entity string

	// Skip is the number of operations that succeed before the first failure.
	Skip int

	// Times is the number of operations that fail. The default is 1; a negative number
	// means no limit.
	Times int

	// TakesEffect makes the operation take effect before the action, so that the client
	// does not learn of its success.
	TakesEffect bool

	// Delay is the time before the action, or between the effect and the action. Operations that
	// arrive within that time are not delayed and overtake this one, other than deliveries.
	Delay time.Duration

	// Action is the effect on the operation. OpConnect is cut by any action; requests of
	// the administration API proceed, are refused or are cut, without effect.
	Action Action

	// Error is the error of the action.
	Error *amqp10.Error
}

// faults has the faults that act on operations.
type faults struct {
	any atomic.Bool // whether there are any

	mu    sync.Mutex
	armed []*Fault
}

// Inject applies f to operations from now on, and returns a function that removes it. If
// several faults match an operation, the earliest applies.
func (s *Server) Inject(f Fault) (remove func()) {
	if f.Times == 0 {
		f.Times = 1
	}
	f.Ops = slices.Clone(f.Ops)
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.armed = append(s.faults.armed, &f)
	s.faults.any.Store(true)
	return func() { s.faults.remove(&f) }
}

func (f *faults) remove(fault *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeLocked(fault)
}

func (f *faults) removeLocked(fault *Fault) {
	f.armed = slices.DeleteFunc(f.armed, func(other *Fault) bool { return other == fault })
	f.any.Store(len(f.armed) > 0)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = nil
	f.any.Store(false)
}

// take returns the fault that applies to an operation, or nil.
func (f *faults) take(op Op, entity string) *Fault {
	if !f.any.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.armed {
		if !fault.matches(op, entity) {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		taken := *fault
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.removeLocked(fault)
			}
		}
		return &taken
	}
	return nil
}

func (f *Fault) matches(op Op, entity string) bool {
	if len(f.Ops) == 0 {
		return op != OpConnect && op != OpAdministration && (f.Entity == "" || strings.EqualFold(f.Entity, entity))
	}
	return slices.Contains(f.Ops, op) && (f.Entity == "" || strings.EqualFold(f.Entity, entity))
}

// errorOr returns the error of the fault.
func (f *Fault) errorOr(condition amqp10.Symbol, description string) *amqp10.Error {
	if f.Error != nil {
		return f.Error
	}
	return &amqp10.Error{Condition: condition, Description: description}
}

// operation is an operation of a client.
type operation struct {
	op     Op
	entity string
	link   *amqp10.Link
	hold   func()               // copies the bytes that belong to the connection; may be nil
	run    func() *amqp10.Error // takes effect
	reply  func(*amqp10.Error)
	lost   func() // called in place of reply if there is none; may be nil
	wait   bool   // a delay blocks the caller
}

// perform counts the operation and carries it out, unless a fault changes that.
func (c *client) perform(o operation) {
	c.server.counts.add(o.op, o.entity)
	f := c.server.faults.take(o.op, o.entity)
	if f == nil {
		o.reply(o.run())
		return
	}
	run := o.run
	if f.TakesEffect {
		err := o.run()
		run = func() *amqp10.Error { return err }
	}
	switch {
	case f.Delay == 0:
		c.end(f, o, run)
	case o.wait:
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-o.link.Done():
		}
		c.end(f, o, run)
	default:
		if o.hold != nil {
			o.hold()
		}
		c.after(f.Delay, func() { c.end(f, o, run) })
	}
}

// end ends the operation as the fault specifies.
func (c *client) end(f *Fault, o operation, run func() *amqp10.Error) {
	switch f.Action {
	case Proceed:
		o.reply(run())
		return
	case CloseWindow:
		o.link.SetWindow(false)
		o.reply(run())
		return
	case Refuse:
		if o.lost == nil {
			o.reply(f.errorOr(ServerBusy.Condition, ServerBusy.Description))
			return
		}
	case Detach:
		o.link.Detach(f.errorOr(amqp10.ErrDetachForced, "The link was detached by the service."))
	case CloseConnection:
		c.goClose(f.errorOr(amqp10.ErrConnectionForced, "The connection was closed by the service."))
	case Cut:
		c.conn.Cut()
	}
	if o.lost != nil {
		o.lost()
	}
}

// goClose closes the connection in a goroutine, because its reader must not wait for it.
func (c *client) goClose(err *amqp10.Error) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if !c.run.ended {
		c.run.tasks.Go(func() { c.conn.Close(err) })
	}
}

// Connections returns the number of connections.
func (s *Server) Connections() int { return len(s.clients()) }

// CutConnections resets all connections and returns their number.
func (s *Server) CutConnections() int {
	clients := s.clients()
	for _, c := range clients {
		c.conn.Cut()
	}
	return len(clients)
}

// CloseConnections closes all connections with err and returns their number.
func (s *Server) CloseConnections(err *amqp10.Error) int {
	clients := s.clients()
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(func() { c.conn.Close(err) })
	}
	closing.Wait()
	return len(clients)
}

// DetachLinks detaches, with err, the links of senders and receivers of an entity, or of
// all entities if it is "", and returns their number. Links of $cbs and $management stay.
func (s *Server) DetachLinks(entity string, err *amqp10.Error) int {
	n := 0
	for _, c := range s.clients() {
		for _, l := range c.linksOf(func(path string) bool { return entity == "" || strings.EqualFold(path, entity) }) {
			l.Detach(err)
			n++
		}
	}
	return n
}

// CloseWindows closes the windows of the sessions that have a link on which clients send to
// a node: an entity, $cbs, or $management of an entity. It returns the number of links, once
// the clients have answered.
func (s *Server) CloseWindows(node string) int { return s.setWindows(node, false) }

// OpenWindows opens these windows again.
func (s *Server) OpenWindows(node string) int { return s.setWindows(node, true) }

func (s *Server) setWindows(node string, open bool) int {
	var answers []func()
	for _, c := range s.clients() {
		for _, l := range c.conn.Links() {
			if l.Incoming() && strings.EqualFold(entityPath(l.Address()), node) {
				answers = append(answers, l.SetWindow(open))
			}
		}
	}
	for _, wait := range answers {
		wait()
	}
	return len(answers)
}

// LoseEnds makes the connections that are open now answer no more ends of sessions, as if
// the answers were lost.
func (s *Server) LoseEnds() {
	for _, c := range s.clients() {
		c.conn.LoseEnds()
	}
}

// ExpireLocks makes all locks of messages and sessions of an entity expire now, and
// returns the number of messages.
func (s *Server) ExpireLocks(entity string) (int, error) { return s.Broker().ExpireLocks(entity) }

// RefuseTokens lets f check the tokens of clients: a token for which it returns an error
// is refused with the text of the error. Nil ends that.
func (s *Server) RefuseTokens(f func(audience, token string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// settlementOps are the operations by the outcome of a settlement.
var settlementOps = map[broker.Outcome]Op{
	broker.Complete: OpComplete, broker.Abandon: OpAbandon, broker.Release: OpRelease, broker.Defer: OpDefer, broker.DeadLetter: OpDeadLetter,
}
