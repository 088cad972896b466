package message

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// wrappers are bodies of messages, and whether the adapter writes such ones.
var wrappers = map[string]bool{
	`{"Headers":{"NServiceBus.MessageId":"m-1","a":"quoted \" \\ é"},"Body":"aGVsbG8="}`: true,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":""}`:                              true,
	`{"Headers":{"NServiceBus.MessageId":",\"Body\":\""},"Body":"aGVsbG8="}`:             true,
	`{"Headers":{"NServiceBus.MessageId":7},"Body":"aGVsbG8="}`:                          true,
	`{"Headers":{},"Body":"aGVsbG8="}`:                                                   true, // and an application's, without an id
	`{"Headers":{"NServiceBus.MessageId":"m-1"} ,"Body":"aGVsbG8="}`:                     true,

	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"empty message"}`:                false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8=","S3BodyKey":null}`:    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"","S3BodyKey":"key"}`:           false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Other":{"a":"b"},"Body":"aGVsbG8="}`:   false,
	`{"Headers":{"a":"b"},"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}`: false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"x","Body":"aGVsbG8="}`:          false,
	`{"Body":"aGVsbG8=","Headers":{"NServiceBus.MessageId":"m-1"}}`:                     false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVs` + "\n" + `bG8="}`:         false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVs\nbG8="}`:                   false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"no base64!"}`:                   false,
	`{"Headers":{"NServiceBus.MessageId":"m-1","":"no key"},"Body":"aGVsbG8="}`:         false,
	`{"Headers":["NServiceBus.MessageId"],"Body":"aGVsbG8="}`:                           false,
	`{"Headers":null,"Body":"aGVsbG8="}`:                                                false,
	`{"Headers":"NServiceBus.MessageId","Body":"aGVsbG8="}`:                             false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="} `:                    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}}`:                    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="`:                      false,
	`{"Headers":"}`: false,
	`{"Headers":`:   false,
	`{"Headers":{"NServiceBus.MessageId":"` + "\xff" + `"},"Body":"aGVsbG8="}`: false,
}

func TestParseWritten_RecognizesWrittenTexts(t *testing.T) {
	t.Parallel()
	for text, want := range wrappers {
		if _, _, ok := parseWritten(text); ok != want {
			t.Errorf("%s: parseWritten returns %v", text, ok)
		}
	}
	var out core.Outgoing
	out.ID, out.Body = "m-1", []byte("hello")
	out.Headers.Set(headers.MessageID, "m-1")
	written := write(&out, outgoingHeaders(&out), false, "")
	if _, _, ok := parseWritten(written.Text); !ok {
		t.Errorf("the adapter writes %s, which takes the slow path", written.Text)
	}
}

// FuzzParseWritten compares it with encoding/json.
func FuzzParseWritten(f *testing.F) {
	for text := range wrappers {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		headers, body, ok := parseWritten(text)
		if !ok {
			return
		}
		var want struct {
			Headers map[string]any
			Body    []byte
		}
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&want); err != nil || want.Headers == nil || decoder.InputOffset() != int64(len(text)) {
			t.Fatalf("%q is no wrapper: %v", text, err)
		}
		if !bytes.Equal(body, want.Body) || headers.Len() != len(want.Headers) {
			t.Errorf("%q: the body is %q, and there are %d headers; want %q and %d", text, body, headers.Len(), want.Body, len(want.Headers))
		}
		for key, v := range want.Headers {
			text, isText := v.(string)
			if got, has := headers.Lookup(key); !has || isText && got != text {
				t.Errorf("%q: the header %q is %q, want %q", text, key, got, v)
			}
		}
	})
}

