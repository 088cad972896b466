//go:build darwin || linux

package sqs_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

const headersAttribute = "NServiceBus.AmazonSQS.Headers"

// stringsOf returns the values of attributes, all of which have to be strings.
func stringsOf(t *testing.T, m *types.Message) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, a := range m.MessageAttributes {
		if a.DataType == nil || *a.DataType != "String" || a.StringValue == nil {
			t.Errorf("the attribute %q is no string: %+v", name, a)
			continue
		}
		all[name] = *a.StringValue
	}
	return all
}

// All versions of NServiceBus read the wrapper.
func TestSend_WritesWrapper(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	long := strings.Repeat("0123456789", 100)
	for name, c := range map[string]struct {
		out     core.Outgoing
		headers map[string]string // besides the message id
		body    string            // in base64
		group   string
	}{
		"text":                   {out: core.Outgoing{Body: []byte("hello")}, body: "aGVsbG8="},
		"empty body":             {body: "empty message"},
		"body of a picture":      {out: core.Outgoing{Body: []byte{0, 1, 0xff, 0xfe}}, body: "AAH//g=="},
		"words for no body":      {out: core.Outgoing{Body: []byte("empty message")}, body: base64.StdEncoding.EncodeToString([]byte("empty message"))},
		"long body":              {out: core.Outgoing{Body: []byte(long)}, body: base64.StdEncoding.EncodeToString([]byte(long))},
		"headers":                {out: core.Outgoing{Headers: headersOf("a", "", "b", "quoted \" \\ <&>", "c", "nul \x00 é 𝄞")}, headers: map[string]string{"a": "", "b": "quoted \" \\ <&>", "c": "nul \x00 é 𝄞"}, body: "empty message"},
		"time to be received":    {out: core.Outgoing{TimeToBeReceived: 26*time.Hour + 90*time.Second}, headers: map[string]string{"NServiceBus.AmazonSQS.TimeToBeReceived": "1.02:01:30"}, body: "empty message"},
		"short time":             {out: core.Outgoing{TimeToBeReceived: 1500 * time.Millisecond}, headers: map[string]string{"NServiceBus.AmazonSQS.TimeToBeReceived": "00:00:01.5000000"}, body: "empty message"},
		"header that looks ours": {out: core.Outgoing{Headers: headersOf("Reprise.Packed", "the application's")}, headers: map[string]string{"Reprise.Escaped.Reprise.Escaped.SQS.Reprise.Packed": "the application's"}, body: "empty message"},
		"group key":              {out: core.Outgoing{GroupKey: "customer/7"}, headers: map[string]string{"Reprise.GroupKey": "customer/7"}, body: "empty message", group: "customer/7"},
		"group key with a space": {out: core.Outgoing{GroupKey: "customer 7"}, headers: map[string]string{"Reprise.GroupKey": "customer 7"}, body: "empty message", group: "sha256-a8564eeb8ba3b25fa1da9c7ca13a2c90dcdfc8a29e3ba93da33cca669e0bd937"},
	} {
		t.Run(name, func(t *testing.T) {
			out := c.out
			out.ID, out.Queue = "m-1", "billing"
			out.Headers.Set(core.HeaderMessageID, "m-1")
			if err := transport.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			m := s.get(t, "billing")
			var wrapper struct {
				Headers map[string]string
				Body    *string
			}
			decoder := json.NewDecoder(strings.NewReader(*m.Body))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&wrapper); err != nil {
				t.Fatalf("the body %q: %v", *m.Body, err)
			}
			want := map[string]string{"NServiceBus.MessageId": "m-1"}
			maps.Copy(want, c.headers)
			if !maps.Equal(wrapper.Headers, want) {
				t.Errorf("the headers are %q, want %q", wrapper.Headers, want)
			}
			if wrapper.Body == nil || *wrapper.Body != c.body {
				t.Errorf("the member Body of %q is not %q", *m.Body, c.body)
			}
			if got := stringsOf(t, &m); !maps.Equal(got, map[string]string{"NServiceBus.MessageId": "m-1"}) {
				t.Errorf("the attributes are %q", got)
			}
			if group := m.Attributes["MessageGroupId"]; group != c.group {
				t.Errorf("the group is %q, want %q", group, c.group)
			}
		})
	}
}

