package asb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// pendingSend is a message of a call of Send.
type pendingSend struct {
	index   int // in the call
	message *message.Outgoing
}

// destination is a queue or a topic in the namespace.
type destination struct {
	entity string
	topic  bool
}

// stream is the sequence of a call's messages to one queue or topic that must arrive in
// order: those of one session, or those without a session.
type stream struct {
	to       destination
	messages []pendingSend
}

// isMixed reports whether messages belong to several sessions: messages without a group
// may each have a separate session.
func isMixed(messages []pendingSend) bool {
	first := value(messages[0].message.Properties.GroupID)
	return slices.ContainsFunc(messages[1:], func(p pendingSend) bool { return value(p.message.Properties.GroupID) != first })
}

// Send implements core.Transport. The messages of a call to one queue or topic share
// batches, as large as the service accepts.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	if err := t.life.Err(ctx); err != nil {
		return fmt.Errorf("asb: send: %w", transport.NoneSent(msgs, -1, err))
	}
	streams, err := t.streams(msgs)
	if err != nil {
		return err
	}
	errs := make([]error, len(msgs))
	if len(streams) == 1 {
		t.sendStream(ctx, streams[0], msgs, errs)
	} else {
		slots := make(chan struct{}, maxConcurrentStreams)
		var running sync.WaitGroup
		for _, s := range streams {
			slots <- struct{}{}
			running.Go(func() {
				t.sendStream(ctx, s, msgs, errs)
				<-slots
			})
		}
		running.Wait()
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	results := make([]core.SendResult, len(msgs))
	for i := range msgs {
		results[i] = core.SendResult{ID: msgs[i].ID, To: msgs[i].Queue + msgs[i].Topic, State: core.SendAccepted}
		if err := errs[i]; err != nil {
			results[i].State, results[i].Err = core.SendUnknown, t.explained(err)
			if _, notSent := errors.AsType[*notSentError](err); notSent || refused(err) {
				results[i].State = core.SendRefused
			}
		}
	}
	return fmt.Errorf("asb: send: %w", transport.Unavailable(ctx, &core.SendError{Results: results}, transient))
}

// maxConcurrentStreams is how many streams of a call are sent at the same time.
const maxConcurrentStreams = 16

// streams checks and encodes messages. It returns the error for Send.
func (t *Transport) streams(msgs []core.Outgoing) ([]*stream, error) {
	var streams []*stream
	type key struct {
		to      destination
		session string
	}
	var known map[key]*stream // nil while there is at most one
	var last *stream
	var lastKey key
	for i := range msgs {
		out := &msgs[i]
		to, m, err := t.prepare(out)
		if err != nil {
			return nil, fmt.Errorf("asb: send: %w", transport.NoneSent(msgs, i, err))
		}
		if out.TimeToBeReceived > 0 && out.TimeToBeReceived <= out.Delay {
			continue // it would expire before it is due
		}
		k := key{to: to}
		if m.Properties.GroupID != nil && out.GroupKey != "" {
			k.session = *m.Properties.GroupID
		}
		if last == nil || k != lastKey {
			s := known[k]
			if s == nil {
				s = &stream{to: to}
				streams = append(streams, s)
			}
			if last != nil && known == nil {
				known = map[key]*stream{lastKey: last}
			}
			if known != nil {
				known[k] = s
			}
			last, lastKey = s, k
		}
		last.messages = append(last.messages, pendingSend{i, m})
	}
	return streams, nil
}

// prepare returns a message's destination in the namespace, and the message in the form
// that the SDK sends.
func (t *Transport) prepare(out *core.Outgoing) (to destination, m *message.Outgoing, err error) {
	if err := transport.CheckOutgoing(out, &t.caps); err != nil {
		return to, nil, err
	}
	if out.Topic != "" {
		return t.prepareEvent(out)
	}
	address, err := t.cfg.names().Target(out.Queue)
	if err != nil {
		return to, nil, err
	}
	m, err = t.codec.Encode(out, t.cfg.names().KeepsGroups(address))
	return destination{entity: t.cfg.QueuePrefix + address}, m, err
}

