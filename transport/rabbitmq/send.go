package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Send publishes messages and waits until the broker has confirmed all of them (C2). It
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
	m := &mail{t: t, msgs: msgs}
	if bad, err := m.write(); err != nil {
		return fmt.Errorf("rabbitmq: send: %w", transport.NoneSent(msgs, bad, err))
	}
	m.prepare(ctx)
	m.post(ctx)
	if m.failed != nil {
		return fmt.Errorf("rabbitmq: send: %w", m.failed)
	}
	return nil
}

// mail is the messages of one Send, sorted by channel.
type mail struct {
	t    *Transport
	msgs []core.Outgoing

	toQueues, toNamed, toClients []letter

	mu     sync.Mutex // guards failed
	failed *core.SendError
}

// write makes letters of all messages, or returns the index of a message that cannot be
// sent.
func (m *mail) write() (bad int, err error) {
	named := 0
	for i := range m.msgs {
		if m.msgs[i].Topic != "" || m.msgs[i].Delay > 0 || m.t.cfg.Topology == NServiceBus {
			named++
		}
	}
	if n := len(m.msgs) - named; n > 0 {
		m.toQueues = make([]letter, 0, n)
	}
	if named > 0 {
		m.toNamed = make([]letter, 0, named)
	}
	for i := range m.msgs {
		if err := m.letter(i); err != nil {
			return i, err
		}
	}
	return 0, nil
}

func (m *mail) letter(i int) error {
	t, out := m.t, &m.msgs[i]
	if err := transport.CheckOutgoing(out, &t.caps); err != nil {
		return err
	}
	if err := t.sizes.check(len(out.Body)); err != nil {
		return err
	}
	l := letter{index: i}
	to := &m.toNamed
	switch {
	case out.Topic != "" && out.Delay > 0:
		return fmt.Errorf("Delay of what is published to a topic: %w", errors.ErrUnsupported)
	case out.Topic != "":
		var err error
		if l.exchange, l.key, err = t.topicRoute(out.Topic); err != nil {
			return err
		}
		for _, base := range out.BaseTopics {
			if _, _, err := t.topicRoute(base); err != nil {
				return err
			}
		}
	case strings.HasPrefix(out.Queue, replyPrefix):
		if err := checkReplyName(out.Queue); err != nil {
			return err
		}
		if out.Delay > 0 {
			return fmt.Errorf("Delay of a reply to a client with direct reply-to: %w", errors.ErrUnsupported)
		}
		l.key = out.Queue // not mandatory: whether a broker returns it depends on its version
		to = &m.toClients
	default:
		queue, err := queueName(out.Queue)
		if err != nil {
			return err
		}
		if out.Delay > 0 {
			l.exchange, l.key, _ = delayRoute(out.Delay, queue)
		} else {
			l.key, l.mandatory = queue, true
			if t.cfg.Topology != NServiceBus { // prepare looks for the queue's exchange
				to = &m.toQueues
			}
		}
	}
	var err error
	if l.publishing, err = t.format.publishing(out, t.newCopy()); err != nil {
		return err
	}
	l.copyID, _ = l.publishing.Headers[copyIDHeader].(string)
	*to = append(*to, l)
	return nil
}

// topicRoute returns the exchange and the routing key for messages to a topic.
func (t *Transport) topicRoute(topic string) (exchange, key string, err error) {
	switch t.cfg.Topology {
	case Direct:
		key, err = topicKey(topic)
		return directExchange, key, err
	case NServiceBus:
		exchange, err = eventExchange(topic)
		return exchange, "", err
	}
	exchange, err = topicExchange(topic)
	return exchange, "", err
}

// prepare verifies or declares the parts that letters to named exchanges need: publishing
// to a missing exchange closes the channel, and a missing destination goes unnoticed once a
// delay has begun.
func (m *mail) prepare(ctx context.Context) {
	ready := m.toNamed[:0]
	for _, l := range m.toNamed {
		out := &m.msgs[l.index]
		var err error
		switch {
		case out.Topic != "" && m.t.cfg.Topology == Direct:
		case out.Topic != "":
			err = m.t.known.declareTopic(ctx, m.t, out.Topic, out.BaseTopics)
		case out.Delay > 0:
			err = m.t.known.bindDelayed(ctx, m.t, out.Queue)
		default:
			err = m.t.known.exchangeOf(ctx, m.t, out.Queue)
			if errors.Is(err, errNoExchange) { // for example a queue that an AMQP client declared for replies
				m.toQueues = append(m.toQueues, l)
				continue
			}
			l.exchange, l.key = out.Queue, ""
		}
		if err != nil {
			m.report(&l, core.SendRefused, err)
			continue
		}
		ready = append(ready, l)
	}
	m.toNamed = ready
}

// post sends all letters and waits for their results.
func (m *mail) post(ctx context.Context) {
	if len(m.toNamed)+len(m.toClients) == 0 {
		m.t.queues.send(ctx, m.toQueues, m.report)
		return
	}
	var other sync.WaitGroup
	if len(m.toQueues) > 0 {
		other.Go(func() { m.t.queues.send(ctx, m.toQueues, m.report) })
	}
	if len(m.toClients) > 0 {
		other.Go(func() { m.t.replies.send(ctx, m.toClients, m.report) })
	}
	m.t.named.send(ctx, m.toNamed, m.report)
	other.Wait()
}

// report records the result of a letter.
func (m *mail) report(l *letter, state core.SendState, err error) {
	if state == core.SendAccepted {
		return
	}
	if f := faultOf(err); f == faultNoTarget {
		m.t.known.forget()
	}
	if m.t.sizes.learn(err) {
		if tooLarge := m.t.sizes.check(len(m.msgs[l.index].Body)); tooLarge != nil {
			state, err = core.SendRefused, tooLarge
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = transport.AllSent(m.msgs, core.SendAccepted, nil)
	}
	r := &m.failed.Results[l.index]
	r.State, r.Err = state, explained(err)
}