// A message that takes the fast path is read as another one with the same meaning.
func TestRead_SameOnBothPaths(t *testing.T) {
	t.Parallel()
	c := &Codec{}
	for fast, slow := range map[string]string{
		`{"Headers":{"NServiceBus.MessageId":"m-1","a":"b"},"Body":"aGVsbG8="}`: `{ "Headers":{"NServiceBus.MessageId":"m-1","a":"b"},"Body":"aGVsbG8="}`,
		`{"Headers":{"a":"b"},"Body":"aGVsbG8="}`:                               `{ "Headers":{"a":"b"},"Body":"aGVsbG8="}`, // an application's object
	} {
		if _, _, ok := parseWritten(fast); !ok {
			t.Fatalf("%s is not fast", fast)
		}
		a, b := c.Read("billing", &types.Message{Body: &fast}), c.Read("billing", &types.Message{Body: &slow})
		if !bytes.Equal(a.Body, b.Body) && (string(a.Body) != fast || string(b.Body) != slow) {
			t.Errorf("the bodies of %s and %s are %q and %q", fast, slow, a.Body, b.Body)
		}
		if a.Headers.Len() != b.Headers.Len() || a.Headers.Get("a") != b.Headers.Get("a") || a.ID != b.ID || a.Malformed != nil || b.Malformed != nil {
			t.Errorf("%s and %s are read as %+v and %+v", fast, slow, a.Incoming, b.Incoming)
		}
	}
}

// received returns a message with attributes of its sender and of the service.
func received(attributes, system map[string]string) *types.Message {
	body := "hello"
	m := &types.Message{Body: &body, MessageAttributes: map[string]types.MessageAttributeValue{}, Attributes: system}
	for name, v := range attributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{StringValue: &v}
	}
	return m
}

// Only the service counts deliveries, since the engine isolates a message that has many. The failures that an attribute
// counts are those of the engine's header.
func TestRead_SenderDoesNotCountDeliveries(t *testing.T) {
	t.Parallel()
	for text, failures := range map[string]string{"1": "1", "20": "20", "1000001": "", "9223372036854775807": "", "-1": "", "many": ""} {
		for count := 1; count <= 3; count++ {
			in := (&Codec{}).Read("billing", received(
				map[string]string{"Reprise.Deliveries": text, "Reprise.Failures": text, "ApproximateReceiveCount": text},
				map[string]string{"ApproximateReceiveCount": strconv.Itoa(count)},
			))
			if in.DeliveryCount != count || in.ReceiveCount != count || in.Redelivered != (count > 1) {
				t.Errorf("with %s failures and %d receives: delivery %d, %d receives, redelivered: %v", text, count, in.DeliveryCount, in.ReceiveCount, in.Redelivered)
			}
			if got := in.Headers.Get(headers.Failures); got != failures {
				t.Errorf("with %s failures the header is %q, want %q", text, got, failures)
			}
		}
	}
}

