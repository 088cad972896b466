package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/declarations"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Send publishes messages and waits until the broker has confirmed all of them. It
// refuses a message to a queue that does not exist, and sends the others.
//
// Messages of one call, and of concurrent calls, wait for their confirms at the same time:
// to send many messages, pass many to each call. While the broker blocks publishing
// connections (memory or disk alarm), Send waits until ctx ends.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	if err := t.life.Err(ctx); err != nil {
		return fmt.Errorf("rabbitmq: send: %w", transport.NoneSent(msgs, -1, err))
	}
	if len(msgs) == 0 {
		return nil
	}
	c := &sendCall{t: t, msgs: msgs, ctx: ctx}
	if bad, err := c.addAll(); err != nil {
		return fmt.Errorf("rabbitmq: send: %w", transport.NoneSent(msgs, bad, err))
	}
	c.declareDestinations(ctx)
	c.publish(ctx)
	if c.failed != nil {
		return fmt.Errorf("rabbitmq: send: %w", transport.Unavailable(ctx, c.failed, amqperror.IsTransient))
	}
	return nil
}

// sendCall is the messages of one Send, sorted by channel.
type sendCall struct {
	t    *Transport
	msgs []core.Outgoing
	ctx  context.Context // of Send

	toQueues, toExchanges, toClients []publication

	mu     sync.Mutex // guards failed
	failed *core.SendError
}

// addAll makes publications of all messages, or returns the index of a message that cannot
// be sent.
func (c *sendCall) addAll() (bad int, err error) {
	n := 0
	for i := range c.msgs {
		if c.msgs[i].Topic != "" || c.msgs[i].Delay > 0 || c.t.cfg.Topology == NServiceBus {
			n++
		}
	}
	if direct := len(c.msgs) - n; direct > 0 {
		c.toQueues = make([]publication, 0, direct)
	}
	if n > 0 {
		c.toExchanges = make([]publication, 0, n)
	}
	for i := range c.msgs {
		if err := c.add(i); err != nil {
			return i, err
		}
	}
	return 0, nil
}

func (c *sendCall) add(i int) error {
	t, out := c.t, &c.msgs[i]
	if err := transport.CheckOutgoing(out, &t.caps); err != nil {
		return err
	}
	if err := t.sizeLimit.check(len(out.Body)); err != nil {
		return err
	}
	m := publication{index: i}
	to := &c.toExchanges
	switch {
	case out.Topic != "" && out.Delay > 0:
		return fmt.Errorf("Delay of an event that is published to a topic: %w", errors.ErrUnsupported)
	case out.Topic != "":
		var err error
		if m.exchange, m.key, err = t.topicRoute(out.Topic); err != nil {
			return err
		}
		for _, base := range out.BaseTopics {
			if _, _, err := t.topicRoute(base); err != nil {
				return err
			}
		}
		m.event, m.mandatory = true, true // the broker returns an event that reaches no queue
	default:
		queue, err := names.Destination(out.Queue)
		if err != nil {
			return err
		}
		isClient := names.IsClient(queue)
		switch {
		case isClient && out.Delay > 0: // its queue cannot be bound to the delays
			return fmt.Errorf("Delay of a reply to the queue of a client, %q: %w", queue, errors.ErrUnsupported)
		case strings.HasPrefix(queue, names.ReplyPrefix):
			m.key = queue // not mandatory: whether a broker returns it depends on its version
			to = &c.toClients
		case out.Delay > 0:
			m.exchange, m.key, _ = delays.Route(out.Delay, queue)
		default:
			m.key, m.mandatory = queue, true
			if isClient || t.cfg.Topology != NServiceBus { // otherwise declareDestinations looks for the queue's exchange
				to = &c.toQueues
			}
		}
	}
	var err error
	if m.publishing, err = t.format.Publishing(out, t.nextCopyID()); err != nil {
		return err
	}
	m.copyID, _ = m.publishing.Headers[header.CopyID].(string)
	*to = append(*to, m)
	return nil
}

// declareDestinations verifies or declares the parts that publications to named exchanges
// need: publishing to a missing exchange closes the channel, and a missing destination goes
// unnoticed once a delay has begun.
func (c *sendCall) declareDestinations(ctx context.Context) {
	ready := c.toExchanges[:0]
	for _, m := range c.toExchanges {
		out := &c.msgs[m.index]
		var err error
		switch {
		case out.Topic != "" && c.t.cfg.Topology == Direct:
		case out.Topic != "":
			err = c.t.ensureTopic(ctx, out.Topic, out.BaseTopics)
		case out.Delay > 0:
			err = c.t.ensureDelayedBinding(ctx, out.Queue)
		default:
			err = c.t.lookUpExchange(ctx, out.Queue)
			if errors.Is(err, declarations.ErrNoExchange) { // for example a queue that an AMQP client declared for replies
				c.toQueues = append(c.toQueues, m)
				continue
			}
			m.exchange, m.key = out.Queue, ""
		}
		if err != nil {
			c.report(&m, core.SendRefused, err)
			continue
		}
		ready = append(ready, m)
	}
	c.toExchanges = ready
}

