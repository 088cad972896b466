package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Operations of cases on a transport. A failure here stops the case.

// open returns a new transport, as another process would have.
func (t *trial) open() core.Transport {
	if short := t.suite.h.OpenShortLocks; short != nil && t.waitsForLocks() {
		return t.opened(short(t), "Harness.OpenShortLocks")
	}
	return t.opened(t.suite.h.Open(t), "Harness.Open")
}

// openLimited returns a transport with the given MaxMessageBytes.
func (t *trial) openLimited(maxMessageBytes int) core.Transport {
	transport := t.opened(t.suite.h.OpenLimited(t, maxMessageBytes), "Harness.OpenLimited")
	if got := transport.Capabilities().MaxMessageBytes; got != maxMessageBytes {
		t.stop(fmt.Sprintf("Harness.OpenLimited returns a transport whose MaxMessageBytes is %d", maxMessageBytes), "it is %d", got)
	}
	return transport
}

// openOnLine returns a transport with its own network.
func (t *trial) openOnLine() (core.Transport, Line) {
	transport, line := t.suite.h.OpenOnLine(t)
	if line == nil {
		t.stop("Harness.OpenOnLine returns a Line", "it returned nil")
	}
	return t.opened(transport, "Harness.OpenOnLine"), line
}

func (t *trial) opened(transport core.Transport, by string) core.Transport {
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
func (t *trial) close(transport core.Transport) {
	ctx, cancel := t.patient()
	defer cancel()
	if err := transport.Close(ctx); err != nil {
		t.stop("Transport.Close returns nil", "%v", err)
	}
}

// uniqueName returns a name that no other case and no other run uses.
func (t *trial) uniqueName() string {
	return fmt.Sprintf("conf-%s-%d", t.suite.run, t.suite.names.Add(1))
}

// queue returns an empty queue for this case.
func (t *trial) queue(transport core.Transport) string {
	if t.suite.h.Queue != nil {
		return t.suite.h.Queue(t)
	}
	queue := t.uniqueName()
	t.provision(transport, queue)
	return queue
}

func (t *trial) provision(transport core.Transport, queues ...string) {
	ctx, cancel := t.patient()
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

// id returns a message id that no other message has.
func (t *trial) id() string {
	return fmt.Sprintf("m%d-%016x", t.suite.names.Add(1), t.random.Uint64())
}

// message returns a message as the engine would send it: with an id, and the
// header for it.
func (t *trial) message(queue, body string) core.Outgoing {
	id := t.id()
	var h core.Headers
	h.Set(core.HeaderMessageID, id)
	h.Set("Sender", "conformance, ünïcode ✓")
	return core.Outgoing{ID: id, Queue: queue, Headers: h, Body: []byte(body)}
}

// messages returns n messages.
func (t *trial) messages(queue string, n int) []core.Outgoing {
	out := make([]core.Outgoing, n)
	for i := range out {
		out[i] = t.message(queue, fmt.Sprintf("body %d", i))
	}
	return out
}

// send sends messages, and stops the case if they are not accepted.
func (t *trial) send(transport core.Transport, msgs ...core.Outgoing) {
	ctx, cancel := t.patient()
	defer cancel()
	if err := transport.Send(ctx, msgs...); err != nil {
		t.stop(fmt.Sprintf("Send accepts %d messages", len(msgs)), "%v", err)
	}
}

// trySend returns the error of Send.
func (t *trial) trySend(transport core.Transport, msgs ...core.Outgoing) error {
	ctx, cancel := t.patient()
	defer cancel()
	return transport.Send(ctx, msgs...)
}

// refused checks that a whole Send was refused with the error, that the SendError has it
// for every message, and that no message was sent.
func (t *trial) refused(transport core.Transport, want error, msgs ...core.Outgoing) {
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
func (t *trial) sendResults(err error, msgs []core.Outgoing) []core.SendResult {
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

// receiver receives from one queue.
type receiver struct {
	core.Receiver
	t     *trial
	queue string
	size  int // of the slices passed to Receive

	redelivers redeliveries // of read
}

// receiver opens a receiver in the case's mode.
func (t *trial) receiver(transport core.Transport, queue string, maxInFlight int) *receiver {
	return t.receiverIn(t.mode, transport, queue, maxInFlight)
}

func (t *trial) receiverIn(mode core.TransactionMode, transport core.Transport, queue string, maxInFlight int) *receiver {
	return t.openReceiver(transport, core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: maxInFlight})
}

func (t *trial) openReceiver(transport core.Transport, cfg core.ReceiverConfig) *receiver {
	ctx, cancel := t.patient()
	defer cancel()
	r, err := transport.OpenReceiver(ctx, cfg)
	if err != nil {
		t.stop(fmt.Sprintf("OpenReceiver opens a receiver in mode %v, which Capabilities.Transactions lists", cfg.Mode), "%v", err)
	}
	if r == nil {
		t.stop("OpenReceiver returns a receiver or an error", "it returned nil, nil")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.suite.h.Timeout)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.fail("Receiver.Close returns nil, also when called again", "%v", err)
		}
	})
	return &receiver{Receiver: r, t: t, queue: cfg.Queue, size: 8}
}

