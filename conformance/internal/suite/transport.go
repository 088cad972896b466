package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Operations of cases on a transport. A failure here stops the case.

// open returns a new transport, as another process would have.
func (t *caseT) open() core.Transport {
	if short := t.suite.h.OpenShortLocks; short != nil && t.waitsForLocks() {
		return t.opened(short(t), "Harness.OpenShortLocks")
	}
	return t.opened(t.suite.h.Open(t), "Harness.Open")
}

// openLimited returns a transport with the given MaxMessageBytes.
func (t *caseT) openLimited(maxMessageBytes int) core.Transport {
	transport := t.opened(t.suite.h.OpenLimited(t, maxMessageBytes), "Harness.OpenLimited")
	if got := transport.Capabilities().MaxMessageBytes; got != maxMessageBytes {
		t.stop(fmt.Sprintf("Harness.OpenLimited returns a transport whose MaxMessageBytes is %d", maxMessageBytes), "it is %d", got)
	}
	return transport
}

// openOnLine returns a transport with its own network.
func (t *caseT) openOnLine() (core.Transport, Line) {
	transport, line := t.suite.h.OpenOnLine(t)
	if line == nil {
		t.stop("Harness.OpenOnLine returns a Line", "it returned nil")
	}
	return t.opened(transport, "Harness.OpenOnLine"), line
}

func (t *caseT) opened(transport core.Transport, by string) core.Transport {
	if transport == nil {
		t.stop(by+" returns a transport", "it returned nil")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.suite.h.Timeout)
		defer cancel()
		if err := transport.Close(ctx); err != nil {
			t.fail("Transport.Close returns nil, also when called again", "%v", err)
		}
	})
	return transport
}

// close closes a transport, as the end of its process would.
func (t *caseT) close(transport core.Transport) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := transport.Close(ctx); err != nil {
		t.stop("Transport.Close returns nil", "%v", err)
	}
}

// uniqueName returns a name that no other case and no other run uses.
func (t *caseT) uniqueName() string {
	return fmt.Sprintf("conf-%s-%d", t.suite.run, t.suite.names.Add(1))
}

// queue returns an empty queue for this case.
func (t *caseT) queue(transport core.Transport) string {
	if t.suite.h.Queue != nil {
		return t.suite.h.Queue(t)
	}
	queue := t.uniqueName()
	t.provision(transport, queue)
	return queue
}

func (t *caseT) provision(transport core.Transport, queues ...string) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := transport.(core.Provisioner).Provision(ctx, topologyOf(queues...)); err != nil {
		t.stop(fmt.Sprintf("Provision creates %q", queues), "%v", err)
	}
}

// topologyOf returns the topology of an endpoint that receives from the first queue and
// sends to the others.
func topologyOf(queues ...string) core.Topology {
	topology := core.Topology{Queues: queues}
	if len(queues) > 0 {
		topology.InputQueue = queues[0]
	}
	return topology
}

// send sends messages, and stops the case if they are not accepted.
func (t *caseT) send(transport core.Transport, msgs ...core.Outgoing) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := transport.Send(ctx, msgs...); err != nil {
		t.stop(fmt.Sprintf("Send accepts %d messages", len(msgs)), "%v", err)
	}
}

// trySend returns the error of Send.
func (t *caseT) trySend(transport core.Transport, msgs ...core.Outgoing) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	return transport.Send(ctx, msgs...)
}

// wantSendRefused checks that a whole Send was refused with the error, that the
// SendError has it for every message, and that no message was sent.
func (t *caseT) wantSendRefused(transport core.Transport, want error, msgs ...core.Outgoing) {
	err := t.trySend(transport, msgs...)
	if !errors.Is(err, want) {
		t.stop("Send returns an error matching "+errorName(want), "%v", err)
	}
	results := t.sendResults(err, msgs)
	for i, r := range results {
		if r.State != core.SendRefused {
			t.fail("nothing of a Send is sent when one of its messages cannot be: each is core.SendRefused", "message %d is %v", i, r.State)
		}
	}
}

