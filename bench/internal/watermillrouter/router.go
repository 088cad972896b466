// Package watermillrouter has the parts of Watermill's contenders that do not depend on the broker.
package watermillrouter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Retry is the Retry middleware, with Reprise's settings.
func Retry() message.HandlerMiddleware {
	return middleware.Retry{
		MaxRetries:      5,               // Reprise's default
		InitialInterval: time.Nanosecond, // the shortest delay
		MaxInterval:     time.Nanosecond,
		Multiplier:      1,
		Logger:          watermill.NewSlogLogger(workload.DiscardingLogger()),
	}.Middleware
}

// Message returns a message with an id that cost nothing to make.
func Message(sequence string, payload message.Payload) *message.Message {
	m := message.NewMessage(sequence, payload)
	for _, h := range workload.Headers {
		m.Metadata.Set(h.Key, h.Value)
	}
	m.Metadata.Set(workload.SequenceHeader, sequence)
	return m
}

// Router is a Watermill router with several subscriptions to one topic, each of which handles one message at a time. It has
// the Retry middleware.
type Router struct {
	router   *message.Router
	finished chan error                        // the result of Run
	last     []atomic.Pointer[message.Message] // of each subscription
}

// Start starts a router, and returns when its subscriptions exist.
func Start(ctx context.Context, topic string, subscriber message.Subscriber, subscriptions int, handle func(sequence string) error) (*Router, error) {
	inner, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	inner.AddMiddleware(Retry())
	r := &Router{router: inner, finished: make(chan error, 1), last: make([]atomic.Pointer[message.Message], subscriptions)}
	for i := range r.last {
		inner.AddConsumerHandler(fmt.Sprintf("bench %d", i), topic, subscriber, func(m *message.Message) error {
			r.last[i].Store(m)
			return handle(m.Metadata.Get(workload.SequenceHeader))
		})
	}
	go func() { r.finished <- inner.Run(ctx) }()
	select {
	case <-inner.Running():
		return r, nil
	case err := <-r.finished:
		return nil, errors.Join(errors.New("the router stopped before it ran"), err, inner.Close())
	}
}

// Stop waits until each subscription has acknowledged its last message, which is when the message's context ends, and
// closes the router: closed before that, it leaves the message in the queue.
func (r *Router) Stop(ctx context.Context) error {
	for i := range r.last {
		if m := r.last[i].Load(); m != nil {
			select {
			case <-m.Context().Done():
			case <-ctx.Done():
			}
		}
	}
	return r.Close()
}

// Close closes the router without that wait.
func (r *Router) Close() error { return errors.Join(r.router.Close(), <-r.finished) }
