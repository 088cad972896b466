package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// tryable: the message limit is small enough to be tried.
var tryable = need{"MaxMessageBytes is too large to be tried", func(s *suite) bool { return s.caps.MaxMessageBytes <= 16<<20 }}

// usualBody is the size of a large message where there is no limit to try.
const usualBody = 1 << 20

var errorPathLimitCases = []testCase{
	{rule: "R24", title: "a message whose error is 1 MiB long reaches the error queue", slow: true, run: func(t *caseT) {
		transport := t.open()
		text := "out of stock: " + strings.Repeat("é✓ ", 1<<20/6)
		in := t.failsWith(transport, errors.New(text))
		got := in.Headers.Get(headers.ExceptionMessage)
		const kept = 8 << 10 // the engine keeps the first 16 KiB of the text
		fits := t.caps.MaxHeaderBytes == 0 || t.caps.MaxHeaderBytes >= 64<<10
		if limit := t.caps.MaxMessageBytes; fits && (limit == 0 || limit >= 64<<10) && (len(got) < kept || !strings.HasPrefix(text, got[:kept])) {
			t.fail(fmt.Sprintf("the header %s has the beginning of the error's text, of which 16 KiB are within MaxHeaderBytes and MaxMessageBytes", headers.ExceptionMessage),
				"%d bytes, %s", len(got), excerpt([]byte(got)))
		}
	}},
	{rule: "R24", title: "a message whose error is not UTF-8 reaches the error queue", run: func(t *caseT) {
		transport := t.open()
		in := t.failsWith(transport, errors.New("code \xff\xfe, \x00 and a tab\t✓"))
		const want = "code \uFFFD, \uFFFD and a tab\t✓"
		if got := in.Headers.Get(headers.ExceptionMessage); got != want {
			t.fail(fmt.Sprintf("the header %s is %q", headers.ExceptionMessage, want), "%q", got)
		}
	}},
	{rule: "R24", title: "the largest message that an endpoint sends reaches the error queue", slow: true, needs: []need{tryable}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(1) })
		s.handle("order", func(_ context.Context, m *core.Message) error {
			return seen.failWith(m, errors.New(strings.Repeat("a long story. ", 1<<20/14)))
		})
		s.run()
		body := bytes.Repeat([]byte("x"), usualBody)
		if t.caps.MaxMessageBytes > 0 {
			// The refusal says by how much the body is too large.
			body = bytes.Repeat([]byte("x"), t.caps.MaxMessageBytes)
			tooLarge, ok := errors.AsType[*core.TooLargeError](s.Send(t.ctx, s.queue, orderType.Of(body)))
			if !ok {
				t.stop("an endpoint refuses a body as large as MaxMessageBytes", "it did not")
			}
			body = body[:len(body)-(tooLarge.Size-tooLarge.Max)]
		}
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := s.Send(ctx, s.queue, orderType.Of(body)); err != nil {
			t.stop(fmt.Sprintf("the transport takes a body of %d bytes, which is within its MaxMessageBytes of %d", len(body), t.caps.MaxMessageBytes), "%v", err)
		}
		in := s.wantOneMoved()
		if !bytes.Equal(in.Body, body) {
			t.fail(fmt.Sprintf("the body in the error queue is that which was sent, of %d bytes", len(body)), "%s", excerpt(in.Body))
		}
		t.wantFailedFrom(in, transport, s.queue)
	}},
	{rule: "R24", title: "a message at MaxMessageBytes reaches the error queue", needs: []need{messageLimit, tryable}, run: func(t *caseT) {
		t.movesFull(func(m *core.Outgoing) {
			m.Body = bytes.Repeat([]byte("x"), t.caps.MaxMessageBytes-m.Headers.Bytes())
		})
	}},
	{rule: "R24", title: "a message with headers at MaxHeaderBytes reaches the error queue", needs: []need{headerLimit}, run: func(t *caseT) {
		t.movesFull(func(m *core.Outgoing) {
			const size = 1 << 10 // of one header, as brokers limit these too
			limit := t.caps.MaxHeaderBytes
			if t.caps.MaxMessageBytes > 0 {
				limit = min(limit, t.caps.MaxMessageBytes)
			}
			for i := 0; m.Headers.Bytes() < limit; i++ {
				key := fmt.Sprintf("H%d", i)
				room := limit - m.Headers.Bytes() - len(key)
				if room < 0 { // the last one fills the remaining space
					last := fmt.Sprintf("H%d", i-1)
					m.Headers.Set(last, m.Headers.Get(last)+strings.Repeat("v", room+len(key)))
					break
				}
				m.Headers.Set(key, strings.Repeat("v", min(room, size)))
			}
		})
	}},
	{rule: "R24", title: "a message from a sender with higher limits is retried and reaches the error queue", needs: []need{lowerLimit}, run: func(t *caseT) {
		sender, transport := t.open(), t.openLimited(lowLimit)
		var runs, delayed atomic.Int64
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if runs.Add(1) > endless {
				return nil
			}
			if m.DelayedRetries > 0 {
				delayed.Add(1)
			}
			return errHandler
		})
		s.run()
		sent := t.beyondLimit(s.queue, "sent with higher limits")
		sent.Headers.Set(headers.MessageTypes, "order")
		t.send(sender, sent)
		in := s.wantOneMoved()
		if !bytes.Equal(in.Body, sent.Body) {
			t.fail(fmt.Sprintf("the body in the error queue is that which was sent, of %d bytes", len(sent.Body)), "%d bytes, %s", len(in.Body), excerpt(in.Body))
		}
		if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
			t.fail(fmt.Sprintf("the headers in the error queue are the %d that were sent", len(want)), "%d headers of %d bytes", len(got), in.Headers.Bytes())
		}
		t.wantFailedFrom(in, transport, s.queue)
		if in.Headers.Get(headers.ExceptionMessage) == "" {
			t.fail(fmt.Sprintf("the header %s is in the error queue", headers.ExceptionMessage), "there is none")
		}
		if t.canDelay() && delayed.Load() == 0 {
			t.fail("the message is attempted after a delayed retry", "it was attempted %d times, never after one", runs.Load())
		}
	}},
}

// failsWith lets a message fail, and returns it from the error queue.
func (t *caseT) failsWith(transport core.Transport, err error) *core.Incoming {
	var seen attempts
	s := t.service(transport, func(c *core.Config) {
		c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
	})
	s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, err) })
	s.run()
	sent := t.command(s.queue, "order", "m1")
	t.send(transport, sent)
	in := s.wantOneMoved()
	t.wantFailedWith(in, sent)
	t.wantFailedFrom(in, transport, s.queue)
	return in
}

// movesFull checks that a message without room for headers about the failure arrives in
// the error queue unchanged. A delayed copy of it does not fit either.
func (t *caseT) movesFull(fill func(m *core.Outgoing)) {
	transport := t.open()
	var seen attempts
	s := t.service(transport, func(c *core.Config) {
		c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
	})
	s.handle("order", seen.fail)
	s.run()
	sent := t.command(s.queue, "order", "")
	fill(&sent)
	t.send(transport, sent)
	in := s.wantOneMoved()
	if !bytes.Equal(in.Body, sent.Body) {
		t.fail(fmt.Sprintf("the body in the error queue is that which was sent, %s", excerpt(sent.Body)), "%s", excerpt(in.Body))
	}
	if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail(fmt.Sprintf("the headers in the error queue are the %d that were sent", len(want)), "%d headers of %d bytes", len(got), in.Headers.Bytes())
	}
}