// notSentError is an error from before anything was sent.
type notSentError struct {
	error
	closed bool // the connection was lost and is closed, so that the next message opens another one
}

func (e *notSentError) Unwrap() error { return e.error }

const (
	// firstBusyPause is the approximate pause before a message that a busy service has
	// refused is sent again. Each further pause is twice as long.
	firstBusyPause = time.Second / 2
	// lastBusyPause is the longest of these pauses: about the time that the service asks
	// for.
	lastBusyPause = 4 * time.Second
)

// sendStream sends the messages of a stream, and records their errors. After the first
// error the others are not sent: they would overtake a message with an unknown outcome.
//
// Messages that a busy service has refused are sent again, until requestTimeout or ctx
// ends: throttling is part of normal operation, and all SDKs wait
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling). The
// SDK's own retries are off, since they also repeat messages with an unknown outcome.
func (t *Transport) sendStream(ctx context.Context, s *stream, msgs []core.Outgoing, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	remaining := s.messages
	reopened := false
	pause := firstBusyPause
	for len(remaining) > 0 {
		n, err := t.sendBatch(ctx, s.to, remaining)
		if notSent, ok := errors.AsType[*notSentError](err); ok && notSent.closed && !reopened && ctx.Err() == nil {
			reopened = true
			continue
		}
		if isBusy(err) {
			ended := transport.Sleep(ctx, t.life.Context(), pause/2+rand.N(pause), nil)
			if ended == nil {
				pause = min(2*pause, lastBusyPause)
				continue
			}
			err = fmt.Errorf("the service was busy until the call ended (%w): %w", ended, err)
		}
		if err != nil {
			if err = t.missing(s.to, err); err == nil { // a topic without subscribers
				for _, p := range remaining {
					errs[p.index] = transport.CheckSubscribers(ctx, &msgs[p.index], 0)
				}
				return
			}
			for i, p := range remaining {
				if errs[p.index] = err; i >= n {
					errs[p.index] = &notSentError{error: err}
				}
			}
			return
		}
		remaining, pause = remaining[n:], firstBusyPause
	}
}

// sendBatch sends as many messages as fit into one batch, and returns their number, also
// with an error.
func (t *Transport) sendBatch(ctx context.Context, to destination, messages []pendingSend) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return len(messages), &notSentError{error: err}
	}
	sender, err := t.sending.sender(ctx, to.entity)
	if err != nil {
		return len(messages), &notSentError{error: err}
	}
	defer func() {
		if err != nil {
			t.closeIfUnusable(sender, err)
		}
		if notSent, ok := errors.AsType[*notSentError](err); ok {
			notSent.closed = faultOf(err) == faultOutage && !t.sending.has(sender)
		}
		t.sending.release(sender)
	}()
	refused := &sender.refusesBatches
	if isMixed(messages) {
		refused = &sender.refusesMixed
	}
	if len(messages) == 1 || refused.Load() || sender.refusesBatches.Load() {
		return 1, t.sendOne(ctx, sender, messages[0].message)
	}
	batch, err := sender.newBatch(ctx)
	if err != nil {
		return len(messages), &notSentError{error: err}
	}
	sender.opened.Store(true)
	for n < len(messages) {
		if err := batch.AddAMQPAnnotatedMessage(messages[n].message, nil); err != nil {
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			}
			return n + 1, &notSentError{error: err}
		}
		n++
	}
	if n <= 1 {
		return 1, t.sendOne(ctx, sender, messages[0].message)
	}
	if batch.NumBytes() > oneFrame {
		err = t.sendWhole(ctx, sender, func(ctx context.Context) error { return sender.SendMessageBatch(ctx, batch, nil) })
	} else {
		err = sender.call(ctx, func(ctx context.Context) error { return sender.SendMessageBatch(ctx, batch, nil) })
	}
	if refusesBatch(err) {
		refused.Store(true)
		return 1, t.sendOne(ctx, sender, messages[0].message)
	}
	return n, err
}