// shut closes the receiver.
func (r *receiver) shut() {
	ctx, cancel := r.t.patient()
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.stop("Receiver.Close returns nil", "%v", err)
	}
}

// batch calls Receive once, and checks its results. If there is no delivery, err is that
// of ctx.
func (r *receiver) batch(ctx context.Context, size int) ([]core.Delivery, error) {
	dst := make([]core.Delivery, size)
	n, err := r.Receive(ctx, dst)
	r.t.active()
	switch {
	case n < 0 || n > len(dst):
		r.t.stop(fmt.Sprintf("Receive fills 1..%d elements", size), "it returned %d", n)
	case n > 0 && err != nil:
		r.t.stop("Receive returns deliveries or an error", "it returned %d deliveries and %v", n, err)
	case n == 0 && err == nil:
		r.t.stop("Receive blocks until it has a delivery or an error", "it returned 0, nil")
	case err != nil && ctx.Err() == nil:
		r.t.stop("Receive returns no error while its context goes on", "%v", err)
	}
	for i, d := range dst[:n] {
		if d == nil || d.Incoming() == nil {
			r.t.stop("Receive fills its slice with deliveries that have a message", "element %d is %v", i, d)
		}
	}
	return dst[:n], err
}

// take waits for the next n deliveries, and returns them.
func (r *receiver) take(n int) []core.Delivery {
	ctx, cancel := r.t.patient()
	defer cancel()
	var taken []core.Delivery
	for len(taken) < n {
		got, err := r.batch(ctx, min(r.size, n-len(taken)))
		if err != nil {
			r.t.stop(fmt.Sprintf("%d messages are delivered from the queue", n), "%d after %v: %s", len(taken), r.t.patience(), bodies(taken))
		}
		taken = append(taken, got...)
	}
	return taken
}

// next waits for the next delivery, and returns it.
func (r *receiver) next() core.Delivery { return r.take(1)[0] }

// within returns the deliveries that arrive within d.
func (r *receiver) within(d time.Duration) []core.Delivery {
	ctx, cancel := context.WithTimeout(r.t.ctx, d)
	defer cancel()
	var taken []core.Delivery
	for {
		got, err := r.batch(ctx, r.size)
		if err != nil {
			return taken
		}
		taken = append(taken, got...)
	}
}

// silent checks that no message is delivered for a while.
func (r *receiver) silent(expected string) {
	if got := r.within(r.t.quiet()); len(got) > 0 {
		r.t.stop(expected, "delivered: %s", bodies(got))
	}
}

func (t *trial) complete(deliveries ...core.Delivery) {
	t.settle("Complete", deliveries, core.Delivery.Complete)
}

