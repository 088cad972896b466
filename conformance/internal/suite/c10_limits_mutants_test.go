package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// withLimits has every limit.
func withLimits() inmemory.Config {
	return able(func(c *core.Capabilities) {
		c.MaxMessageBytes = 32 << 10
		c.MaxHeaderBytes = 8 << 10
		c.MaxHeaderKeyBytes = 100
	})
}

// claims is a transport that claims limits which it does not hold messages
// against, but for what check finds.
func claims(check func(c core.Capabilities, m core.Outgoing) error) func() changes {
	limits := *withLimits().Capabilities
	return func() changes {
		return changes{
			capabilities: func(core.Capabilities) core.Capabilities { return limits },
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, m := range out {
					if err := check(limits, m); err != nil {
						return refuse(out, err)
					}
				}
				return next(ctx, out...)
			},
		}
	}
}

func characters(h core.Headers) (n int) {
	for key, value := range h.All() {
		n += utf8.RuneCountInString(key) + utf8.RuneCountInString(value)
	}
	return n
}

// fixes is a transport that makes something of invalid messages.
func fixes(mend func(m *core.Outgoing)) func() changes {
	return func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				mend(&out[i])
			}
			return next(ctx, out...)
		}}
	}
}

func fixHeaders(h core.Headers) (mended core.Headers) {
	for key, value := range h.All() {
		if key != "" {
			mended.Set(strings.ToValidUTF8(key, "\ufffd"), strings.ToValidUTF8(value, "\ufffd"))
		}
	}
	return mended
}

var limitMutants = []mutant{
	{rule: "C10", name: "blames each message of a Send for the one that is wrong", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for _, bad := range r {
				if errors.Is(bad.Err, core.ErrInvalidHeader) {
					for i := range r {
						r[i].Err = bad.Err
					}
				}
			}
		})}
	}},
	{rule: "C10", name: "claims limits and leaves it to the broker to hold them", config: inmemory.Config{},
		breaks: claims(func(core.Capabilities, core.Outgoing) error { return nil })},
	{rule: "C10", name: "has no room for the last byte of its limits", config: inmemory.Config{},
		breaks: claims(func(c core.Capabilities, m core.Outgoing) error {
			for key := range m.Headers.All() {
				if len(key) >= c.MaxHeaderKeyBytes {
					return &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: c.MaxHeaderKeyBytes, Size: len(key)}
				}
			}
			if size := m.Headers.Bytes(); size >= c.MaxHeaderBytes {
				return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: c.MaxHeaderBytes, Size: size}
			}
			if size := m.Headers.Bytes() + len(m.Body); size >= c.MaxMessageBytes {
				return &core.TooLargeError{Limit: "MaxMessageBytes", Max: c.MaxMessageBytes, Size: size}
			}
			return nil
		})},
	{rule: "C10", name: "counts the body alone", config: inmemory.Config{},
		breaks: claims(func(c core.Capabilities, m core.Outgoing) error {
			if len(m.Body) > c.MaxMessageBytes {
				return &core.TooLargeError{Limit: "MaxMessageBytes", Max: c.MaxMessageBytes, Size: len(m.Body)}
			}
			return nil
		})},
	{rule: "C10", name: "counts characters instead of bytes", config: inmemory.Config{},
		breaks: claims(func(c core.Capabilities, m core.Outgoing) error {
			for key := range m.Headers.All() {
				if n := utf8.RuneCountInString(key); n > c.MaxHeaderKeyBytes {
					return &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: c.MaxHeaderKeyBytes, Size: n}
				}
			}
			if n := characters(m.Headers); n > c.MaxHeaderBytes {
				return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: c.MaxHeaderBytes, Size: n}
			}
			if n := characters(m.Headers) + len(m.Body); n > c.MaxMessageBytes {
				return &core.TooLargeError{Limit: "MaxMessageBytes", Max: c.MaxMessageBytes, Size: n}
			}
			return nil
		})},
	{rule: "C10", name: "says that a message is too large, but not by how much", config: withLimits(), breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := range r {
				if large, ok := errors.AsType[*core.TooLargeError](r[i].Err); ok {
					r[i].Err = &core.TooLargeError{Limit: large.Limit}
				}
			}
		})}
	}},
	{rule: "C10", name: "says that a message is too large without a TooLargeError", config: withLimits(), breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := range r {
				if errors.Is(r[i].Err, core.ErrTooLarge) {
					r[i].Err = core.ErrTooLarge
				}
			}
		})}
	}},
	{rule: "C10", name: "sends the messages of a batch up to the one that it refuses", config: withLimits(), breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for i := range out {
				if err := next(ctx, out[i]); err != nil {
					return refuse(out, err)
				}
			}
			return nil
		}}
	}},
	{rule: "C10", name: "replaces text that is not UTF-8", breaks: fixes(func(m *core.Outgoing) { m.Headers = fixHeaders(m.Headers) })},
	{rule: "C10", name: "refuses an invalid header without ErrInvalidHeader", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := range r {
				if errors.Is(r[i].Err, core.ErrInvalidHeader) {
					r[i].Err = errors.New("bad request")
				}
			}
		})}
	}},
	{rule: "C10", name: "prefers the queue to the topic", breaks: fixes(func(m *core.Outgoing) {
		if m.Queue != "" {
			m.Topic = ""
		}
	})},
	{rule: "C10", name: "takes a negative delay for none", breaks: fixes(func(m *core.Outgoing) { m.Delay = max(m.Delay, 0) })},
	{rule: "C10", name: "takes a negative time to be received for none", breaks: fixes(func(m *core.Outgoing) { m.TimeToBeReceived = max(m.TimeToBeReceived, 0) })},
	{rule: "C10", name: "loses the connection, and every lock, to an illegal message", breaks: func() changes {
		var mu sync.Mutex
		var receivers []core.Receiver
		return changes{
			open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				r, err := next(cfg)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					receivers = append(receivers, r)
				}
				return r, err
			},
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				err := next(ctx, out...)
				if errors.Is(err, core.ErrInvalidHeader) {
					mu.Lock()
					defer mu.Unlock()
					for _, r := range receivers {
						_ = r.Close(ctx)
					}
				}
				return err
			},
		}
	}},
	{rule: "C10", name: "repairs invalid messages that are sent with a settlement", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			for i := range d.out {
				d.out[i].Headers = fixHeaders(d.out[i].Headers)
				d.out[i].Delay = max(d.out[i].Delay, 0)
			}
			return next()
		}}
	}},
	{rule: "C10", name: "consumes a message although a message to be sent with it is invalid", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrInvalidHeader) && strings.HasSuffix(operation, "With") {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = d.Delivery.Complete(ctx)
			}
			return err
		}}
	}},
	{rule: "C10", name: "holds the engine's copies against its limits", breaks: func() changes { return refusingCopies(engineCopies...) }},
	{rule: "C10", name: "holds audit copies against its limits", breaks: func() changes { return refusingCopies(core.ReasonAudit) }},
	{rule: "C10", name: "lets forwarded messages exceed its limits", breaks: fixes(func(m *core.Outgoing) {
		if m.Reason == core.ReasonForward {
			m.Reason = core.ReasonNewCopy
		}
	})},
}