// EnqueuedAt is between the longest life of a message before it was sent and its first delivery.
func TestRead_EnqueuedAtIsPossible(t *testing.T) {
	t.Parallel()
	sent := time.UnixMilli(1_800_000_000_000)
	first := sent.Add(20 * time.Minute)
	ms := func(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
	for name, c := range map[string]struct {
		attributes map[string]string
		unsent     bool
		want       time.Time
	}{
		"none":                            {want: sent},
		"delay":                           {attributes: map[string]string{"Reprise.Delay": "900000"}, want: sent.Add(15 * time.Minute)},
		"delay that the service cannot":   {attributes: map[string]string{"Reprise.Delay": "9223372036854"}, want: first},
		"negative delay":                  {attributes: map[string]string{"Reprise.Delay": "-900000"}, want: sent},
		"wait":                            {attributes: map[string]string{"Reprise.Wait": "9223372036854"}, want: sent},
		"copy":                            {attributes: map[string]string{"Reprise.Enqueued": ms(sent.Add(-time.Hour))}, want: sent.Add(-time.Hour)},
		"copy of a message of the future": {attributes: map[string]string{"Reprise.Enqueued": ms(sent.Add(time.Hour))}, want: sent},
		"copy of a message of year 1970":  {attributes: map[string]string{"Reprise.Enqueued": "1"}, want: sent.Add(-14 * 24 * time.Hour)},
		"copy of a message of year 30000": {attributes: map[string]string{"Reprise.Enqueued": "9223372036854775807"}, want: sent},
		"no time of the service":          {attributes: map[string]string{"Reprise.Enqueued": ms(sent), "Reprise.Delay": "1000"}, unsent: true},
	} {
		system := map[string]string{"SentTimestamp": ms(sent), "ApproximateFirstReceiveTimestamp": ms(first)}
		if c.unsent {
			system = nil
		}
		if in := (&Codec{}).Read("billing", received(c.attributes, system)); !in.EnqueuedAt.Equal(c.want) {
			t.Errorf("%s: EnqueuedAt is %v, want %v", name, in.EnqueuedAt, c.want)
		}
	}
}

// An escaped header has a name after the prefix: no header gets an empty key.
func TestRead_EscapeWithoutName(t *testing.T) {
	t.Parallel()
	var out core.Outgoing
	out.ID = "m-1"
	out.Headers.Set(headers.MessageID, "m-1")
	out.Headers.Set("a", "b")
	m := write(&out, core.HeadersFromMap(map[string]string{
		headers.MessageID: "m-1", "a": "b", "Reprise.Escaped.Reprise.Escaped.SQS.": "no name",
	}), false, "")
	in := (&Codec{}).Read("billing", asReceived(m))
	if _, has := in.Headers.Lookup(""); has || in.Malformed != nil || in.Headers.Get("a") != "b" {
		t.Fatalf("the headers are %q, malformed: %v", in.Headers.Map(), in.Malformed)
	}
	if got := in.Headers.Get("Reprise.Escaped.SQS."); got != "no name" {
		t.Fatalf("the headers are %q", in.Headers.Map())
	}
	// A copy has the same headers.
	out.Headers = in.Headers
	m, err := (&Codec{}).Encode(t.Context(), &out, 1<<20, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if copied := (&Codec{}).Read("billing", asReceived(m)); copied.Headers.Get("Reprise.Escaped.SQS.") != "no name" || copied.Headers.Len() != in.Headers.Len() {
		t.Errorf("a copy has the headers %q, want %q", copied.Headers.Map(), in.Headers.Map())
	}
}

// The values of SNS and SQS beside a foreign message are headers. A longer one than theirs, which only a
// sender writes, is not.
func TestRead_FactsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length int
		has    bool
	}{{1, true}, {maxFact, true}, {maxFact + 1, false}} {
		fact := strings.Repeat("x", c.length)
		body := `{"Type":"Notification","TopicArn":"` + fact + `","Subject":"` + fact + `","Timestamp":"` + fact + `","Message":"hello"}`
		in := (&Codec{}).Read("billing", &types.Message{Body: &body, Attributes: map[string]string{"AWSTraceHeader": fact}})
		if string(in.Body) != "hello" {
			t.Errorf("the body is %q", in.Body)
		}
		for _, name := range []string{"AmazonSNS.TopicArn", "AmazonSNS.Subject", "AmazonSNS.Timestamp", "AmazonSQS.AWSTraceHeader"} {
			if got, has := in.Headers.Lookup(name); has != c.has || has && got != fact {
				t.Errorf("with %d bytes the header %s is %q", c.length, name, got)
			}
		}
	}
	// A message of ours has its own headers only.
	own := (&Codec{}).Read("billing", received(map[string]string{attrHeaders: `{"a":"b"}`}, map[string]string{"AWSTraceHeader": "Root=1"}))
	if own.Headers.Len() != 1 {
		t.Errorf("the headers are %q", own.Headers.Map())
	}
}

// Other senders of headers as JSON give them values that are no strings.
func TestRead_HeadersOfOtherTypes(t *testing.T) {
	t.Parallel()
	const object = `{"NServiceBus.MessageId":"m-1","n":12.50,"list":[1,"two",{"b":true}],"none":null}`
	raw := received(map[string]string{attrHeaders: object}, nil)
	wrapped := received(nil, nil)
	text := `{"Headers":` + object + `,"Body":"Ym9keQ=="}`
	wrapped.Body = &text
	for name, m := range map[string]*types.Message{"Raw": raw, "Wrapped": wrapped} {
		in := (&Codec{}).Read("billing", m)
		if h := in.Headers; in.Malformed != nil || h.Get("n") != "12.50" || h.Get("list") != "1;two;b=true" || h.Get("none") != "" || in.ID != "m-1" {
			t.Errorf("%s: the headers are %q, malformed: %v", name, h.Map(), in.Malformed)
		}
	}
}
