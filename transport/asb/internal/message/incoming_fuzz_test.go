package message_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
)

// FuzzRead reads any message of AMQP, from its bytes, and sends a copy of it on, as the
// engine does for a delayed retry or the error queue.
func FuzzRead(f *testing.F) {
	id, group := any("m-1"), "customer-7"
	for _, m := range []amqp.Message{
		{Data: [][]byte{[]byte("body")}, ApplicationProperties: map[string]any{"NServiceBus.MessageId": "m-1", "NServiceBus.EnclosedMessageTypes": "order"}},
		{Value: "text", Properties: &amqp.MessageProperties{MessageID: id, GroupID: &group, CorrelationID: uint64(7), ContentType: &group, ReplyTo: &group}},
		{Value: map[any]any{"a": []any{int8(1), "b"}}, ApplicationProperties: map[string]any{"": "no name", "bad": "BAD!", "Reprise.Escaped.": "x"}},
		{Sequence: [][]any{{"a", int64(1)}}, Header: &amqp.MessageHeader{DeliveryCount: 4294967295, TTL: time.Second}},
		{Data: [][]byte{{0}, {1}}, Header: &amqp.MessageHeader{DeliveryCount: 3}, ApplicationProperties: map[string]any{
			"Reprise.Released": int64(2), "Reprise.NotBefore": int64(1 << 62), "Reprise.StateOf": int64(0), "Reprise.Failed": int32(-1), "Reprise.FailedOf": uint64(1 << 63), "at": time.Unix(1<<40, 0).UTC(),
			"float": float32(0.1), "bytes": []byte{0xff}, "uuid": amqp.UUID{1}, "symbol": amqp.Symbol("s"), "null": nil, "char": int32('a'), "bool": true, "ulong": uint64(1<<64 - 1),
		}},
		{Annotations: amqp.Annotations{"x-opt-sequence-number": int64(4711), "x-opt-enqueued-time": time.UnixMilli(1_800_000_000_000)}, Value: int64(5)},
	} {
		encoded, err := m.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		encoded = bytes.ReplaceAll(encoded, []byte("BAD!"), []byte("\xff\xff\xff\xff")) // which the client library does not write
		f.Add(encoded, false)
		f.Add(encoded, true)
	}
	f.Fuzz(func(t *testing.T, encoded []byte, deadLetters bool) {
		raw := decoded(encoded)
		if raw == nil {
			return
		}
		m := receivedBySDK(raw)
		queue := "orders"
		if deadLetters {
			queue += "/$DeadLetterQueue"
		}
		codec := &message.Codec{Clock: new(transport.ServiceClock)}
		r := read(codec, queue, m)
		checkReceived(t, r)
		if r.DeliveryCount < 1 {
			t.Errorf("the delivery count is %d", r.DeliveryCount)
		}
		if size := r.Headers.Bytes() + len(r.Body) + len(r.GroupKey); size > 32*len(encoded)+200 { // a number of one byte may have twenty digits
			t.Errorf("%d bytes are read as %d", len(encoded), size)
		}
		checkCopy(t, codec, r)

		resent := codec.Resent(r, m)
		reread := read(codec, queue, received(resent))
		if !maps.Equal(reread.Headers.Map(), r.Headers.Map()) || !bytes.Equal(reread.Body, r.Body) || r.IDSent && reread.ID != r.ID {
			t.Errorf("%+v with %q is resent as %+v with %q", r.Incoming, r.Headers.Map(), reread.Incoming, reread.Headers.Map())
		}
	})
}

// decoded returns a message, or nil if the client library does not decode it. The library
// panics at an annotation whose key is a list, and nests as deep as there are bytes.
func decoded(encoded []byte) (m *amqp.Message) {
	if len(encoded) > 16<<10 {
		return nil
	}
	defer func() {
		if recover() != nil {
			m = nil
		}
	}()
	m = new(amqp.Message)
	if m.UnmarshalBinary(encoded) != nil {
		return nil
	}
	return m
}