// maxWritable is the number of exchanges in Transport.writable.
const maxWritable = 10_000

// tryExchanges sends the first publication to each exchange that is not known to be writable. The
// broker closes the channel after one to an exchange to which the user may not write, such as the
// reply address that a sender has forged, and the results of all others on the channel are lost.
// So these have a channel for one publication at a time. Later publications to such an exchange
// have the same error.
func (c *sendCall) tryExchanges(ctx context.Context) {
	var failed map[string]error
	left := c.toExchanges[:0]
	for _, m := range c.toExchanges {
		if _, writable := c.t.writable.Get(m.exchange); writable {
			left = append(left, m)
			continue
		}
		if err := failed[m.exchange]; err != nil {
			c.report(&m, core.SendRefused, err)
			continue
		}
		if err := c.try(ctx, m); err != nil {
			if failed == nil {
				failed = map[string]error{}
			}
			failed[m.exchange] = err
		}
	}
	c.toExchanges = left
}

// try sends one publication when no other one is tried, and returns the error with which the
// user may be unable to write to its exchange. Others do not wait for a slow confirm: a broker that
// refuses the exchange answers at once.
func (c *sendCall) try(ctx context.Context, m publication) (failed error) {
	select {
	case c.t.trying <- struct{}{}:
		next := time.AfterFunc(time.Second, func() { <-c.t.trying })
		defer func() {
			if next.Stop() {
				<-c.t.trying
			}
		}()
	case <-ctx.Done():
		failed = fmt.Errorf("waiting to be sent: %w", ctx.Err())
		c.report(&m, core.SendRefused, failed)
		return failed
	}
	c.t.tryPublisher.send(ctx, []publication{m}, func(m *publication, state core.SendState, err error) {
		if err == nil || errors.Is(err, core.ErrQueueNotFound) || errors.Is(err, errNegative) { // the exchange has had it
			c.t.writable.Put(strings.Clone(m.exchange), struct{}{}) // without the memory of a reply address
		} else {
			failed = err
		}
		c.report(m, state, err)
	})
	return failed
}

// publish sends all publications and waits for their results.
func (c *sendCall) publish(ctx context.Context) {
	if len(c.toExchanges) > 0 {
		c.tryExchanges(ctx)
	}
	if len(c.toExchanges)+len(c.toClients) == 0 {
		c.t.queuePublisher.send(ctx, c.toQueues, c.report)
		return
	}
	var other sync.WaitGroup
	if len(c.toQueues) > 0 {
		other.Go(func() { c.t.queuePublisher.send(ctx, c.toQueues, c.report) })
	}
	if len(c.toClients) > 0 {
		other.Go(func() { c.t.replyPublisher.send(ctx, c.toClients, c.report) })
	}
	c.t.exchangePublisher.send(ctx, c.toExchanges, c.report)
	other.Wait()
}

// report records the result of a publication.
func (c *sendCall) report(m *publication, state core.SendState, err error) {
	if state == core.SendAccepted {
		return
	}
	if out := &c.msgs[m.index]; out.Topic != "" && errors.Is(err, core.ErrQueueNotFound) {
		if err = transport.CheckSubscribers(c.ctx, out, 0); err == nil {
			return // accepted
		}
	}
	if f := amqperror.KindOf(err); f == amqperror.NoExchange {
		c.t.declarations.Forget()
	}
	if said, ok := errors.AsType[*amqp.Error](err); ok && said.Code == amqp.AccessRefused {
		c.t.writable.Delete(m.exchange) // the right may have been taken away
	}
	if amqperror.RefusesUser(err) { // as in a token, which has another name than the URL
		c.t.format.SetUser("")
	}
	if c.t.sizeLimit.learn(err) {
		if tooLarge := c.t.sizeLimit.check(len(c.msgs[m.index].Body)); tooLarge != nil {
			state, err = core.SendRefused, tooLarge
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = transport.AllSent(c.msgs, core.SendAccepted, nil)
	}
	r := &c.failed.Results[m.index]
	r.State, r.Err = state, amqperror.Explain(err)
}
