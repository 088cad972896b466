package transport

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// Wrapper forwards all calls to another transport, including those of the optional
// interfaces that it implements. A transport for tracing, tests or faults embeds a
// Wrapper and declares the methods that it changes.
//
//	type tracing struct{ transport.Wrapper }
//
//	func (t tracing) Send(ctx context.Context, msgs ...core.Outgoing) error {
//		...
//		return t.Wrapper.Send(ctx, msgs...)
//	}
//
// If the wrapped transport lacks an interface, its methods return an error matching
// errors.ErrUnsupported, and an endpoint treats the wrapper as a transport without it.
// Wrappers of receivers and of deliveries embed [core.Receiver] and [core.Delivery].
type Wrapper struct{ core.Transport }

var _ interface {
	core.Provisioner
	core.Checker
	core.Subscriber
	core.Remover
	core.Describer
	queues.Browser
	queues.Taker
	queues.DepthReader
	queues.Lister
} = Wrapper{}

// Provision implements [core.Provisioner].
func (w Wrapper) Provision(ctx context.Context, t core.Topology) error {
	if p, ok := w.Transport.(core.Provisioner); ok {
		return p.Provision(ctx, t)
	}
	return w.lacks("Provision")
}

// Subscribe implements [core.Subscriber].
func (w Wrapper) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if s, ok := w.Transport.(core.Subscriber); ok {
		return s.Subscribe(ctx, queue, topics...)
	}
	return w.lacks("Subscribe")
}

// Unsubscribe implements [core.Subscriber].
func (w Wrapper) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if s, ok := w.Transport.(core.Subscriber); ok {
		return s.Unsubscribe(ctx, queue, topics...)
	}
	return w.lacks("Unsubscribe")
}

// Check implements [core.Checker].
func (w Wrapper) Check(ctx context.Context, t core.Topology) error {
	if c, ok := w.Transport.(core.Checker); ok {
		return c.Check(ctx, t)
	}
	return w.lacks("Check")
}

// CheckTopic implements [core.Subscriber].
func (w Wrapper) CheckTopic(topic string) error {
	if s, ok := w.Transport.(core.Subscriber); ok {
		return s.CheckTopic(topic)
	}
	return nil
}

// Purge implements [core.Remover].
func (w Wrapper) Purge(ctx context.Context, queue string) (int, error) {
	if r, ok := w.Transport.(core.Remover); ok {
		return r.Purge(ctx, queue)
	}
	return 0, w.lacks("Purge")
}

// Remove implements [core.Remover].
func (w Wrapper) Remove(ctx context.Context, queues, topics []string) error {
	if r, ok := w.Transport.(core.Remover); ok {
		return r.Remove(ctx, queues, topics)
	}
	return w.lacks("Remove")
}

// Describe implements [core.Describer].
func (w Wrapper) Describe() core.TransportInfo { return w.describer().Describe() }

// Warnings implements [core.Describer].
func (w Wrapper) Warnings() []string { return w.describer().Warnings() }

// KeepsGroups implements [core.Describer].
func (w Wrapper) KeepsGroups(queue string) bool { return w.describer().KeepsGroups(queue) }

// Browse implements [queues.Browser].
func (w Wrapper) Browse(ctx context.Context, r queues.Request) (none queues.Page, err error) {
	if b, ok := w.Transport.(queues.Browser); ok {
		return b.Browse(ctx, r)
	}
	return none, w.lacks("Browse")
}

// Take implements [queues.Taker].
func (w Wrapper) Take(ctx context.Context, queue string, takes []queues.Take) ([]queues.TakeResult, error) {
	if t, ok := w.Transport.(queues.Taker); ok {
		return t.Take(ctx, queue, takes)
	}
	return nil, w.lacks("Take")
}

// Depth implements [queues.DepthReader].
func (w Wrapper) Depth(ctx context.Context, queue string) (none queues.Depth, err error) {
	if d, ok := w.Transport.(queues.DepthReader); ok {
		return d.Depth(ctx, queue)
	}
	return none, w.lacks("Depth")
}

// ListQueues implements [queues.Lister].
func (w Wrapper) ListQueues(ctx context.Context) ([]string, error) {
	if l, ok := w.Transport.(queues.Lister); ok {
		return l.ListQueues(ctx)
	}
	return nil, w.lacks("ListQueues")
}

func (w Wrapper) describer() core.Describer {
	if d, ok := w.Transport.(core.Describer); ok {
		return d
	}
	return Undescribed{}
}

func (w Wrapper) lacks(method string) error {
	return fmt.Errorf("%T: %w", w.Transport, Unsupported(method))
}
