package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitVariable names a broker and a virtual host to use in place of a started one. Its
// user needs every right there; the benchmark makes and deletes queues and exchanges with
// its names.
const rabbitVariable = "REPRISE_BENCH_RABBITMQ_URL"

// rabbitSystem is the broker that all contenders use, in turn. It is started when a scenario first needs it.
type rabbitSystem struct {
	url string // an existing broker; "": start one

	running *rabbitServer
}

// server returns the running broker.
func (s *rabbitSystem) server() (*rabbitServer, error) {
	if s.running != nil {
		return s.running, nil
	}
	var err error
	s.running, err = newRabbitServer(s.url)
	return s.running, err
}

// description describes the broker; it is "" if no scenario needed it.
func (s *rabbitSystem) description() string {
	if s.running == nil {
		return ""
	}
	return s.running.description
}

// close stops the broker if it was started.
func (s *rabbitSystem) close() error {
	if s.running == nil {
		return nil
	}
	return s.running.close()
}

// rabbitServer is a running broker.
type rabbitServer struct {
	url         string
	stop        func() error
	description string
	admin       *amqp.Connection
}

func newRabbitServer(url string) (_ *rabbitServer, err error) {
	s := &rabbitServer{url: url, stop: func() error { return nil }}
	settings := "settings not known"
	if url == "" {
		settings = "with its defaults"
		if s.url, s.stop, err = startRabbit(); err != nil {
			return nil, err
		}
	}
	if s.admin, err = amqp.Dial(s.url); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the broker: %w", err), s.stop())
	}
	is := s.admin.Properties
	s.description = fmt.Sprintf("%v %v on %v on the same machine, %s; quorum queues of one member", is["product"], is["version"], is["platform"], settings)
	return s, nil
}

func (s *rabbitServer) close() error { return errors.Join(s.admin.Close(), s.stop()) }

// do runs f on a separate channel. A broker after heavy load may not answer within its
// own time limit, and then closes the connection: so f may run again.
func (s *rabbitServer) do(f func(*amqp.Channel) error) error {
	for attempt := 1; ; attempt++ {
		err := s.try(f)
		if err == nil || !s.admin.IsClosed() || attempt == 3 {
			return err
		}
	}
}

func (s *rabbitServer) try(f func(*amqp.Channel) error) error {
	if s.admin.IsClosed() {
		admin, err := amqp.Dial(s.url)
		if err != nil {
			return err
		}
		s.admin = admin
	}
	ch, err := s.admin.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }() // f's requests were answered
	return f(ch)
}

// rabbitNames are the queues of a sample, and the exchanges that Reprise gives them.
var rabbitNames = []string{ordersQueue, repriseErrorQueue}

// rabbitQueues are the queues of one sample, so that no sample finds messages of another.
type rabbitQueues struct {
	server *rabbitServer
	probes map[string]int // messages that count has sent
}

// newQueues returns the queues of a sample without creating them: Reprise and Watermill
// declare them differently.
func (s *rabbitServer) newQueues() (*rabbitQueues, error) {
	for _, name := range rabbitNames {
		if _, there, err := s.ready(name); err != nil {
			return nil, err
		} else if there {
			return nil, fmt.Errorf("a queue %q exists already; delete it, or give the benchmark a virtual host of its own", name)
		}
	}
	return &rabbitQueues{server: s, probes: make(map[string]int)}, nil
}

// ready counts the messages of a queue that are not at a consumer.
func (s *rabbitServer) ready(queue string) (n int, there bool, err error) {
	err = s.do(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if gone, ok := errors.AsType[*amqp.Error](err); ok && gone.Code == amqp.NotFound {
		return 0, false, nil
	}
	return n, err == nil, err
}

// waiting counts the messages in the queues when there are no more consumers.
func (q *rabbitQueues) waiting(ctx context.Context) (int, error) {
	sum := 0
	for _, name := range rabbitNames {
		n, err := q.count(ctx, name)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// count counts the messages of a queue, those included that consumers have not
// acknowledged and whose connections are closed. They return to the queue a moment later:
// so count sends a message after them, which stays. Once it is confirmed, they are there.
func (q *rabbitQueues) count(ctx context.Context, queue string) (int, error) {
	if _, there, err := q.server.ready(queue); err != nil || !there {
		return 0, err
	}
	err := q.server.do(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if taken, err := confirm.WaitContext(ctx); err != nil || !taken {
			return errors.Join(fmt.Errorf("the broker did not take a message for %q", queue), err)
		}
		q.probes[queue]++
		return nil
	})
	if err != nil {
		return 0, err
	}
	n, _, err := q.server.ready(queue)
	return n - q.probes[queue], err
}

// rest need not wait: a message is in the queue once it was confirmed.
func (q *rabbitQueues) rest(context.Context) error { return nil }

// drop deletes the queues, and exchanges of the same names. The topology for delays
// stays: it is the same for every sample.
func (q *rabbitQueues) drop() error {
	return q.server.do(func(ch *amqp.Channel) error {
		for _, name := range rabbitNames {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				return err
			}
			if err := ch.ExchangeDelete(name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}
