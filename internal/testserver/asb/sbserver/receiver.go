//go:build darwin || linux

package sbserver

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// sessionFilter is the filter by which a receiver asks for a session (azservicebus v1.11.0,
// session_receiver.go).
const sessionFilter = "com.microsoft:session-filter"

// receiver is a link on which a client receives from a queue or subscription.
type receiver struct {
	client   *client
	link     *amqp10.Link
	path     string
	consumer *broker.Consumer
	mode     broker.ReceiveMode
	tags     uint64            // of messages without a lock
	unsent   []amqp10.Outgoing // messages without a lock that wait for credit
}

func (c *client) attachReceiver(l *amqp10.Link, path string) *amqp10.Error {
	e, err := c.broker().Entity(path)
	if err != nil {
		return wireError(err)
	}
	r := &receiver{client: c, link: l, path: e.Path, mode: broker.PeekLock}
	// "settled" stands for ReceiveAndDelete (page service-bus-amqp-protocol-guide, "Receive messages").
	if m := l.Request().SenderSettleMode; m != nil && *m == amqp10.SenderSettled {
		r.mode = broker.ReceiveAndDelete
	}
	cfg := broker.ConsumerConfig{
		Mode:  r.mode,
		Ready: l.Wake,
		Ended: func(err *condition.Error) { l.Detach(wireError(err)) },
	}
	filter, ok := sessionOf(l.Request().Source)
	if !ok {
		return r.accept(context.Background(), cfg)
	}
	cfg.AcceptSession = true
	if id, ok := filter.(string); ok {
		cfg.Session = &id
		return r.accept(context.Background(), cfg)
	}
	c.goAccept(func() { r.acceptNext(cfg) })
	return nil
}

// goAccept runs f outside the connection's reader. f must end when the link ends.
func (c *client) goAccept(f func()) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if !c.run.ended {
		c.run.tasks.Go(f)
	}
}

// sessionOf returns the value of the session filter, or nil for the next session.
func sessionOf(s *amqp10.Source) (id any, ok bool) {
	if s == nil {
		return nil, false
	}
	for _, p := range s.Filter {
		if p.Key != amqp10.Symbol(sessionFilter) {
			continue
		}
		if d, ok := p.Value.(amqp10.Described); ok {
			return d.Value, true
		}
		return p.Value, true
	}
	return nil, false
}

