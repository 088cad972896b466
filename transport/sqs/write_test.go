//go:build darwin || linux

package sqs_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

const headersAttribute = "NServiceBus.AmazonSQS.Headers"

// stringsOf returns the values of attributes, all of which have to be strings.
func stringsOf(t *testing.T, m *types.Message) map[string]string {
	t.Helper()
	values := map[string]string{}
	for name, a := range m.MessageAttributes {
		if a.DataType == nil || *a.DataType != "String" || a.StringValue == nil {
			t.Errorf("the attribute %q is no string: %+v", name, a)
			continue
		}
		values[name] = *a.StringValue
	}
	return values
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
			out.Headers.Set(headers.MessageID, "m-1")
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
			out := core.Outgoing{ID: "m-1", Queue: "billing", Body: []byte(c.body), Headers: headersOf(headers.MessageID, "m-1", "k", "\x00é\"")}
			if err := transport.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			m := s.get(t, "billing")
			if *m.Body != c.text {
				t.Errorf("the body is %q, want %q", *m.Body, c.text)
			}
			attributes := stringsOf(t, &m)
			var got map[string]string
			if err := json.Unmarshal([]byte(attributes[headersAttribute]), &got); err != nil {
				t.Fatalf("the attribute %s, %q: %v", headersAttribute, attributes[headersAttribute], err)
			}
			if want := map[string]string{headers.MessageID: "m-1", "k": "\x00é\""}; !maps.Equal(got, want) {
				t.Errorf("the headers are %q, want %q", got, want)
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
		"a\x00b":                 "a?b",
		strings.Repeat("x", 300): strings.Repeat("x", 256),
		strings.Repeat("x", 255) + "é" + "the end": strings.Repeat("x", 255),
	} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "billing", Headers: headersOf(headers.MessageID, id)}); err != nil {
			t.Errorf("%q: %v", id, err)
			continue
		}
		m := s.get(t, "billing")
		if got := stringsOf(t, &m)["NServiceBus.MessageId"]; got != want {
			t.Errorf("the attribute with the id %q is %q, want %q", id, got, want)
		}
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
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Interop.Outer+Order", Body: []byte("hello"), Headers: headersOf(headers.MessageID, "m-1")}); err != nil {
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