// Readers that know no wrapper get the body as it is, if the service takes it.
func TestSend_WritesRawBody(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{Format: sqs.Raw}, "billing")
	for name, c := range map[string]struct{ body, text, how string }{
		"text":              {"hello", "hello", ""},
		"JSON":              {`{"Headers":{},"Body":"x"}`, `{"Headers":{},"Body":"x"}`, ""},
		"all of Unicode":    {"tab\tline\r\n é 𝄞 \ud7ff\ue000\ufffd\U0010ffff\x7f", "tab\tline\r\n é 𝄞 \ud7ff\ue000\ufffd\U0010ffff\x7f", ""},
		"empty body":        {"", "empty message", "empty"},
		"words for no body": {"empty message", "ZW1wdHkgbWVzc2FnZQ==", "base64"},
		"NUL":               {"a\x00b", "YQBi", "base64"},
		"control character": {"a\x1fb", "YR9i", "base64"},
		"not UTF-8":         {"a\xffb", "Yf9i", "base64"},
		"half a character":  {"a\xc3", "YcM=", "base64"},
		"U+FFFE":            {"\ufffe", "77++", "base64"},
		"U+FFFF":            {"\uffff", "77+/", "base64"},
	} {
		t.Run(name, func(t *testing.T) {
			out := core.Outgoing{ID: "m-1", Queue: "billing", Body: []byte(c.body), Headers: headersOf(core.HeaderMessageID, "m-1", "k", "\x00é\"")}
			if err := transport.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			m := s.get(t, "billing")
			if *m.Body != c.text {
				t.Errorf("the body is %q, want %q", *m.Body, c.text)
			}
			attributes := stringsOf(t, &m)
			var headers map[string]string
			if err := json.Unmarshal([]byte(attributes[headersAttribute]), &headers); err != nil {
				t.Fatalf("the attribute %s, %q: %v", headersAttribute, attributes[headersAttribute], err)
			}
			if want := map[string]string{core.HeaderMessageID: "m-1", "k": "\x00é\""}; !maps.Equal(headers, want) {
				t.Errorf("the headers are %q, want %q", headers, want)
			}
			delete(attributes, headersAttribute)
			want := map[string]string{"NServiceBus.MessageId": "m-1"}
			if c.how != "" {
				want["Reprise.Body"] = c.how
			}
			if !maps.Equal(attributes, want) {
				t.Errorf("the other attributes are %q, want %q", attributes, want)
			}
		})
	}
}

// The service refuses attributes with control characters, and empty ones.
func TestSend_MessageIDsThatNoAttributeTakes(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	for id, want := range map[string]string{
		"":                       "-",
		"a\x00b":                 "a?b",
		strings.Repeat("x", 300): strings.Repeat("x", 256),
		strings.Repeat("x", 255) + "é" + "the end": strings.Repeat("x", 255),
	} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "billing", Headers: headersOf(core.HeaderMessageID, id)}); err != nil {
			t.Errorf("%q: %v", id, err)
			continue
		}
		m := s.get(t, "billing")
		if got := stringsOf(t, &m)["NServiceBus.MessageId"]; got != want {
			t.Errorf("the attribute with the id %q is %q, want %q", id, got, want)
		}
	}
}

