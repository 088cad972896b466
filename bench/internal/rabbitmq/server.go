package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// URLVariable names a broker and a virtual host to use in place of a started one. Its
// user needs every right there; the benchmark makes and deletes queues and exchanges with
// its names.
const URLVariable = "REPRISE_BENCH_RABBITMQ_URL"

// Server is the broker that all contenders use, in turn. It is started when a scenario first needs it.
type Server struct {
	URL string // an existing broker; "": start one

	running *runningServer
}

// ensureRunning returns the running broker.
func (s *Server) ensureRunning() (*runningServer, error) {
	if s.running != nil {
		return s.running, nil
	}
	var err error
	s.running, err = newRunningServer(s.URL)
	return s.running, err
}

// Description describes the broker; it is "" if no scenario needed it.
func (s *Server) Description() string {
	if s.running == nil {
		return ""
	}
	return s.running.description
}

// Close stops the broker if it was started.
func (s *Server) Close() error {
	if s.running == nil {
		return nil
	}
	return s.running.close()
}

// runningServer is a running broker.
type runningServer struct {
	url         string
	stop        func() error
	description string
	admin       *amqp.Connection
}

func newRunningServer(url string) (_ *runningServer, err error) {
	s := &runningServer{url: url, stop: func() error { return nil }}
	settings := "settings not known"
	if url == "" {
		settings = "with its defaults"
		if s.url, s.stop, err = startProcess(); err != nil {
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

func (s *runningServer) close() error { return errors.Join(s.admin.Close(), s.stop()) }

// do runs f on a separate channel. A broker after heavy load may not answer within its
// own time limit, and then closes the connection: so f may run again.
func (s *runningServer) do(f func(*amqp.Channel) error) error {
	for attempt := 1; ; attempt++ {
		err := s.try(f)
		if err == nil || !s.admin.IsClosed() || attempt == 3 {
			return err
		}
	}
}

func (s *runningServer) try(f func(*amqp.Channel) error) error {
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

// queueNames are the queues of a sample, and the exchanges that Reprise gives them.
var queueNames = []string{workload.Queue, reprise.ErrorQueue}

// sampleQueues are the queues of one sample, so that no sample finds messages of another.
type sampleQueues struct {
	server *runningServer
	probes map[string]int // messages that count has sent
}

// newQueues returns the queues of a sample without creating them: Reprise and Watermill
// declare them differently.
func (s *runningServer) newQueues() (*sampleQueues, error) {
	for _, name := range queueNames {
		if _, there, err := s.ready(name); err != nil {
			return nil, err
		} else if there {
			return nil, fmt.Errorf("a queue %q exists already; delete it, or give the benchmark a virtual host of its own", name)
		}
	}
	return &sampleQueues{server: s, probes: make(map[string]int)}, nil
}

// ready counts the messages of a queue that are not at a consumer.
func (s *runningServer) ready(queue string) (n int, there bool, err error) {
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

// Waiting counts the messages in the queues when there are no more consumers.
func (q *sampleQueues) Waiting(ctx context.Context) (int, error) {
	sum := 0
	for _, name := range queueNames {
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
func (q *sampleQueues) count(ctx context.Context, queue string) (int, error) {
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

// FinishSends need not wait: a message is in the queue once it was confirmed.
func (q *sampleQueues) FinishSends(context.Context) error { return nil }

// drop deletes the queues, and exchanges of the same names. The topology for delays
// stays: it is the same for every sample.
func (q *sampleQueues) drop() error {
	return q.server.do(func(ch *amqp.Channel) error {
		for _, name := range queueNames {
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
