package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

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
		p, err := t.prepareSend(ctx, &msgs[i], serviceLimit, reservedBytes)
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
		var together []*batch.Entry[*sending]
		for _, other := range waiting[i:] {
			if other != nil && other.batch == p.batch {
				together = append(together, &other.entry)
				if other != p {
					other.batch = nil
				}
			}
		}
		p.batch.Add(together...)
	}
	for i, p := range waiting {
		if p == nil {
			continue
		}
		state, err := p.await(ctx)
		if fifo := p.entry.Item.deduplication != ""; isRefusedForSize(state, err) && (len(msgs) == 1 || !fifo) { // the next ones are ahead by now
			state, err = t.sendSmaller(ctx, &msgs[i], p, err)
		}
		if err != nil {
			failed = true
			results[i].State, results[i].Err = state, t.explained(err)
		}
	}
	if failed {
		return fmt.Errorf("sqs: send: %w", transport.Unavailable(ctx, &core.SendError{Results: results}, transient))
	}
	return nil
}

// isRefusedForSize reports whether a queue or a topic refuses a message that the service would
// accept: it may allow less.
func isRefusedForSize(state core.SendState, err error) bool {
	return state == core.SendRefused && faultOf(err) == faultTooLarge
}

// sendSmaller sends a message that was refused for its size in smaller forms, until one is
// accepted. If none is, it returns the refusal of the smallest.
func (t *Transport) sendSmaller(ctx context.Context, out *core.Outgoing, p *pendingSend, refusal error) (core.SendState, error) {
	for {
		smaller, err := t.prepareSend(ctx, out, p.entry.Item.size-1, 0)
		if errors.Is(err, core.ErrTooLarge) {
			return core.SendRefused, refusal
		}
		if err != nil {
			return core.SendRefused, err
		}
		p = smaller
		p.to.Add(&p.entry)
		state, err := p.await(ctx)
		if !isRefusedForSize(state, err) {
			return state, err
		}
		refusal = err
	}
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

// prepareSend encodes a message for its destination, in at most limit bytes of which reserved
// are left, and checks whether the destination exists.
func (t *Transport) prepareSend(ctx context.Context, out *core.Outgoing, limit, reserved int) (*pendingSend, error) {
	if out.Topic != "" {
		return t.preparePublish(ctx, out, min(limit, topicLimit), reserved)
	}
	address, err := t.cfg.queueAddress(out.Queue)
	if err != nil {
		return nil, err
	}
	to, delay, later := address, out.Delay, 0
	if delay > 0 {
		later = 1 // attribute, for the delay
	}
	if isFIFO(address) && delay > 0 {
		delay = 0 // its receiver delays the message
	}
	if delay > maxNativeDelay {
		to, later = delayQueue(address), 2
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
	m, err := t.codec.Encode(ctx, out, limit, reserved, later)
	if err != nil {
		return nil, err
	}
	s := &sending{Encoded: m, size: m.Bytes()}
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
			s.group = message.Waiting + rand.Text()
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
	return &pendingSend{entry: batch.Entry[*sending]{Item: s, Bytes: s.bytes()}, to: b, batch: b}, nil
}

// sender returns the batcher that sends to a queue.
func (t *Transport) sender(address string) *batch.Batcher[*sending] {
	return t.batcher(t.senders, address, func(address string) *batch.Batcher[*sending] {
		b := &batch.Batcher[*sending]{
			Life: t.life, Runners: t.runners, MaxBytes: serviceLimit, Partly: partlyAtOnce, MaxConcurrent: maxConcurrentRequests, Timeout: requestTimeout,
			Do: func(ctx context.Context, entries []*batch.Entry[*sending]) { t.sendBatch(ctx, address, entries) },
		}
		if isFIFO(address) {
			b.Partly, b.MaxConcurrent = 1, 1 // concurrent requests arrive in any order
		}
		return b
	})
}

// sendBatch makes one request, and another one without groups if a standard queue refuses those.
func (t *Transport) sendBatch(ctx context.Context, address string, entries []*batch.Entry[*sending]) {
	url, err := t.queueURL(ctx, address)
	if err != nil {
		fail(entries, err)
		return
	}
	_, ungrouped := t.ungrouped.Get(address)
	in := &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: make([]types.SendMessageBatchRequestEntry, len(entries))}
	for i, e := range entries {
		s := e.Item
		if ungrouped {
			s.group = ""
		}
		in.Entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &s.Text, DelaySeconds: s.delaySeconds, MessageAttributes: s.attributes(), MessageSystemAttributes: s.systemAttributes(),
			MessageGroupId: optional(s.group), MessageDeduplicationId: optional(s.deduplication),
		}
	}
	out, err := t.sqs.SendMessageBatch(ctx, in)
	if err != nil {
		t.forget(address, err)
		fail(entries, err)
	} else {
		outcomeOfSend(entries, out.Failed, len(out.Successful))
	}
	if ungrouped || isFIFO(address) {
		return
	}
	var refused []*batch.Entry[*sending]
	for _, e := range entries {
		if refusesGroup(e.Err) { // the whole request may have been refused for one of them
			e.Err, e.Item.unknown = nil, false
			refused = append(refused, e)
		}
	}
	if len(refused) > 0 {
		t.ungrouped.Put(strings.Clone(address), struct{}{})
		t.sendBatch(ctx, address, refused)
	}
}

// refusesGroup reports whether an error is of a service without fair queues, which takes no group for a standard queue.
func refusesGroup(err error) bool {
	said, ok := errors.AsType[smithy.APIError](err)
	return ok && faultOf(err) == faultOther && (strings.Contains(said.ErrorMessage(), "MessageGroupId") || strings.Contains(said.ErrorMessage(), "not valid for this queue type"))
}
