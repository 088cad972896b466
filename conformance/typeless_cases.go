package conformance

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// typelessCases are about messages without a type.
var typelessCases = []testCase{
	{rule: "R6", title: "a message that names no type goes to the error queue at once", run: func(t *trial) {
		transport := t.open()
		var seen, handled attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(3), t.delayed(2)
			c.Middleware = []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error { return seen.failWith(m, next(ctx, m)) }
			}}
		})
		s.handle("order", handled.fail)
		sent := map[string]core.Outgoing{"no header": t.message(s.queue, "no header")}
		for body, value := range map[string]string{"blanks": "  ", "only separators": ";;,;"} {
			m := t.message(s.queue, body)
			m.Headers.Set(core.HeaderMessageTypes, value)
			sent[body] = m
		}
		for _, m := range sent {
			t.send(transport, m)
		}
		s.run()
		moved := s.moved(len(sent))
		s.leftNothing("after all messages went to the error queue")
		for body, m := range sent {
			t.attempted(&seen, body, 1)
			if got := handled.of(body); len(got) > 0 {
				t.fail("no handler gets a message that names no type", "message %q: %v, with the headers %q", body, got, got[0].headers.Map())
			}
			if in := moved[body]; in != nil {
				t.failedWith(in, m)
				t.failedFrom(in, transport, s.queue)
			}
		}
	}},
	{rule: "C10", title: "a control message is consumed, audited and acknowledged", run: func(t *trial) {
		transport := t.open()
		audit, acks := t.queue(transport), t.queue(transport)
		var handled attempts
		s := t.service(transport, func(c *core.Config) { c.AuditQueue = audit })
		s.handle("order", handled.fail)
		s.run()
		sent := t.message(s.queue, "")
		sent.Body = nil
		sent.Headers.Set(core.HeaderControlMessage, "True")
		sent.Headers.Set(core.HeaderMessageIntent, core.IntentSend)
		sent.Headers.Set(core.HeaderRetryUniqueMessageID, "unique "+sent.ID)
		sent.Headers.Set(core.HeaderRetryAckQueue, acks)
		t.send(transport, sent)
		const consumed = "a control message, which has neither a type nor a body, is consumed"
		for _, ack := range t.arrive(acks, consumed+", and an operator's retry of it acknowledged", 1) {
			if got, want := ack.Headers.Get(core.HeaderRetryUniqueMessageID), "unique "+sent.ID; got != want {
				t.fail(fmt.Sprintf("the acknowledgement has the header %s: %q", core.HeaderRetryUniqueMessageID, want), "%q", got)
			}
		}
		for _, in := range t.left(audit, consumed+", and audited", "") {
			if in.ID != sent.ID {
				t.fail("the audit copy has the message's id, "+sent.ID, "%q", in.ID)
			}
		}
		s.leftNothing("after its control message was consumed")
		t.left(s.errorQueue, "after a control message was consumed")
	}},
}
