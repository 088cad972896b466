package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// lowLimit is the MaxMessageBytes of a receiver whose senders have a higher one.
const lowLimit = 16 << 10

// engineCopies are the reasons with which the engine sends copies of received messages.
var engineCopies = []core.SendReason{
	core.ReasonDelayedRetry, core.ReasonDeferral, core.ReasonMoveToError, core.ReasonAudit, core.ReasonUndelivered, core.ReasonNewCopy,
}

var lowerLimitCases = []testCase{
	{rule: "C10", title: "the limits are for what applications send", in: once, needs: []need{lowerLimit}, run: func(t *trial) {
		transport := t.openLimited(lowLimit)
		queue := t.queue(transport)
		for _, reason := range []core.SendReason{core.ReasonApplication, core.ReasonForward, core.ReasonAcknowledgement} {
			m := t.beyondLimit(queue, "")
			m.Reason = reason
			if err := t.trySend(transport, m); !errors.Is(err, core.ErrTooLarge) {
				t.fail(fmt.Sprintf("Send refuses a message larger than MaxMessageBytes whose Reason is %v with an error matching core.ErrTooLarge", reason), "%v", err)
			}
		}
		copies := make([]core.Outgoing, len(engineCopies))
		for i, reason := range engineCopies {
			copies[i] = t.beyondLimit(queue, fmt.Sprint(i))
			copies[i].Reason = reason
			if err := t.trySend(transport, copies[i]); err != nil {
				t.stop(fmt.Sprintf("Send takes a message larger than MaxMessageBytes whose Reason is %v, because the broker takes it", reason), "%v", err)
			}
		}
		t.arriveUnchanged(transport, queue, copies...)
	}},
	{rule: "R24", title: "a message from a sender with higher limits is retried and reaches the error queue", needs: []need{lowerLimit}, run: func(t *trial) {
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
		sent.Headers.Set(core.HeaderMessageTypes, "order")
		t.send(sender, sent)
		in := s.movedOne()
		if !bytes.Equal(in.Body, sent.Body) {
			t.fail(fmt.Sprintf("the body in the error queue is that which was sent, of %d bytes", len(sent.Body)), "%d bytes, %s", len(in.Body), excerpt(in.Body))
		}
		if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
			t.fail(fmt.Sprintf("the headers in the error queue are the %d that were sent", len(want)), "%d headers of %d bytes", len(got), in.Headers.Bytes())
		}
		t.failedFrom(in, transport, s.queue)
		if in.Headers.Get(core.HeaderExceptionMessage) == "" {
			t.fail(fmt.Sprintf("the header %s is in the error queue", core.HeaderExceptionMessage), "there is none")
		}
		if t.canDelay() && delayed.Load() == 0 {
			t.fail("the message is attempted after a delayed retry", "it was attempted %d times, never after one", runs.Load())
		}
	}},
}

// beyondLimit returns a message whose body alone, and whose headers alone, are larger than
// lowLimit.
func (t *trial) beyondLimit(queue, text string) core.Outgoing {
	m := t.message(queue, text)
	for i := 0; m.Headers.Bytes() <= lowLimit; i++ {
		m.Headers.Set(fmt.Sprintf("H%d", i), strings.Repeat("v", 1<<10))
	}
	m.Body = append([]byte(text), t.randomBytes(4*lowLimit)...)
	return m
}