// acceptNext waits for a session, for as long as the property com.microsoft:timeout says.
func (r *receiver) acceptNext(cfg broker.ConsumerConfig) {
	timeout := r.client.server.cfg.AcceptTimeout
	if ms, ok := r.link.Request().Properties.Get("com.microsoft:timeout").(uint32); ok {
		timeout = time.Duration(ms) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	r.client.goAccept(func() {
		select {
		case <-r.link.Done():
			cancel()
		case <-ended:
		}
	})
	if err := r.accept(ctx, cfg); err != nil {
		r.link.Refuse(err)
	}
}

func (r *receiver) accept(ctx context.Context, cfg broker.ConsumerConfig) *amqp10.Error {
	consumer, err := r.client.broker().Consume(ctx, r.path, cfg)
	if err != nil {
		return wireError(err)
	}
	r.consumer = consumer
	var reply amqp10.Reply
	if cfg.AcceptSession {
		reply = r.sessionReply()
	}
	c := r.client
	c.mu.Lock()
	c.links[r.link] = r.path
	c.receivers[r.link.Name()] = r
	c.mu.Unlock()
	if !r.link.AcceptOutgoing(r, reply) {
		r.Closed()
	}
	return nil
}

// sessionReply returns a reply with the session and the end of its lock, in ticks of .NET
// (azservicebus v1.11.0, session_receiver.go).
func (r *receiver) sessionReply() amqp10.Reply {
	source := *r.link.Request().Source
	filter := make(amqp10.Map, len(source.Filter))
	copy(filter, source.Filter)
	for i, p := range filter {
		if p.Key != amqp10.Symbol(sessionFilter) {
			continue
		}
		if d, ok := p.Value.(amqp10.Described); ok {
			filter[i].Value = amqp10.Described{Descriptor: d.Descriptor, Value: r.consumer.SessionID()}
		} else {
			filter[i].Value = r.consumer.SessionID()
		}
	}
	source.Filter = filter
	const epoch, perMillisecond = 621355968000000000, 10_000
	ticks := r.consumer.SessionLockedUntil().UnixMilli()*perMillisecond + epoch
	return amqp10.Reply{
		Source:     &source,
		Properties: amqp10.Map{{Key: amqp10.Symbol("com.microsoft:locked-until-utc"), Value: ticks}},
	}
}

// Closed implements amqp10.Outlet.
func (r *receiver) Closed() {
	c := r.client
	c.mu.Lock()
	delete(c.links, r.link)
	if c.receivers[r.link.Name()] == r {
		delete(c.receivers, r.link.Name())
	}
	c.mu.Unlock()
	_ = r.consumer.Close() // the journal keeps its error for the next operation
}

// Next implements amqp10.Outlet.
func (r *receiver) Next(n int) []amqp10.Outgoing {
	if len(r.unsent) > 0 {
		n = min(n, len(r.unsent))
		messages := r.unsent[:n:n]
		r.unsent = r.unsent[n:]
		return messages
	}
	deliveries := r.consumer.Next(n)
	if len(deliveries) == 0 {
		return nil
	}
	messages := make([]amqp10.Outgoing, 0, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		if !r.deliver() {
			continue
		}
		payload, err := amqp10.AppendMessage(nil, d.Message)
		if err != nil { // it was decoded by the same package
			r.link.Detach(amqp10.Errorf(amqp10.ErrInternal, "encode message %d: %v", d.SequenceNumber, err))
			return messages
		}
		m := amqp10.Outgoing{Payload: payload, Settled: r.mode == broker.ReceiveAndDelete, Ref: d.LockToken}
		if m.Settled {
			r.tags++
			m.Tag = binary.BigEndian.AppendUint64(make([]byte, 8, 16), r.tags)
		} else {
			m.Tag = tagOf(d.LockToken)
		}
		messages = append(messages, m)
	}
	if len(messages) < len(deliveries) {
		r.link.Wake() // the consumer had as many as it asked for, and does not wait for more
	}
	return messages
}

// deliver applies a fault to a delivery, and reports whether the delivery reaches the
// client.
func (r *receiver) deliver() bool {
	sent := true
	r.client.perform(operation{
		op: OpDeliver, entity: r.path, link: r.link, wait: true,
		run:   func() *amqp10.Error { return nil },
		reply: func(*amqp10.Error) {},
		lost:  func() { sent = false },
	})
	return sent
}

// Unsent implements amqp10.Outlet.
func (r *receiver) Unsent(messages []amqp10.Outgoing) {
	if r.mode == broker.ReceiveAndDelete {
		// "at most once": messages that still wait when the link ends are lost.
		r.unsent = append(slices.Clone(messages), r.unsent...)
		return
	}
	for _, m := range messages {
		_ = r.consumer.Settle(m.Ref.(broker.LockToken), broker.Settlement{Outcome: broker.Release}) // if this fails, the lock is lost
	}
}

// Settle implements amqp10.Outlet.
func (r *receiver) Settle(s amqp10.Settlement) {
	how, op := settlementOf(s.State)
	if op == "" {
		return // no outcome: the client says nothing about the delivery
	}
	token := s.Ref.(broker.LockToken)
	r.client.perform(operation{
		op: op, entity: r.path, link: r.link,
		run: func() *amqp10.Error { return wireError(r.consumer.Settle(token, how)) },
		reply: func(err *amqp10.Error) {
			if s.Settled {
				return
			}
			state := s.State
			if _, ok := state.(amqp10.Rejected); ok {
				state = amqp10.Rejected{} // an error would mean that the dead-lettering failed
			}
			if err != nil {
				state = amqp10.Rejected{Error: err}
			}
			r.link.Settle(s.ID, state)
		},
	})
}

// settlementOf translates a state of AMQP (page service-bus-amqp-protocol-guide, "Receive
// messages", and azservicebus v1.11.0, messageSettler.go).
func settlementOf(s amqp10.State) (broker.Settlement, Op) {
	switch s := s.(type) {
	case amqp10.Accepted:
		return broker.Settlement{Outcome: broker.Complete}, OpComplete
	case amqp10.Released:
		return broker.Settlement{Outcome: broker.Release}, OpRelease
	case amqp10.Modified:
		how := broker.Settlement{Outcome: broker.Abandon, Properties: propertiesOf(s.MessageAnnotations)}
		if s.UndeliverableHere {
			how.Outcome = broker.Defer
			return how, OpDefer
		}
		return how, OpAbandon
	case amqp10.Rejected:
		how := broker.Settlement{Outcome: broker.DeadLetter}
		if s.Error == nil {
			return how, OpDeadLetter
		}
		how.Properties = propertiesOf(s.Error.Info)
		how.Reason, _ = how.Properties[deadLetterReason].(string)
		how.Description, _ = how.Properties[deadLetterDescription].(string)
		delete(how.Properties, deadLetterReason)
		delete(how.Properties, deadLetterDescription)
		return how, OpDeadLetter
	}
	return broker.Settlement{}, ""
}

const (
	deadLetterReason      = "DeadLetterReason"
	deadLetterDescription = "DeadLetterErrorDescription"
)