var errHandler = errors.New("the handler failed, as the case wants it")

func (t *trial) abandon(deliveries ...core.Delivery) {
	t.settle("Abandon", deliveries, func(d core.Delivery, ctx context.Context) error { return d.Abandon(ctx, errHandler) })
}

func (t *trial) release(deliveries ...core.Delivery) {
	t.settle("Release", deliveries, core.Delivery.Release)
}

const (
	settlesHeld   = " returns nil for a delivery that is held"
	completesHeld = "Complete" + settlesHeld
)

func (t *trial) settle(name string, deliveries []core.Delivery, settle func(core.Delivery, context.Context) error) {
	ctx, cancel := t.patient()
	defer cancel()
	for _, d := range deliveries {
		if err := settle(d, ctx); err != nil {
			t.lockLate(d)
			t.stop(name+settlesHeld, "%v%s", err, lockEndedAgo(d))
		}
	}
}

// lockEndedAgo returns a text about the end of a delivery's lock if it is known to have
// ended.
func lockEndedAgo(d core.Delivery) string {
	if until := d.LockedUntil(); !until.IsZero() && time.Now().After(until) {
		return fmt.Sprintf("; its LockedUntil was %v ago", time.Since(until))
	}
	return ""
}

// same checks that a received message equals the sent one.
func (t *trial) same(in *core.Incoming, sent core.Outgoing) {
	if in.Malformed != nil {
		t.fail("a message that was sent is not Malformed", "%v", in.Malformed)
	}
	if in.ID != sent.ID {
		t.fail(fmt.Sprintf("Incoming.ID is the id that was sent, %q", sent.ID), "%q", in.ID)
	}
	if got, want := in.Headers.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail("the headers are those that were sent, "+excerptHeaders(want, got), "%s", excerptHeaders(got, want))
	}
	if in.GroupKey != sent.GroupKey {
		t.fail(fmt.Sprintf("Incoming.GroupKey is that which was sent, %q", sent.GroupKey), "%q", in.GroupKey)
	}
	if got, want := in.Properties, sent.Properties; !maps.Equal(got, want) {
		t.fail("Incoming.Properties are those that were sent, "+excerptHeaders(want, got), "%s", excerptHeaders(got, want))
	}
	if !bytes.Equal(in.Body, sent.Body) {
		t.fail(fmt.Sprintf("the body is that which was sent, %s", excerpt(sent.Body)), "%s", excerpt(in.Body))
	}
}

// excerptHeaders returns the headers that are missing or different in others.
func excerptHeaders(headers, others map[string]string) string {
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		if other, has := others[key]; !has || other != headers[key] {
			differ = append(differ, excerpt([]byte(key))+": "+excerpt([]byte(headers[key])))
		}
	}
	return fmt.Sprintf("%d headers, here those that differ: {%s}", len(headers), strings.Join(shortened(differ), ", "))
}

// excerpt formats a body of any size.
func excerpt(body []byte) string {
	const shown = 64
	if len(body) <= shown {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%q... (%d bytes)", body[:shown], len(body))
}

// bodies lists the bodies of deliveries.
func bodies(deliveries []core.Delivery) string {
	var list []string
	for _, d := range deliveries {
		list = append(list, string(d.Incoming().Body))
	}
	return some(list)
}

// some formats a list of bodies, or of other texts, of any length.
func some(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = excerpt([]byte(text))
	}
	return "[" + strings.Join(shortened(quoted), ", ") + "]"
}

// listed formats a few of many keys.
func listed[V any](all map[string]V) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, fmt.Sprintf("%s: %v", excerpt([]byte(key)), all[key]))
	}
	return strings.Join(shortened(list), "; ")
}

// shortened leaves out the end of a long list, and says so.
func shortened(list []string) []string {
	const shown = 10
	if len(list) <= shown {
		return list
	}
	return append(slices.Clone(list[:shown]), fmt.Sprintf("and %d more", len(list)-shown))
}
