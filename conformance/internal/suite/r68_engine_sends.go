package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// engineSendCases are about the messages that the engine itself sends when a message was
// handled, and that a queue refuses. Handlers work in the native transaction where there is one.
var engineSendCases = []testCase{
	{rule: "R68", title: "an acknowledgement to a queue that does not exist costs no attempt and no work", run: func(t *caseT) {
		f := t.engineSends(t.uniqueName(), "")
		f.handle("m1", "m2")
		f.service.wantDrained("after two messages were handled whose acknowledgements were refused")
		f.check("m1", "m2")
	}},
	{rule: "R68", title: "an audit copy for a queue that does not exist costs no attempt and no work", run: func(t *caseT) {
		f := t.engineSends(t.uniqueName(), t.uniqueName())
		f.handle("m1", "m2")
		f.service.end() // the copies wait in the endpoint's queue
		f.check("m1", "m2")
	}},
	{rule: "R68", title: "a queue for acknowledgements that is removed costs no attempt and no work", needs: []need{deletion}, run: func(t *caseT) {
		removed := t.uniqueName()
		f := t.engineSends(removed, "")
		t.provision(f.transport, removed)
		f.handle("m1", "m2")
		t.wantLeft(removed, "the acknowledgements of two messages, which have no body, while their queue exists", "", "")
		t.suite.h.DeleteQueue(t, removed)
		f.handle("m3", "m4")
		f.service.wantDrained("after two more messages were handled whose acknowledgements were refused")
		f.check("m1", "m2", "m3", "m4")
	}},
}

// engineSends is an endpoint whose messages ask for acknowledgements.
type engineSends struct {
	t         *caseT
	transport core.Transport
	service   *service
	ackQueue  string
	output    string // of the handlers' messages
	seen      attempts

	mu   sync.Mutex
	keys []string // of the handlers' work
}

func (t *caseT) engineSends(ackQueue, auditQueue string) *engineSends {
	f := &engineSends{t: t, transport: t.open(), ackQueue: ackQueue}
	f.output = t.queue(f.transport)
	unchecked := &faultTransport{Transport: f.transport} // which is no core.Checker: otherwise Run would report the missing queue
	f.service = t.serviceOn(unchecked, t.queue(f.transport), t.queue(f.transport), func(c *core.Config) {
		c.RetryAckQueues, c.AuditQueue = []string{ackQueue}, auditQueue
		c.Recoverability.Immediate = t.immediate(2)
	})
	f.service.handle("job", f.work)
	f.service.run()
	return f
}

// work is the handler.
func (f *engineSends) work(ctx context.Context, m *core.Message) error {
	if f.seen.add(m) > endless {
		return core.Discard(errors.New("attempted too often"))
	}
	if tx := f.t.suite.h.NativeTx; tx != nil && f.t.mode == core.TransactionSendsAtomicWithReceive {
		key := f.t.uniqueName()
		if err := tx.Write(ctx, key); err != nil {
			return err
		}
		f.mu.Lock()
		f.keys = append(f.keys, key)
		f.mu.Unlock()
	}
	return m.Send(f.output, anyType.Of(m.RawBody()))
}

// handle lets the endpoint handle messages, one after the other, and returns when the messages
// that their handlers sent have arrived.
func (f *engineSends) handle(bodies ...string) {
	for _, body := range bodies {
		m := f.t.command(f.service.queue, "job", body)
		m.Headers.Set(headers.RetryUniqueMessageID, "return of "+body)
		m.Headers.Set(headers.RetryAckQueue, f.ackQueue)
		f.t.send(f.transport, m)
		f.t.wantLeft(f.output, "the message that the handler of "+body+" sent", body)
	}
}

// check ends the case.
func (f *engineSends) check(bodies ...string) {
	const when = "after the engine's own sends were refused"
	for _, body := range bodies {
		f.t.wantAttempts(&f.seen, body, 1)
	}
	for i, key := range f.keys {
		f.t.wantCommitted(key, fmt.Sprintf("%s, that of attempt %d of %d", when, i+1, len(f.keys)))
	}
	f.t.wantLeft(f.output, when)
	f.t.wantLeft(f.service.errorQueue, when)
}
