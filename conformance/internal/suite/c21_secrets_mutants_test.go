package suite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// url is where a transport is connected to, as careless code keeps it.
func (t *brokenTransport) url() string { return "amqp://user:" + t.login() + "@broker/" }

// indiscreet adds the URL to errors.
func (t *brokenTransport) indiscreet(err error, about ...error) error {
	for _, target := range about {
		if errors.Is(err, target) {
			return fmt.Errorf("%s: %w", t.url(), err)
		}
	}
	return err
}

// telling makes changes whose errors of a kind tell the URL.
func telling(about ...error) func() changes {
	return func() changes {
		return changes{
			send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				return t.indiscreet(next(ctx, out...), about...)
			},
			open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				r, err := next(cfg)
				return r, t.indiscreet(err, about...)
			},
		}
	}
}

// printing wraps the transport that Open returns.
func printing(wrap func(transport core.Transport, url string) core.Transport) func(h *Harness) {
	return func(h *Harness) {
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
			return wrap(transport, transport.url())
		}
	}
}

// configured keeps its configuration in a field.
type configured struct {
	base
	config struct{ URL string }
}

// named names itself after its URL.
type named struct {
	base
	url func() string
}

func (n named) String() string { return "transport connected to " + n.url() }

// receiverOf keeps the URL for when it reconnects.
type receiverOf struct {
	core.Receiver
	url string
}

// switchable is a Broker that a mutant asks whether it runs.
type switchable struct{ down atomic.Bool }

func (s *switchable) Kill(testing.TB) { s.down.Store(true) }

func (s *switchable) Start(testing.TB) { s.down.Store(false) }

func (s *switchable) Partition(testing.TB) (heal func()) { return func() {} }

var secretMutants = []mutant{
	{rule: "C21", name: "keeps its URL in a field", harness: printing(func(transport core.Transport, url string) core.Transport {
		c := &configured{base: transport.(base)}
		c.config.URL = url
		return c
	})},
	{rule: "C21", name: "names itself after its URL", harness: printing(func(transport core.Transport, url string) core.Transport {
		return &named{transport.(base), func() string { return url }}
	})},
	{rule: "C21", name: "keeps the URL in its receivers", breaks: func() changes {
		return changes{open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			return receiverOf{r, t.url()}, err
		}}
	}},
	{rule: "C21", name: "tells its URL when a queue is missing", breaks: telling(core.ErrQueueNotFound)},
	{rule: "C21", name: "tells its URL when it refuses a message", breaks: telling(core.ErrInvalidHeader, errors.ErrUnsupported)},
	{rule: "C21", name: "tells its URL when a context ends", breaks: telling(context.Canceled)},
	{rule: "C21", name: "tells its URL when it is closed", breaks: telling(core.ErrClosed)},
	{rule: "C21", name: "tells its URL inside of an error that does not", breaks: func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); err != nil {
				return &discreet{t.indiscreet(err, err)}
			}
			return nil
		}}
	}},
	{rule: "C21", name: "tells its URL when it cannot be opened", onServer: true, harness: func(h *Harness) {
		open, s := h.Open, h.Broker.(*server)
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
			s.mu.Lock()
			down := s.down
			s.mu.Unlock()
			if down {
				_ = transport.Close(ctxBackground)
				t.Fatal(fmt.Errorf("open %s: %w", transport.url(), errRefused))
			}
			return transport
		}
	}},
	{rule: "C21", name: "tells the URL that it cannot parse", harness: func(h *Harness) {
		h.OpenWrong = func(testing.TB) []error {
			_, err := url.Parse("amqp://user:" + password + "@broker:port/") //nolint:staticcheck // it is wrong on purpose
			return []error{fmt.Errorf("open: %w", err)}
		}
	}},
	{rule: "C21", name: "quotes a value that a field cannot have", harness: func(h *Harness) {
		h.OpenMisplaced = func(_ testing.TB, text string) ([]any, []error) {
			return []any{"a configuration"}, []error{nil, fmt.Errorf("open: the namespace %q is no host name", text)}
		}
	}},
	{rule: "C21", name: "quotes the path of a connection string", harness: func(h *Harness) {
		h.OpenMisplaced = func(_ testing.TB, text string) ([]any, []error) {
			_, path, _ := strings.Cut(text, "EntityPath=")
			return []any{"a configuration"}, []error{fmt.Errorf("open: remove EntityPath=%s", path)}
		}
	}},
	{rule: "C21", name: "shows all of an endpoint but its user", harness: func(h *Harness) {
		h.OpenMisplaced = func(_ testing.TB, text string) ([]any, []error) {
			u, err := url.Parse(text)
			if err != nil {
				return []any{"a configuration"}, nil
			}
			u.User = nil
			return []any{struct{ Endpoint string }{u.String()}}, nil
		}
	}},
	{rule: "C21", name: "hides a URL from fmt alone", harness: func(h *Harness) {
		h.OpenMisplaced = func(_ testing.TB, text string) ([]any, []error) { return []any{hiddenFromFmt{text}}, nil }
	}},
	{rule: "C21", name: "tells its URL in an outage", breaks: func() changes {
		return changes{}
	}, harness: func(h *Harness) {
		broker := &switchable{}
		h.Broker = broker
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
			c := *transport.changes
			c.send = func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				if broker.down.Load() {
					return fmt.Errorf("dial %s: connection refused", t.url())
				}
				return next(ctx, out...)
			}
			transport.changes = &c
			return transport
		}
	}},
}

// hiddenFromFmt is a configuration that encoding/json shows.
type hiddenFromFmt struct{ URL string }

func (hiddenFromFmt) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("a configuration")) }

// discreet is an error that wraps one that says more.
type discreet struct{ cause error }

func (*discreet) Error() string { return "the broker refused" }

func (e *discreet) Unwrap() error { return e.cause }
