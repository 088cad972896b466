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
)

// PropertyDeduplicationID is the name of a property (core.Outgoing.Properties) with the MessageDeduplicationId of a
// message to a FIFO queue or topic: the service drops a second one within five minutes. Without it each message
// has a new one, since a message id would swallow retries and messages that are returned from the error queue. The
// engine's copies do not use it.
const PropertyDeduplicationID = "AmazonSQS.MessageDeduplicationId"

// ungrouped begins the group of a message to a FIFO queue that belongs to none.
const ungrouped = "reprise-ungrouped-"

// sending is a message on its way.
type sending struct {
	*outMessage
	group         string // MessageGroupId
	deduplication string // MessageDeduplicationId, of a FIFO queue or topic
	delaySeconds  int32
	native        map[string]types.MessageAttributeValue // of a message that is forwarded as it came
	unknown       bool                                   // the outcome: it may have been accepted
}

// Send implements core.Transport. Messages to one queue or topic share requests, with those of other
// calls too.
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
	orders := make([]*order, len(msgs))
	for i := range msgs {
		results[i] = core.SendResult{ID: msgs[i].ID, To: msgs[i].Queue + msgs[i].Topic, State: core.SendAccepted}
		o, err := t.order(ctx, &msgs[i])
		if err != nil {
			failed = true
			results[i].State, results[i].Err = core.SendRefused, t.explained(err)
			continue
		}
		orders[i] = o
	}
	// What a call sends to one destination leaves in its order, and in the same requests.
	for i, o := range orders {
		if o == nil || o.batch == nil {
			continue
		}
		var together []*entry[*sending]
		for _, other := range orders[i:] {
			if other != nil && other.batch == o.batch {
				together = append(together, &other.entry)
				if other != o {
					other.batch = nil
				}
			}
		}
		o.batch.add(together...)
	}
	for i, o := range orders {
		if o == nil {
			continue
		}
		state, err := o.await(ctx)
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

// check returns what is wrong with a message whatever is in the service.
func (t *Transport) check(out *core.Outgoing) error {
	if err := transport.CheckOutgoing(out, &t.caps); err != nil {
		return err
	}
	if out.Topic != "" {
		_, err := t.topicName(out.Topic)
		return err
	}
	_, err := t.queueAddress(out.Queue)
	return err
}

// order is a message that waits for its request.
type order struct {
	entry entry[*sending]
	to    *batcher[*sending]
	batch *batcher[*sending] // as to, until it was given to it; nil afterwards
}

// await returns what became of it.
func (o *order) await(ctx context.Context) (core.SendState, error) {
	if o.to == nil {
		return core.SendAccepted, nil
	}
	err, begun := o.to.await(ctx, &o.entry, settleGrace)
	switch {
	case err == nil:
		return core.SendAccepted, nil
	case !begun:
		return core.SendRefused, err
	case errors.Is(err, ctx.Err()) || o.entry.what.unknown:
		return core.SendUnknown, err
	}
	return core.SendRefused, err
}

// order writes a message for its destination.
func (t *Transport) order(ctx context.Context, out *core.Outgoing) (*order, error) {
	if out.Topic != "" {
		return t.orderEvent(ctx, out)
	}
	address, err := t.queueAddress(out.Queue)
	if err != nil {
		return nil, err
	}
	to, delay := address, out.Delay
	if isFIFO(address) && delay > 0 {
		delay = 0 // see below
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
	m, err := t.encode(ctx, out, serviceLimit-reservedBytes)
	if err != nil {
		return nil, err
	}
	s := &sending{outMessage: m}
	switch {
	case to != address:
		s.add(attrDelaySeconds, strconv.FormatInt(seconds(delay), 10))
		s.add(attrDelay, strconv.FormatInt(delay.Milliseconds(), 10))
		s.group = rand.Text() // no message waits for another
		s.deduplication = s.group
	case isFIFO(address):
		t.fifo(s, out)
		if out.Delay > 0 {
			// SQS delays no single message of a FIFO queue: its receiver does, and puts it into its group when it is due.
			s.add(attrWait, strconv.FormatInt(out.Delay.Milliseconds(), 10))
			s.group = ungrouped + rand.Text()
		}
	default:
		if delay > 0 {
			s.delaySeconds = int32(seconds(delay))
			s.add(attrDelay, strconv.FormatInt(time.Duration(seconds(delay)*int64(time.Second)).Milliseconds(), 10))
		}
		if out.GroupKey != "" {
			s.group = groupID(out.GroupKey) // a fair queue's
		}
	}
	b := t.sender(to)
	return &order{entry: entry[*sending]{what: s, bytes: s.bytes()}, to: b, batch: b}, nil
}

// reservedBytes is what attributes of delays take at most.
const reservedBytes = 256

// fifo gives a message for a FIFO queue or topic its group and deduplication id.
func (t *Transport) fifo(s *sending, out *core.Outgoing) {
	s.deduplication = rand.Text()
	if id := out.Properties[PropertyDeduplicationID]; id != "" && !out.Reason.IsCopy() {
		s.deduplication = groupID(id) // the same characters
	}
	if s.group = ungrouped + s.deduplication; out.GroupKey != "" {
		s.group = groupID(out.GroupKey)
	}
}

// seconds is a delay as the service takes it, never shorter.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// sender returns what sends to a queue.
func (t *Transport) sender(address string) *batcher[*sending] {
	return t.batcher(t.senders, address, func() *batcher[*sending] {
		b := &batcher[*sending]{
			life: t.life, mostBytes: serviceLimit, partly: partlyAtOnce, most: requestsAtOnce,
			do: func(ctx context.Context, entries []*entry[*sending]) { t.sendBatch(ctx, address, entries) },
		}
		if isFIFO(address) {
			b.partly, b.most = 1, 1 // requests that are under way together arrive in any order
		}
		return b
	})
}

func (t *Transport) batcher(of map[string]*batcher[*sending], name string, create func() *batcher[*sending]) *batcher[*sending] {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := of[name]
	if b == nil {
		b = create()
		of[name] = b
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
		s := e.what
		in.Entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &s.text, DelaySeconds: s.delaySeconds, MessageAttributes: s.attributes(),
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

// outcomeOfSend notes which messages of a request failed. One that the answer does not name may have been accepted.
func outcomeOfSend(entries []*entry[*sending], failed []types.BatchResultErrorEntry, succeeded int) {
	outcome(entries, failed, succeeded)
	for _, e := range entries {
		if e.err != nil {
			_, refused := errors.AsType[*entryError](e.err)
			e.what.unknown = !refused
		}
	}
}

// fail says of all entries of a request that it failed.
func fail(entries []*entry[*sending], err error) {
	unknown := !notSent(err)
	for _, e := range entries {
		e.err, e.what.unknown = err, unknown
	}
}

// outcome notes which entries of a request failed.
func outcome[E any](entries []*entry[E], failed []types.BatchResultErrorEntry, succeeded int) {
	for _, f := range failed {
		if i, err := strconv.Atoi(value(f.Id)); err == nil && i >= 0 && i < len(entries) {
			entries[i].err = &entryError{code: value(f.Code), message: value(f.Message), sender: f.SenderFault}
		}
	}
	if succeeded+len(failed) == len(entries) {
		return
	}
	for _, e := range entries {
		if e.err == nil { // nobody can tell which of them
			e.err = fmt.Errorf("the service's answer is about %d of %d entries", succeeded+len(failed), len(entries))
		}
	}
}

func (s *sending) attributes() map[string]types.MessageAttributeValue {
	m := make(map[string]types.MessageAttributeValue, len(s.attrs)+len(s.native))
	maps.Copy(m, s.native)
	for _, a := range s.attrs {
		m[a.name] = types.MessageAttributeValue{DataType: &stringType, StringValue: &a.value}
	}
	return m
}

// bytes is what the service counts of it.
func (s *sending) bytes() int {
	n := s.outMessage.bytes()
	for name, v := range s.native {
		n += len(name) + len(value(v.DataType)) + len(value(v.StringValue)) + len(v.BinaryValue)
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