// wrapperOfNServiceBus is the body that version 7 of NServiceBus.AmazonSQS writes.
const wrapperOfNServiceBus = `{"Body":"eyJOdW1iZXIiOjd9","S3BodyKey":null,"Headers":{` +
	`"NServiceBus.MessageId":"c2f02269-f6c4-480c-9bac-b50a00ee32fa","NServiceBus.MessageIntent":"Send",` +
	`"NServiceBus.EnclosedMessageTypes":"Interop.Order, Interop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",` +
	`"NServiceBus.ContentType":"application/json","NServiceBus.ReplyToAddress":"Interop-Net"}}`

// s3Event is an event as Amazon S3 sends it to a queue.
const s3Event = `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-east-1","eventName":"ObjectCreated:Put",` +
	`"s3":{"s3SchemaVersion":"1.0","bucket":{"name":"pictures","arn":"arn:aws:s3:::pictures"},"object":{"key":"cat.png","size":1024}}}]}`

func TestReceive_ReadsAllShapes(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{MessageType: func(queue string, m *types.Message) string {
		if strings.Contains(*m.Body, `"aws:s3"`) {
			return "guessed." + queue
		}
		return ""
	}}, "billing")
	receiver := openReceiver(t, transport, "billing", 1)
	nserviceBus := map[string]string{
		"NServiceBus.MessageId": "c2f02269-f6c4-480c-9bac-b50a00ee32fa", "NServiceBus.MessageIntent": "Send", "NServiceBus.ContentType": "application/json",
		"NServiceBus.EnclosedMessageTypes": "Interop.Order, Interop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null", "NServiceBus.ReplyToAddress": "Interop-Net",
	}
	type attributes = map[string]types.MessageAttributeValue
	for name, c := range map[string]struct {
		body       string
		attributes attributes
		id         string // "": the service's
		want       string
		headers    map[string]string
		malformed  string // is in the error; "": there is none
	}{
		"wrapper of NServiceBus": {
			body: wrapperOfNServiceBus, attributes: attributes{"NServiceBus.MessageId": text("c2f02269-f6c4-480c-9bac-b50a00ee32fa")},
			id: nserviceBus["NServiceBus.MessageId"], want: `{"Number":7}`, headers: nserviceBus,
		},
		"wrapper without attributes, indented": {
			body: "\n  " + strings.ReplaceAll(wrapperOfNServiceBus, `,"`, ",\n\t\""),
			id:   nserviceBus["NServiceBus.MessageId"], want: `{"Number":7}`, headers: nserviceBus,
		},
		"wrapper without body": {
			body: `{"Body":"empty message","S3BodyKey":null,"Headers":{"NServiceBus.MessageId":"m-1"}}`,
			id:   "m-1", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"wrapper with a time to be received": {
			body: `{"Body":"aGVsbG8=","Headers":{"NServiceBus.MessageId":"m-1","NServiceBus.AmazonSQS.TimeToBeReceived":"10675199.02:48:05.4775807"}}`,
			id:   "m-1", want: "hello", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"wrapper whose body is no base64": {
			body: `{"Body":"no base64!","Headers":{"NServiceBus.MessageId":"m-1"}}`, id: "m-1",
			want: `{"Body":"no base64!","Headers":{"NServiceBus.MessageId":"m-1"}}`, headers: map[string]string{"NServiceBus.MessageId": "m-1"}, malformed: "base64",
		},
		"object of an application with these members": {
			body: `{"Body":"aGVsbG8=","Headers":{"a":"b"}}`, want: `{"Body":"aGVsbG8=","Headers":{"a":"b"}}`, headers: map[string]string{},
		},
		"raw body": {
			body: `{"Number":7}`, attributes: attributes{headersAttribute: text(`{"NServiceBus.MessageId":"m-1","a":"b"}`), "other": text("is no header")},
			id: "m-1", want: `{"Number":7}`, headers: map[string]string{"NServiceBus.MessageId": "m-1", "a": "b"},
		},
		"raw body of which only the attribute has the id": {
			body: `hello`, attributes: attributes{headersAttribute: text(`{}`), "NServiceBus.MessageId": text("m-2")}, id: "m-2", want: `hello`, headers: map[string]string{},
		},
		"raw and empty": {
			body: "empty message", attributes: attributes{headersAttribute: text(`{"NServiceBus.MessageId":"m-1"}`)}, id: "m-1", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"raw in base64": {
			body: "AAH//g==", attributes: attributes{headersAttribute: text(`{"NServiceBus.MessageId":"m-1"}`), "Reprise.Body": text("base64")},
			id: "m-1", want: "\x00\x01\xff\xfe", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"raw with a body that is no base64": {
			body: "no base64!", attributes: attributes{headersAttribute: text(`{"NServiceBus.MessageId":"m-1"}`), "Reprise.Body": text("base64")},
			id: "m-1", want: "no base64!", headers: map[string]string{"NServiceBus.MessageId": "m-1"}, malformed: "base64",
		},
		"headers that are no JSON": {
			body: "hello", attributes: attributes{headersAttribute: text("no JSON")}, want: "hello", headers: map[string]string{}, malformed: headersAttribute,
		},
		"event of S3": {
			body: s3Event, want: s3Event, headers: map[string]string{"NServiceBus.EnclosedMessageTypes": "guessed.billing"},
		},
		"foreign with a type": {
			body: `{"Number":7}`, attributes: attributes{
				"MessageTypeFullName": text("Interop.Order"), "tenant": text("7"),
				"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte("raw")}, "n": {DataType: aws.String("Number"), StringValue: aws.String("1.5")},
			},
			want: `{"Number":7}`, headers: map[string]string{"NServiceBus.EnclosedMessageTypes": "Interop.Order", "tenant": "7", "bytes": "raw", "n": "1.5"},
		},
		"foreign wrapper with a type is a body": {
			body: wrapperOfNServiceBus, attributes: attributes{"MessageTypeFullName": text("Interop.Order")},
			want: wrapperOfNServiceBus, headers: map[string]string{"NServiceBus.EnclosedMessageTypes": "Interop.Order"},
		},
		"foreign without JSON": {body: "<Order/>", want: "<Order/>", headers: map[string]string{}},
		"foreign with an attribute that is no text": {
			body: "hello", attributes: attributes{"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0xff}}},
			want: "hello", headers: map[string]string{}, malformed: `"bytes"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.put(t, "billing", c.body, c.attributes)
			d := take(t, receiver, 1)[0]
			in := d.Incoming()
			if id := c.id; id == "" && in.ID != in.NativeID || id != "" && in.ID != id || in.NativeID == "" {
				t.Errorf("the id is %q, want %q; the service's is %q", in.ID, id, in.NativeID)
			}
			if got := string(in.Body); got != c.want {
				t.Errorf("the body is %q, want %q", got, c.want)
			}
			if got := in.Headers.Map(); !maps.Equal(got, c.headers) {
				t.Errorf("the headers are %q, want %q", got, c.headers)
			}
			switch {
			case c.malformed == "" && in.Malformed != nil:
				t.Errorf("it is malformed: %v", in.Malformed)
			case c.malformed != "" && (in.Malformed == nil || !strings.Contains(in.Malformed.Error(), c.malformed)):
				t.Errorf("it is malformed because of %v, want an error with %q", in.Malformed, c.malformed)
			}
			if in.DeliveryCount != 1 || in.Redelivered {
				t.Errorf("it is delivery %d, redelivered: %v", in.DeliveryCount, in.Redelivered)
			}
			if m, ok := in.Native.(*types.Message); !ok || *m.Body != c.body {
				t.Errorf("the native message is %T", in.Native)
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A subscription that others have made may lack raw delivery: then SNS puts an envelope around each message.
func TestReceive_ReadsEnvelopeOfSNS(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	topic, err := s.sns.CreateTopic(t.Context(), &awssns.CreateTopicInput{Name: aws.String("Interop-Order")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.sns.Subscribe(t.Context(), &awssns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(s.QueueARN("billing")), ReturnSubscriptionArn: true,
	}); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 1)
	snsText := func(s string) snstypes.MessageAttributeValue {
		return snstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
	}
	for name, c := range map[string]struct {
		body       string
		attributes map[string]snstypes.MessageAttributeValue
		want, id   string
		headers    map[string]string
	}{
		"wrapper": {
			body: `{"Body":"aGVsbG8=","Headers":{"NServiceBus.MessageId":"m-1"}}`, want: "hello", id: "m-1", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"raw": {
			body: "hello", attributes: map[string]snstypes.MessageAttributeValue{headersAttribute: snsText(`{"NServiceBus.MessageId":"m-1"}`)},
			want: "hello", id: "m-1", headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"foreign": {
			body: "hello", attributes: map[string]snstypes.MessageAttributeValue{"MessageTypeFullName": snsText("Interop.Order"), "a": snsText("b")},
			want: "hello", headers: map[string]string{"NServiceBus.EnclosedMessageTypes": "Interop.Order", "a": "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.sns.Publish(t.Context(), &awssns.PublishInput{TopicArn: topic.TopicArn, Message: &c.body, MessageAttributes: c.attributes}); err != nil {
				t.Fatal(err)
			}
			d := take(t, receiver, 1)[0]
			in := d.Incoming()
			if body := *in.Native.(*types.Message).Body; !strings.Contains(body, "TopicArn") {
				t.Fatalf("SNS put no envelope around %q", body)
			}
			if string(in.Body) != c.want || !maps.Equal(in.Headers.Map(), c.headers) || in.Malformed != nil || c.id != "" && in.ID != c.id {
				t.Errorf("id %q, body %q, headers %q, malformed: %v", in.ID, in.Body, in.Headers.Map(), in.Malformed)
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An event reaches a subscriber as a message does: the bare SDK reads the same wrapper.
func TestPublish_WritesWrapper(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	if err := transport.Subscribe(t.Context(), "billing", "Interop.Outer+Order"); err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Interop.Outer+Order", Body: []byte("hello"), Headers: headersOf(core.HeaderMessageID, "m-1")}); err != nil {
		t.Fatal(err)
	}
	m := s.get(t, "billing")
	if want := `{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}`; *m.Body != want {
		t.Errorf("the body is %s, want %s", *m.Body, want)
	}
	if got := stringsOf(t, &m); !maps.Equal(got, map[string]string{"NServiceBus.MessageId": "m-1"}) {
		t.Errorf("the attributes are %q", got)
	}
}

// A transport reads the messages of one with the other format.
func TestReceive_ReadsTheOtherFormat(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	wrapped := s.provisioned(t, sqs.Config{}, "billing")
	raw := s.open(t, sqs.Config{Format: sqs.Raw})
	out := core.Outgoing{
		ID: "m-1", Queue: "billing", Body: []byte("a\x00\xff"), GroupKey: "customer 7", Properties: map[string]string{"p": "q"},
		Headers: headersOf(core.HeaderMessageID, "m-1", "Reprise.Packed", "mine", "NServiceBus.AmazonSQS.TimeToBeReceived", "mine", "Reprise.Escaped.SQS.x", "mine", "NUL", "\x00"),
	}
	for _, c := range []struct {
		name     string
		from, to *sqs.Transport
	}{{"Wrapped to Raw", wrapped, raw}, {"Raw to Wrapped", raw, wrapped}} {
		t.Run(c.name, func(t *testing.T) {
			receiver := openReceiver(t, c.to, "billing", 1)
			if err := c.from.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			d := take(t, receiver, 1)[0]
			in := d.Incoming()
			if in.ID != "m-1" || string(in.Body) != string(out.Body) || in.GroupKey != out.GroupKey || !maps.Equal(in.Properties, out.Properties) || in.Malformed != nil {
				t.Errorf("this arrived: %+v", in)
			}
			if !maps.Equal(in.Headers.Map(), out.Headers.Map()) {
				t.Errorf("the headers are %q, want %q", in.Headers.Map(), out.Headers.Map())
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
			if err := receiver.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// bodies is a store in memory.
type bodies struct {
	mu     sync.Mutex
	stored map[string][]byte
	err    error // of Get
}

func (b *bodies) Put(_ context.Context, key string, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stored == nil {
		b.stored = map[string][]byte{}
	}
	b.stored[key] = body
	return nil
}

func (b *bodies) Get(_ context.Context, key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, b.err
	}
	body, ok := b.stored[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return body, nil
}

// A body that is stored elsewhere is named as NServiceBus does.
func TestBodies_KeyOnTheWire(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	for _, format := range []sqs.Format{sqs.Wrapped, sqs.Raw} {
		t.Run(format.String(), func(t *testing.T) {
			store := &bodies{}
			transport := s.provisioned(t, sqs.Config{Format: format, Bodies: store, LargeBodies: 10}, "billing-"+format.String())
			queue := "billing-" + format.String()
			send := func(body string) {
				t.Helper()
				if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: queue, Body: []byte(body), Headers: headersOf(core.HeaderMessageID, "m-1")}); err != nil {
					t.Fatal(err)
				}
			}
			send("123456789") // is short
			if m := s.get(t, queue); strings.Contains(*m.Body, "S3BodyKey") || m.MessageAttributes["S3BodyKey"].StringValue != nil || len(store.stored) > 0 {
				t.Errorf("a short body was stored: %q", *m.Body)
			}
			send("1234567890")
			m := s.get(t, queue)
			var key string
			switch format {
			case sqs.Raw:
				key = stringsOf(t, &m)["S3BodyKey"]
				if *m.Body != "empty message" {
					t.Errorf("the body is %q", *m.Body)
				}
			default:
				var wrapper struct{ Body, S3BodyKey string }
				if err := json.Unmarshal([]byte(*m.Body), &wrapper); err != nil {
					t.Fatal(err)
				}
				key = wrapper.S3BodyKey
				if wrapper.Body != "" {
					t.Errorf("the body is %q", wrapper.Body)
				}
			}
			if string(store.stored[key]) != "1234567890" || len(store.stored) != 1 {
				t.Errorf("under the key %q of %q there is: %q", key, *m.Body, store.stored)
			}
		})
	}
}

// A body that is missing for good makes its message malformed. With any other error it may be there the next time.
func TestBodies_ThatCannotBeFetched(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	store := &bodies{err: errors.New("the store is down")}
	transport := s.provisioned(t, sqs.Config{Bodies: store, VisibilityTimeout: time.Second}, "billing")
	receiver := openReceiver(t, transport, "billing", 1)
	s.put(t, "billing", `{"Body":"","S3BodyKey":"key","Headers":{"NServiceBus.MessageId":"m-1"}}`, nil)
	until(t, "the message is received twice", func() bool {
		c := s.contents(t, "billing")
		return len(c.InFlight) == 1 && c.InFlight[0].ReceiveCount >= 2
	})
	if err := store.Put(t.Context(), "key", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	store.mu.Lock()
	store.err = nil
	store.mu.Unlock()
	d := take(t, receiver, 1)[0]
	if in := d.Incoming(); string(in.Body) != "hello" || in.Malformed != nil {
		t.Errorf("the body is %q, malformed: %v", in.Body, in.Malformed)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	s.put(t, "billing", `{"Body":"","S3BodyKey":"another","Headers":{"NServiceBus.MessageId":"m-2"}}`, nil)
	d = take(t, receiver, 1)[0]
	if in := d.Incoming(); in.ID != "m-2" || in.Malformed == nil || !errors.Is(in.Malformed, fs.ErrNotExist) || !strings.Contains(in.Malformed.Error(), "another") {
		t.Errorf("message %s is malformed because of %v, want the missing body", in.ID, in.Malformed)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}