// refusesBatch reports whether the service has refused messages because they are in one
// batch. It accepts none of the messages of such a batch (azure-service-bus#103).
//
// "All messages included in a single send operation must have the same PartitionKey", and
// SessionId, on a partitioned entity (TROUBLESHOOTING.md of azure-sdk-for-net), and
// "batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not
// supported for an entity with partitioning and duplicate detection enabled"
// (azure-amqp#118). Without the right Manage the adapter does not know which entities are
// partitioned.
func refusesBatch(err error) bool {
	condition, _ := conditionOf(err)
	return condition == amqp.ErrCondNotAllowed && !linkClosed(err)
}

// sendOne sends a message without a batch.
func (t *Transport) sendOne(ctx context.Context, s *sender, m *message.Outgoing) error {
	if !s.opened.Load() {
		// This opens the link, so that an error in opening it is known to concern no
		// message.
		if _, err := s.newBatch(ctx); err != nil {
			return &notSentError{error: err}
		}
		s.opened.Store(true)
	}
	send := func(ctx context.Context) error { return s.SendAMQPAnnotatedMessage(ctx, m, nil) }
	if sizeOf(m) > oneFrame {
		return t.sendWhole(ctx, s, send)
	}
	return s.call(ctx, send)
}

// newBatch returns an empty batch, and opens the link if there is none.
func (s *sender) newBatch(ctx context.Context) (*azservicebus.MessageBatch, error) {
	return sdkclient.Call(ctx, s.client, "open a link", func() (*azservicebus.MessageBatch, error) { return s.NewMessageBatch(ctx, nil) }, nil)
}

// call sends a message or a batch.
func (s *sender) call(ctx context.Context, send func(ctx context.Context) error) error {
	err := s.client.Do(ctx, "send", func() error { return send(ctx) })
	if sdkclient.WasNotMade(err) {
		return &notSentError{error: err}
	}
	return err
}

// oneFrame is the most bytes of a message that certainly fits into one AMQP frame. The
// service's frames have 64 KiB.
const oneFrame = 60 << 10

// sizeOf returns the most bytes that a message takes, or more than fit into a frame.
func sizeOf(m *message.Outgoing) int {
	const fields, overhead = 2 << 10, 16                                  // AMQP's own fields; the bytes of each property in addition to its text
	if m.Body.Value != nil || m.Body.Sequence != nil || m.Footer != nil { // of a foreign sender
		return oneFrame + 1
	}
	size := fields + len(m.Properties.UserID)
	for _, text := range []*string{m.Properties.Subject, m.Properties.To, m.Properties.ContentEncoding, m.Properties.ReplyToGroupID} {
		size += len(value(text))
	}
	for _, part := range m.Body.Data {
		size += len(part) + overhead
	}
	for key, property := range m.ApplicationProperties {
		size += len(key) + message.SizeOf(property) + overhead
	}
	return size
}

// sendWhole sends a message or batch that may take several frames. If its context ended
// between two frames the SDK would send no more, and the service would take the next
// message on the link for the rest (go-amqp v1.7.0, Sender.send). So when ctx ends the
// sending continues, and only the wait for it ends.
func (t *Transport) sendWhole(ctx context.Context, s *sender, send func(ctx context.Context) error) error {
	sent := make(chan error, 1)
	if !t.life.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		err := s.call(ctx, send)
		if ctx.Err() != nil {
			t.sending.lost(s) // it may have been between two frames
		}
		sent <- err
	}) {
		return &notSentError{error: core.ErrClosed}
	}
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeIfUnusable closes the link or the connection if the error shows that it is unusable.
func (t *Transport) closeIfUnusable(s *sender, err error) {
	s.opened.Store(false)
	switch f := faultOf(err); {
	case f == faultNoEntity || f == faultRefused || f == faultNoToken || linkClosed(err):
		t.sending.forget(s)
	case f == faultOutage && !answered(err) && !isContext(err):
		t.sending.lost(s)
	}
}
