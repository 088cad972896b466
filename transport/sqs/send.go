package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// PropertyDeduplicationID is the name of a property (core.Outgoing.Properties) with the
// MessageDeduplicationId of a message to a FIFO queue or topic: the service drops a
// second message with the same id within five minutes. Without it each message gets a new
// id, since a message id would drop retries and messages that are returned from the error
// queue. The engine's copies do not use it.
const PropertyDeduplicationID = "AmazonSQS.MessageDeduplicationId"

// sending is a message that is being sent.
type sending struct {
	*message.Encoded
	group         string // MessageGroupId
	deduplication string // MessageDeduplicationId, of a FIFO queue or topic
	delaySeconds  int32
	native        map[string]types.MessageAttributeValue // of a message that is forwarded unchanged
	unknown       bool                                   // after an error: the message may have been accepted
}

// Send implements core.Transport. Messages to one queue or topic share requests, also
// with those of other calls.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	if err := t.life.Err(ctx); err != nil {
		return fmt.Errorf("sqs: send: %w", transport.NoneSent(msgs, -1, err))
	}
	for i := range msgs {
		if err := t.check(&msgs[i]); err != nil {
			return fmt.Errorf("sqs: send: %w", transport.NoneSent(msgs, i, err))
		}
	}
	failed := false
	results := make([]core.SendResult, len(msgs))
	waiting := make([]*pendingSend, len(msgs))
	for i := range msgs {
		results[i] = core.SendResult{ID: msgs[i].ID, To: msgs[i].Queue + msgs[i].Topic, State: core.SendAccepted}
		p, err := t.prepareSend(ctx, &msgs[i])
		if err != nil {
			failed = true
			results[i].State, results[i].Err = core.SendRefused, t.explained(err)
			continue
		}
		waiting[i] = p
	}
	// The messages of a call to one destination leave in order, and in the same requests.
	for i, p := range waiting {
		if p == nil || p.batch == nil {
			continue
		}
		var together []*entry[*sending]
		for _, other := range waiting[i:] {
			if other != nil && other.batch == p.batch {
				together = append(together, &other.entry)
				if other != p {
					other.batch = nil
				}
			}
		}
		p.batch.add(together...)
	}
	for i, p := range waiting {
		if p == nil {
			continue
		}
		state, err := p.await(ctx)
		if err != nil {
			failed = true
			results[i].State, results[i].Err = state, t.explained(err)
		}
	}
	if failed {
		return fmt.Errorf("sqs: send: %w", &core.SendError{Results: results})
	}
	return nil
}

// check returns an error for a message that no queue and no topic accepts.
func (t *Transport) check(out *core.Outgoing) error {
	if err := transport.CheckOutgoing(out, &t.caps); err != nil {
		return err
	}
	if out.Topic != "" {
		_, err := t.cfg.topicName(out.Topic)
		return err
	}
	_, err := t.cfg.queueAddress(out.Queue)
	return err
}

// pendingSend is a message of a call of Send that waits for its request.
type pendingSend struct {
	entry entry[*sending]
	to    *batcher[*sending]
	batch *batcher[*sending] // the same as to, and nil once the entry is queued
}

// await waits until the message is accepted or refused, or until ctx ends.
func (p *pendingSend) await(ctx context.Context) (core.SendState, error) {
	err, begun := p.to.await(ctx, &p.entry, settleGrace)
	switch {
	case err == nil:
		return core.SendAccepted, nil
	case !begun:
		return core.SendRefused, err
	case errors.Is(err, ctx.Err()) || p.entry.item.unknown:
		return core.SendUnknown, err
	}
	return core.SendRefused, err
}

// prepareSend encodes a message for its destination, and checks whether the destination
// exists.
func (t *Transport) prepareSend(ctx context.Context, out *core.Outgoing) (*pendingSend, error) {
	if out.Topic != "" {
		return t.preparePublish(ctx, out)
	}
	address, err := t.cfg.queueAddress(out.Queue)
	if err != nil {
		return nil, err
	}
	to, delay := address, out.Delay
	if isFIFO(address) && delay > 0 {
		delay = 0 // its receiver delays the message
	}
	if delay > mostNativeDelay {
		to = delayQueue(address)
	}
	if _, err := t.queueURL(ctx, to); err != nil {
		if to != address && errors.Is(err, core.ErrQueueNotFound) {
			if _, missing := t.queueURL(ctx, address); missing != nil {
				return nil, missing
			}
			return nil, fmt.Errorf("a delay of %v is more than SQS's 15 minutes, and the queue in which such messages to %q wait does not exist: create %q with the Provision of its endpoint, without Config.NoLongDelays: %w", out.Delay, address, t.cfg.QueuePrefix+to, errors.ErrUnsupported)
		}
		return nil, err
	}
	m, err := t.codec.Encode(ctx, out, serviceLimit-reservedBytes)
	if err != nil {
		return nil, err
	}
	s := &sending{Encoded: m}
	switch {
	case to != address:
		s.Add(message.AttrDelaySeconds, strconv.FormatInt(seconds(delay), 10))
		s.Add(message.AttrDelay, strconv.FormatInt(delay.Milliseconds(), 10))
		s.group = rand.Text() // no message waits for another
		s.deduplication = s.group
	case isFIFO(address):
		t.fifo(s, out)
		if out.Delay > 0 {
			// SQS cannot delay a single message of a FIFO queue. Its receiver does, and
			// puts the message into its group when it is due.
			s.Add(message.AttrWait, strconv.FormatInt(out.Delay.Milliseconds(), 10))
			s.group = message.Ungrouped + rand.Text()
		}
	default:
		if delay > 0 {
			s.delaySeconds = int32(seconds(delay))
			s.Add(message.AttrDelay, strconv.FormatInt(time.Duration(seconds(delay)*int64(time.Second)).Milliseconds(), 10))
		}
		if out.GroupKey != "" {
			s.group = message.GroupID(out.GroupKey) // the group of a fair queue
		}
	}
	b := t.sender(to)
	return &pendingSend{entry: entry[*sending]{item: s, bytes: s.bytes()}, to: b, batch: b}, nil
}

