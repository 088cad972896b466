package sqs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// PropertyDeduplicationID is the name of a property (core.Outgoing.Properties) with the
// MessageDeduplicationId of a message to a FIFO queue or topic: the service drops a
// second message with the same id within five minutes. Without it each message gets a new
// id, since a message id would drop retries and messages that are returned from the error
// queue. Copies that the engine, a handler (Message.Forward) or a tool (core.ReasonReturn) makes
// of such a message have the property too, but do not use it.
const PropertyDeduplicationID = "AmazonSQS.MessageDeduplicationId"

// sending is a message that is being sent.
type sending struct {
	*message.Encoded
	size          int    // in bytes, without the attributes that were added
	group         string // MessageGroupId
	deduplication string // MessageDeduplicationId, of a FIFO queue or topic
	delaySeconds  int32
	native        map[string]types.MessageAttributeValue // of a message that is forwarded unchanged
	unknown       bool                                   // after an error: the message may have been accepted
	required      bool                                   // Outgoing.RequireSubscriber
}

// pendingSend is a message of a call of Send that waits for its request.
type pendingSend struct {
	entry batch.Entry[*sending]
	to    *batch.Batcher[*sending]
	batch *batch.Batcher[*sending] // the same as to, and nil once the entry is queued
}

// await waits until the message is accepted or refused, or until ctx ends.
func (p *pendingSend) await(ctx context.Context) (core.SendState, error) {
	err, begun := p.to.Await(ctx, &p.entry, settleGrace)
	switch {
	case err == nil:
		return core.SendAccepted, nil
	case !begun:
		return core.SendRefused, err
	case errors.Is(err, ctx.Err()) || p.entry.Item.unknown:
		return core.SendUnknown, err
	}
	return core.SendRefused, err
}

// reservedBytes is the most bytes of the attributes for delays and copies.
const reservedBytes = 256

// fifo sets the group and the deduplication id of a message for a FIFO queue or topic.
func (t *Transport) fifo(s *sending, out *core.Outgoing) {
	s.deduplication = transport.DeduplicationID(out)
	if id := out.Properties[PropertyDeduplicationID]; id != "" && out.Reason == core.ReasonApplication {
		s.deduplication = message.GroupID(id) // the same characters are allowed
	}
	if s.group = message.Ungrouped + s.deduplication; out.GroupKey != "" {
		s.group = message.GroupID(out.GroupKey)
	}
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// batcher returns the batcher with a name, and creates it if it does not exist. Nothing that create keeps
// is a part of a message.
func (t *Transport) batcher(batchers map[string]*batch.Batcher[*sending], name string, create func(name string) *batch.Batcher[*sending]) *batch.Batcher[*sending] {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := batchers[name]
	if b == nil {
		name = strings.Clone(name)
		b = create(name)
		batchers[name] = b
	}
	return b
}

const (
	partlyAtOnce          = 2
	maxConcurrentRequests = 32
)

// outcomeOfSend records the failed messages of a request. A message that the answer does
// not name may have been accepted.
func outcomeOfSend(entries []*batch.Entry[*sending], failed []types.BatchResultErrorEntry, succeeded int) {
	outcome(entries, failed, succeeded)
	for _, e := range entries {
		if e.Err != nil {
			_, refused := errors.AsType[*entryError](e.Err)
			e.Item.unknown = !refused
		}
	}
}

// fail sets the error of a request for all its entries.
func fail(entries []*batch.Entry[*sending], err error) {
	unknown := !notSent(err)
	for _, e := range entries {
		e.Err, e.Item.unknown = err, unknown
	}
}

// refuse sets the error of a request for all its entries. None of them was accepted.
func refuse(entries []*batch.Entry[*sending], err error) {
	for _, e := range entries {
		e.Err = err
	}
}

func (s *sending) attributes() map[string]types.MessageAttributeValue {
	m := make(map[string]types.MessageAttributeValue, len(s.Attrs)+len(s.native))
	maps.Copy(m, s.native)
	for _, a := range s.Attrs {
		v := types.MessageAttributeValue{DataType: &a.Type}
		if a.IsBinary() {
			v.BinaryValue = []byte(a.Value)
		} else {
			v.StringValue = &a.Value
		}
		m[a.Name] = v
	}
	return m
}

// excess returns an error for a message that the service refuses because of its size or its
// attributes.
func (s *sending) excess() error {
	if n := len(s.attributes()); n > message.MaxAttributes {
		return fmt.Errorf("it has %d attributes, and SQS allows %d", n, message.MaxAttributes)
	}
	if n := s.bytes(); n > serviceLimit {
		return fmt.Errorf("it has %d bytes with its attributes, and SQS allows %d", n, serviceLimit)
	}
	return nil
}

// bytes returns the size of the message as the service counts it.
func (s *sending) bytes() int {
	n := s.Encoded.Bytes()
	for name, v := range s.native {
		n += len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
	}
	return n
}

// systemAttributes returns the only attribute of the service that a sender can set.
func (s *sending) systemAttributes() map[string]types.MessageSystemAttributeValue {
	if s.Trace == "" {
		return nil
	}
	return map[string]types.MessageSystemAttributeValue{
		string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: &stringType, StringValue: &s.Trace},
	}
}

var stringType = "String"

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