// errorName returns the name of an expected error as in a program.
func errorName(err error) string {
	for name, known := range map[string]error{
		"errors.ErrUnsupported": errors.ErrUnsupported, "core.ErrQueueNotFound": core.ErrQueueNotFound, "core.ErrTooLarge": core.ErrTooLarge,
		"core.ErrClosed": core.ErrClosed, "core.ErrLockLost": core.ErrLockLost, "core.ErrSettled": core.ErrSettled,
		"context.Canceled": context.Canceled, "context.DeadlineExceeded": context.DeadlineExceeded,
	} {
		if err == known { //nolint:errorlint // the error itself, not an error that wraps it
			return name
		}
	}
	return fmt.Sprintf("%q", err)
}

// sendResults returns the results of a SendError, after checking that it is well formed.
func (t *caseT) sendResults(err error, msgs []core.Outgoing) []core.SendResult {
	sent, ok := errors.AsType[*core.SendError](err)
	if !ok {
		t.stop("Send's error matches *core.SendError", "%T: %v", err, err)
	}
	if len(sent.Results) != len(msgs) {
		t.stop(fmt.Sprintf("SendError has a result for each of %d messages", len(msgs)), "it has %d", len(sent.Results))
	}
	for i, r := range sent.Results {
		if to := msgs[i].Queue + msgs[i].Topic; r.ID != msgs[i].ID || r.To != to {
			t.stop("SendError's results are in the order of the messages, with their ID and destination",
				"result %d is of message %q to %q instead of %q to %q", i, r.ID, r.To, msgs[i].ID, to)
		}
		if (r.State == core.SendAccepted) != (r.Err == nil) {
			t.stop("a SendResult has an Err exactly when its message was not accepted", "result %d is %v with %v", i, r.State, r.Err)
		}
	}
	return sent.Results
}

// sendEach sends one message for each body.
func (t *caseT) sendEach(transport core.Transport, queue string, bodies ...string) {
	msgs := make([]core.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i] = t.message(queue, body)
	}
	for chunk := range slices.Chunk(msgs, 50) {
		t.send(transport, chunk...)
	}
}

// unsupported returns messages with options that the transport does not claim.
func (t *caseT) unsupported(queue string) (list []core.Outgoing) {
	add := func(change func(o *core.Outgoing)) {
		m := t.message(queue, "unsupported")
		change(&m)
		list = append(list, m)
	}
	if !t.caps.DelayedDelivery {
		add(func(o *core.Outgoing) { o.Delay = time.Second })
	}
	if !t.caps.TimeToBeReceived {
		add(func(o *core.Outgoing) { o.TimeToBeReceived = time.Hour })
	}
	if !t.caps.PublishSubscribe {
		add(func(o *core.Outgoing) { o.Queue, o.Topic = "", t.uniqueName() })
	}
	return list
}

// lowLimit is the MaxMessageBytes of a receiver whose senders have a higher one.
const lowLimit = 16 << 10

// engineCopies are the reasons with which the engine sends copies of received messages.
var engineCopies = []core.SendReason{
	core.ReasonDelayedRetry, core.ReasonDeferral, core.ReasonMoveToError, core.ReasonAudit, core.ReasonUndelivered, core.ReasonNewCopy, core.ReasonReturn,
}

// beyondLimit returns a message whose body alone, and whose headers alone, are larger
// than lowLimit.
func (t *caseT) beyondLimit(queue, text string) core.Outgoing {
	m := t.message(queue, text)
	for i := 0; m.Headers.Bytes() <= lowLimit; i++ {
		m.Headers.Set(fmt.Sprintf("H%d", i), strings.Repeat("v", 1<<10))
	}
	m.Body = append([]byte(text), t.randomBytes(4*lowLimit)...)
	return m
}
