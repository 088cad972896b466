//go:build darwin || linux

package sqs_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// wrapperOfNServiceBus is the body that version 7 of NServiceBus.AmazonSQS writes.
const wrapperOfNServiceBus = `{"Body":"eyJOdW1iZXIiOjd9","S3BodyKey":null,"Headers":{` +
	`"NServiceBus.MessageId":"c2f02269-f6c4-480c-9bac-b50a00ee32fa","NServiceBus.MessageIntent":"Send",` +
	`"NServiceBus.EnclosedMessageTypes":"Interop.Order, Interop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",` +
	`"NServiceBus.ContentType":"application/json","NServiceBus.ReplyToAddress":"Interop-Net"}}`

// s3Event is an event as Amazon S3 sends it to a queue.
const s3Event = `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-east-1","eventName":"ObjectCreated:Put",` +
	`"s3":{"s3SchemaVersion":"1.0","bucket":{"name":"pictures","arn":"arn:aws:s3:::pictures"},"object":{"key":"cat.png","size":1024}}}]}`

// notificationOfSNS is an envelope, which an application may also send as its message.
const notificationOfSNS = `{"Type":"Notification","MessageId":"1","TopicArn":"arn:aws:sns:us-east-1:1:Interop-Order","Message":"Hello world!","Timestamp":"2026-01-02T03:04:05.678Z"}`

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
		"foreign with attributes of other types": {
			body: "hello", attributes: attributes{
				"bytes": {DataType: aws.String("Binary.gzip"), BinaryValue: []byte{0xff, 0, 1}}, "text": {DataType: aws.String("Binary"), BinaryValue: []byte("é")},
				"n": {DataType: aws.String("Number.int"), StringValue: aws.String("-42")}, "label": {DataType: aws.String("String.url"), StringValue: aws.String("x")},
			},
			want: "hello", headers: map[string]string{"bytes": "/wAB", "text": "é", "n": "-42", "label": "x"},
		},
		"foreign text of the stand-in for an empty body": {body: "empty message", want: "empty message", headers: map[string]string{}},
		"raw notification of SNS": {
			body: notificationOfSNS, attributes: attributes{headersAttribute: text(`{"NServiceBus.MessageId":"m-1"}`)},
			id: "m-1", want: notificationOfSNS, headers: map[string]string{"NServiceBus.MessageId": "m-1"},
		},
		"raw notification of SNS with unreadable headers": {
			body: notificationOfSNS, attributes: attributes{headersAttribute: text("no JSON")}, want: notificationOfSNS, headers: map[string]string{}, malformed: headersAttribute,
		},
		"foreign notification of SNS with a type": {
			body: notificationOfSNS, attributes: attributes{"MessageTypeFullName": text("Interop.Archive")},
			want: notificationOfSNS, headers: map[string]string{"NServiceBus.EnclosedMessageTypes": "Interop.Archive"},
		},
		"text after a notification of SNS": {body: notificationOfSNS + " {}", want: notificationOfSNS + " {}", headers: map[string]string{}},
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
	if err := transport.Subscribe(t.Context(), "billing", "Another"); err != nil { // so that topics may send to the queue
		t.Fatal(err)
	}
	if _, err := s.sns.Subscribe(t.Context(), &awssns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(s.QueueARN("billing")), ReturnSubscriptionArn: true,
	}); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 1)
	binary := snstypes.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte("raw")}
	snsText := func(s string) snstypes.MessageAttributeValue {
		return snstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
	}
	for name, c := range map[string]struct {
		body       string
		attributes map[string]snstypes.MessageAttributeValue
		want, id   string
		subject    *string
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
			body: "hello", attributes: map[string]snstypes.MessageAttributeValue{"MessageTypeFullName": snsText("Interop.Order"), "a": snsText("b"), "bytes": binary},
			want: "hello", subject: aws.String("an order"), headers: map[string]string{
				"NServiceBus.EnclosedMessageTypes": "Interop.Order", "a": "b", "bytes": "raw", "AmazonSNS.Subject": "an order", "AmazonSNS.TopicArn": *topic.TopicArn,
			},
		},
		"foreign with bytes": {
			body: "empty message", attributes: map[string]snstypes.MessageAttributeValue{"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0xff, 0, 1}}},
			want: "empty message", headers: map[string]string{"bytes": "/wAB", "AmazonSNS.TopicArn": *topic.TopicArn},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.sns.Publish(t.Context(), &awssns.PublishInput{TopicArn: topic.TopicArn, Message: &c.body, MessageAttributes: c.attributes, Subject: c.subject}); err != nil {
				t.Fatal(err)
			}
			d := take(t, receiver, 1)[0]
			in := d.Incoming()
			if body := *in.Native.(*types.Message).Body; !strings.Contains(body, "TopicArn") {
				t.Fatalf("SNS put no envelope around %q", body)
			}
			got := in.Headers.Map()
			if at, err := time.Parse(time.RFC3339, got["AmazonSNS.Timestamp"]); (err != nil || at.IsZero()) && c.id == "" {
				t.Errorf("the time of the publish is %q", got["AmazonSNS.Timestamp"])
			}
			delete(got, "AmazonSNS.Timestamp")
			if string(in.Body) != c.want || !maps.Equal(got, c.headers) || in.Malformed != nil || c.id != "" && in.ID != c.id {
				t.Errorf("id %q, body %q, headers %q, malformed: %v", in.ID, in.Body, in.Headers.Map(), in.Malformed)
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		})
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
		Headers: headersOf(headers.MessageID, "m-1", "Reprise.Packed", "mine", "NServiceBus.AmazonSQS.TimeToBeReceived", "mine", "Reprise.Escaped.SQS.x", "mine", "NUL", "\x00"),
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
