package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// rawSetup is the code of a user who needs only the rate, with amqp091-go, on a
// queue like Reprise's: one goroutine that handles the messages of one consumer, no
// endpoint, headers that are not checked, and no recoverability except that failed
// messages return at once.
type rawSetup struct {
	acks int // deliveries per acknowledgement
}

func (setup rawSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

const (
	rawPrefetch = 300
	rawWindow   = 1000 // unconfirmed messages
)

type rawStore struct {
	setup rawSetup
	*sampleQueues
	body    []byte
	sending *amqp.Connection

	mu   sync.Mutex // guards idle
	idle []*rawPublisher

	receiving *amqp.Connection
	channel   *amqp.Channel
	finished  chan error
	end       context.CancelFunc
}

func (setup rawSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	running, err := server.ensureRunning()
	if err != nil {
		return nil, err
	}
	queues, err := running.newQueues()
	if err != nil {
		return nil, err
	}
	s := &rawStore{setup: setup, sampleQueues: queues, body: make([]byte, workload.BodySize)}
	if err = queues.provision(ctx); err == nil {
		s.sending, err = amqp.Dial(running.url)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// provision declares the queues like Reprise.
func (q *sampleQueues) provision(ctx context.Context) error {
	t, err := rabbitmq.Open(q.server.url)
	if err != nil {
		return err
	}
	return errors.Join(t.Provision(ctx, core.Topology{InputQueue: workload.Queue, Queues: queueNames}), t.Close(ctx))
}

// rawPublisher is a channel for one goroutine at a time.
type rawPublisher struct {
	channel  *amqp.Channel
	confirms chan amqp.Confirmation
	returns  chan amqp.Return
}

// publisher returns an idle publisher.
func (s *rawStore) publisher() (*rawPublisher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.idle) - 1; last >= 0 {
		p := s.idle[last]
		s.idle = s.idle[:last]
		return p, nil
	}
	ch, err := s.sending.Channel()
	if err != nil {
		return nil, err
	}
	return &rawPublisher{
		channel:  ch,
		confirms: ch.NotifyPublish(make(chan amqp.Confirmation, rawWindow)),
		returns:  ch.NotifyReturn(make(chan amqp.Return, 1)),
	}, ch.Confirm(false)
}

func (s *rawStore) Send(ctx context.Context, sequences []string) error {
	p, err := s.publisher()
	if err != nil {
		return err
	}
	unconfirmed := 0
	for _, sequence := range sequences {
		if unconfirmed == rawWindow {
			if err := p.confirmed(ctx); err != nil {
				return err
			}
			unconfirmed--
		}
		if err := p.channel.PublishWithContext(ctx, "", workload.Queue, true, false, s.message(sequence)); err != nil {
			return err
		}
		unconfirmed++
	}
	for ; unconfirmed > 0; unconfirmed-- {
		if err := p.confirmed(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.idle = append(s.idle, p)
	s.mu.Unlock()
	return nil
}

// confirmed waits for one more confirm.
func (p *rawPublisher) confirmed(ctx context.Context) error {
	select {
	case c, ok := <-p.confirms:
		if !ok || !c.Ack {
			return errors.New("the broker did not confirm a message")
		}
		return nil
	case r := <-p.returns:
		return fmt.Errorf("the broker returned a message: %s", r.ReplyText)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// message has the headers and properties that Reprise writes, except the name of the
// stored copy.
func (s *rawStore) message(sequence string) amqp.Publishing {
	table := make(amqp.Table, len(workload.Headers)+2)
	table[headers.MessageTypes] = workload.MessageType
	for _, h := range workload.Headers {
		table[h.Key] = h.Value
	}
	table[workload.SequenceHeader] = sequence
	return amqp.Publishing{
		Headers:      table,
		ContentType:  "application/octet-stream",
		DeliveryMode: amqp.Persistent,
		MessageId:    sequence,
		Timestamp:    time.Now(),
		Type:         workload.MessageType,
		Body:         s.body,
	}
}

// rawConsumer is the consumer's tag.
const rawConsumer = "bench"

func (s *rawStore) Start(ctx context.Context, handle func(string) error) (err error) {
	if s.receiving, err = amqp.Dial(s.server.url); err != nil {
		return err
	}
	if s.channel, err = s.receiving.Channel(); err != nil {
		return err
	}
	if err := s.channel.Qos(rawPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := s.channel.Consume(workload.Queue, rawConsumer, false, false, false, false, nil)
	if err != nil {
		return err
	}
	ctx, s.end = context.WithCancel(ctx)
	s.finished = make(chan error, 1)
	go func() { s.finished <- s.consume(ctx, deliveries, handle) }()
	return nil
}

// consume handles messages until ctx ends.
func (s *rawStore) consume(ctx context.Context, deliveries <-chan amqp.Delivery, handle func(string) error) error {
	var timeout <-chan time.Time // ends the wait of an acknowledgement
	if s.setup.acks > 1 {
		ticker := time.NewTicker(measure.PollInterval)
		defer ticker.Stop()
		timeout = ticker.C
	}
	var last uint64 // the tag of the last handled message
	unacknowledged := 0
	acknowledge := func() error {
		if unacknowledged == 0 {
			return nil
		}
		unacknowledged = 0
		return s.channel.Ack(last, s.setup.acks > 1)
	}
	for {
		select {
		case d, more := <-deliveries:
			if !more {
				return errors.New("the consumer's channel was closed")
			}
			sequence, _ := d.Headers[workload.SequenceHeader].(string)
			if err := handle(sequence); err != nil {
				if s.setup.acks > 1 {
					return err
				}
				if err := s.channel.Reject(d.DeliveryTag, true); err != nil {
					return err
				}
				continue
			}
			last = d.DeliveryTag
			if unacknowledged++; unacknowledged < s.setup.acks {
				continue
			}
		case <-timeout:
		case <-ctx.Done():
			return acknowledge()
		}
		if err := acknowledge(); err != nil {
			return err
		}
	}
}

// Stop cancels the consumer after the last acknowledgement, and then closes its
// connection. A channel of the broker delays acknowledgements while more than 32 are in
// transit to a quorum queue, and loses them when it is closed during that time; it answers
// a cancellation after them.
func (s *rawStore) Stop(context.Context) error {
	s.end()
	return errors.Join(<-s.finished, s.channel.Cancel(rawConsumer, false), s.receiving.Close())
}

func (s *rawStore) Close(context.Context) error {
	if s.end != nil {
		s.end()
	}
	var errs []error
	for _, conn := range []*amqp.Connection{s.receiving, s.sending} {
		if conn != nil && !conn.IsClosed() {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(append(errs, s.drop())...)
}