// checkCopy fails if a copy of a received message cannot be sent, or is received as another
// one.
func checkCopy(t *testing.T, codec *message.Codec, r *message.Received) {
	t.Helper()
	out := core.Outgoing{ID: r.ID, Queue: "error", Headers: r.Headers, Body: r.Body, GroupKey: r.GroupKey, Properties: r.Incoming.Properties, Native: r.Native, Reason: core.ReasonMoveToError}
	for _, sessions := range []bool{false, true} {
		encoded, err := codec.Encode(&out, sessions)
		if err != nil {
			if !errors.Is(err, core.ErrTooLarge) {
				t.Errorf("a copy of %q: %v", r.Headers.Map(), err)
			}
			return
		}
		if sessions != (encoded.Properties.GroupID != nil) && r.GroupKey == "" {
			t.Errorf("sessions %t, group id %v", sessions, encoded.Properties.GroupID)
		}
		copied := read(codec, "error", received(encoded))
		malformed := copied.Malformed != nil
		if r.Malformed != nil && strings.Contains(r.Malformed.Error(), "which has no bytes") {
			malformed = false // the copy has this body too
		}
		if _, err := (&amqp.Message{Value: encoded.Body.Value, Sequence: encoded.Body.Sequence, Data: encoded.Body.Data, ApplicationProperties: encoded.ApplicationProperties}).MarshalBinary(); err != nil {
			t.Errorf("the client library does not write the copy: %v", err)
		}
		if malformed || !maps.Equal(copied.Headers.Map(), r.Headers.Map()) || !bytes.Equal(copied.Body, r.Body) || copied.GroupKey != r.GroupKey || !maps.Equal(copied.Incoming.Properties, r.Incoming.Properties) {
			t.Errorf("a copy of %+v with %q is read as %+v with %q", r.Incoming, r.Headers.Map(), copied.Incoming, copied.Headers.Map())
		}
	}
}

// checkReceived fails for a field that no handler may see.
func checkReceived(t *testing.T, r *message.Received) {
	t.Helper()
	for key, value := range r.Headers.All() {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Errorf("no header may be %q: %q", key, value)
		}
	}
	for name, value := range r.Incoming.Properties {
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			t.Errorf("no property may be %q: %q", name, value)
		}
	}
	if !utf8.ValidString(r.ID) || !utf8.ValidString(r.GroupKey) {
		t.Errorf("ID %q, group key %q", r.ID, r.GroupKey)
	}
}

// received returns a sent message as the SDK receives it.
func received(sent *message.Outgoing) *azservicebus.ReceivedMessage {
	return receivedBySDK(&amqp.Message{
		Data: sent.Body.Data, Value: sent.Body.Value, Sequence: sent.Body.Sequence, ApplicationProperties: sent.ApplicationProperties,
		Properties: &amqp.MessageProperties{MessageID: sent.Properties.MessageID, GroupID: sent.Properties.GroupID, CorrelationID: sent.Properties.CorrelationID, ReplyTo: sent.Properties.ReplyTo, ContentType: sent.Properties.ContentType},
	})
}

// receivedBySDK converts a message of the client library as the SDK does, whose function
// for it is not exported, but for fields that the adapter does not read.
func receivedBySDK(raw *amqp.Message) *azservicebus.ReceivedMessage {
	m := &azservicebus.ReceivedMessage{
		ApplicationProperties: raw.ApplicationProperties,
		RawAMQPMessage: &azservicebus.AMQPAnnotatedMessage{
			ApplicationProperties: raw.ApplicationProperties, MessageAnnotations: map[any]any(raw.Annotations),
			Body: azservicebus.AMQPAnnotatedMessageBody{Data: raw.Data, Sequence: raw.Sequence, Value: raw.Value},
		},
	}
	if h := raw.Header; h != nil {
		m.RawAMQPMessage.Header = &azservicebus.AMQPAnnotatedMessageHeader{DeliveryCount: h.DeliveryCount, Durable: h.Durable, Priority: h.Priority, TTL: h.TTL}
	}
	if p := raw.Properties; p != nil {
		m.RawAMQPMessage.Properties = &azservicebus.AMQPAnnotatedMessageProperties{
			AbsoluteExpiryTime: p.AbsoluteExpiryTime, ContentType: p.ContentType, CorrelationID: p.CorrelationID, GroupID: p.GroupID, MessageID: p.MessageID, ReplyTo: p.ReplyTo,
		}
		m.MessageID, _ = p.MessageID.(string)
		if id, ok := p.CorrelationID.(string); ok {
			m.CorrelationID = &id
		}
		m.SessionID, m.ContentType, m.ReplyTo = p.GroupID, p.ContentType, p.ReplyTo
	}
	n, _ := raw.Annotations["x-opt-sequence-number"].(int64) // which the service always sets
	m.SequenceNumber = &n
	if at, ok := raw.Annotations["x-opt-enqueued-time"].(time.Time); ok {
		m.EnqueuedTime = &at
	}
	return m
}