// reservedBytes is the most bytes of the attributes for delays and copies.
const reservedBytes = 256

// fifo sets the group and the deduplication id of a message for a FIFO queue or topic.
func (t *Transport) fifo(s *sending, out *core.Outgoing) {
	s.deduplication = rand.Text()
	if id := out.Properties[PropertyDeduplicationID]; id != "" && !out.Reason.IsCopy() {
		s.deduplication = message.GroupID(id) // the same characters are allowed
	}
	if s.group = message.Ungrouped + s.deduplication; out.GroupKey != "" {
		s.group = message.GroupID(out.GroupKey)
	}
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// sender returns the batcher that sends to a queue.
func (t *Transport) sender(address string) *batcher[*sending] {
	return t.batcher(t.senders, address, func() *batcher[*sending] {
		b := &batcher[*sending]{
			life: t.life, runners: t.runners, mostBytes: serviceLimit, partly: partlyAtOnce, most: requestsAtOnce,
			do: func(ctx context.Context, entries []*entry[*sending]) { t.sendBatch(ctx, address, entries) },
		}
		if isFIFO(address) {
			b.partly, b.most = 1, 1 // concurrent requests arrive in any order
		}
		return b
	})
}

// batcher returns the batcher with a name, and creates it if it does not exist.
func (t *Transport) batcher(batchers map[string]*batcher[*sending], name string, create func() *batcher[*sending]) *batcher[*sending] {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := batchers[name]
	if b == nil {
		b = create()
		batchers[name] = b
	}
	return b
}

const (
	partlyAtOnce   = 2
	requestsAtOnce = 32
)

// sendBatch makes one request.
func (t *Transport) sendBatch(ctx context.Context, address string, entries []*entry[*sending]) {
	url, err := t.queueURL(ctx, address)
	if err != nil {
		fail(entries, err)
		return
	}
	in := &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: make([]types.SendMessageBatchRequestEntry, len(entries))}
	for i, e := range entries {
		s := e.item
		in.Entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &s.Text, DelaySeconds: s.delaySeconds, MessageAttributes: s.attributes(),
			MessageGroupId: optional(s.group), MessageDeduplicationId: optional(s.deduplication),
		}
	}
	out, err := t.sqs.SendMessageBatch(ctx, in)
	if err != nil {
		t.forget(address, err)
		fail(entries, err)
		return
	}
	outcomeOfSend(entries, out.Failed, len(out.Successful))
}

// outcomeOfSend records the failed messages of a request. A message that the answer does
// not name may have been accepted.
func outcomeOfSend(entries []*entry[*sending], failed []types.BatchResultErrorEntry, succeeded int) {
	outcome(entries, failed, succeeded)
	for _, e := range entries {
		if e.err != nil {
			_, refused := errors.AsType[*entryError](e.err)
			e.item.unknown = !refused
		}
	}
}

// fail sets the error of a request for all its entries.
func fail(entries []*entry[*sending], err error) {
	unknown := !notSent(err)
	for _, e := range entries {
		e.err, e.item.unknown = err, unknown
	}
}

// refuse sets the error of a request for all its entries. None of them was accepted.
func refuse(entries []*entry[*sending], err error) {
	for _, e := range entries {
		e.err = err
	}
}

// outcome records the failed entries of a request.
func outcome[E any](entries []*entry[E], failed []types.BatchResultErrorEntry, succeeded int) {
	for _, f := range failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 && i < len(entries) {
			entries[i].err = &entryError{code: aws.ToString(f.Code), message: aws.ToString(f.Message), sender: f.SenderFault}
		}
	}
	if succeeded+len(failed) == len(entries) {
		return
	}
	for _, e := range entries {
		if e.err == nil { // any of them may be a missing one
			e.err = fmt.Errorf("the answer of the service names %d of %d entries", succeeded+len(failed), len(entries))
		}
	}
}

func (s *sending) attributes() map[string]types.MessageAttributeValue {
	m := make(map[string]types.MessageAttributeValue, len(s.Attrs)+len(s.native))
	maps.Copy(m, s.native)
	for _, a := range s.Attrs {
		m[a.Name] = types.MessageAttributeValue{DataType: &stringType, StringValue: &a.Value}
	}
	return m
}

// bytes returns the size of the message as the service counts it.
func (s *sending) bytes() int {
	n := s.Encoded.Bytes()
	for name, v := range s.native {
		n += len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
	}
	return n
}

var stringType = "String"

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
