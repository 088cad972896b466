//go:build darwin || linux

package sqs_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/nservicebus"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// testdata/nservicebus/messages.json has messages with the headers of a real NServiceBus on
// another transport, and the addresses of this one. How they are put on SQS is known from the
// source of NServiceBus.AmazonSQS 9.1; it was not run.

// wrapped is the body that NServiceBus writes by default. S3BodyKey is null unless the body is in S3.
type wrapped struct {
	Body      string
	S3BodyKey *string
	Headers   map[string]string
}

// formats are the two in which NServiceBus writes: by default, and with DoNotWrapOutgoingMessages.
var formats = map[string]struct {
	format sqs.Format
	write  func(t testing.TB, m *nservicebus.Message) (body string, attributes map[string]types.MessageAttributeValue)
	read   func(t testing.TB, body string, m *nservicebus.Message)
}{
	"wrapped": {
		sqs.Wrapped,
		func(t testing.TB, m *nservicebus.Message) (string, map[string]types.MessageAttributeValue) {
			t.Helper()
			text, err := json.Marshal(wrapped{Body: base64.StdEncoding.EncodeToString([]byte(m.Body)), Headers: m.Headers})
			if err != nil {
				t.Fatal(err)
			}
			return string(text), map[string]types.MessageAttributeValue{}
		},
		func(t testing.TB, body string, m *nservicebus.Message) {
			t.Helper()
			var w wrapped
			if err := json.Unmarshal([]byte(body), &w); err != nil {
				t.Fatal(err)
			}
			text, err := base64.StdEncoding.DecodeString(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			m.Headers, m.Body = w.Headers, string(text)
			if w.S3BodyKey != nil {
				m.Properties["S3BodyKey"] = *w.S3BodyKey
			}
		},
	},
	"raw": {
		sqs.Raw,
		func(t testing.TB, m *nservicebus.Message) (string, map[string]types.MessageAttributeValue) {
			t.Helper()
			headers, err := json.Marshal(m.Headers)
			if err != nil {
				t.Fatal(err)
			}
			return m.Body, map[string]types.MessageAttributeValue{headersAttribute: text(string(headers))}
		},
		func(t testing.TB, body string, m *nservicebus.Message) {
			t.Helper()
			if err := json.Unmarshal([]byte(m.Properties["attribute "+headersAttribute]), &m.Headers); err != nil {
				t.Fatal(err)
			}
			delete(m.Properties, "attribute "+headersAttribute)
			m.Body = body
		},
	},
}

// ofNServiceBus returns a service on which messages are as NServiceBus writes them in one format.
func ofNServiceBus(t *testing.T, name string) *nservicebus.Site {
	f := formats[name]
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{Format: f.format}, "Interop.Go", "Interop.Net", "error", "audit", "forwarded")
	if err := transport.Subscribe(t.Context(), "Interop.Go", "Interop.NetHappened"); err != nil {
		t.Fatal(err)
	}
	// An endpoint's own queue, the first, has one for long delays.
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "Interop.Net", Queues: []string{"Interop.Net"}}); err != nil {
		t.Fatal(err)
	}
	address := func(t testing.TB, queue string) string {
		t.Helper()
		name, err := transport.Address(queue)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	return &nservicebus.Site{
		Transport: transport,
		Put: func(_ testing.TB, queue string, m *nservicebus.Message) {
			body, attributes := f.write(t, m)
			attributes[headers.MessageID] = text(m.Headers[headers.MessageID])
			s.put(t, address(t, queue), body, attributes)
		},
		Take: func(_ testing.TB, queue string) *nservicebus.Message {
			got := s.get(t, address(t, queue))
			m := &nservicebus.Message{Queue: queue, Properties: map[string]string{}}
			for key, value := range stringsOf(t, &got) {
				m.Properties["attribute "+key] = value
			}
			f.read(t, *got.Body, m)
			return m
		},
	}
}

func TestNServiceBus_Messages(t *testing.T) {
	t.Parallel()
	kept := nservicebus.Comparison{Table: nservicebus.Kept()}
	written := nservicebus.Comparison{Table: nservicebus.Written(
		nservicebus.Allowed{Name: "property attribute NServiceBus.MessageId", Kind: nservicebus.Differs, Form: nservicebus.ID, Reason: "another message"},
		nservicebus.Allowed{Name: "property attribute Reprise.Delay", Kind: nservicebus.Added, Situations: []string{"delay"}, Reason: "how long SQS delays it; for NServiceBus one more header"},
	)}
	t.Cleanup(func() { kept.Used(t); written.Used(t) })
	for name := range maps.Keys(formats) {
		t.Run(name+", received", func(t *testing.T) {
			t.Parallel()
			ofNServiceBus(t, name).Received(t, nservicebus.Messages(t, "testdata/nservicebus/messages.json"), &kept)
		})
		t.Run(name+", written", func(t *testing.T) {
			t.Parallel()
			ofNServiceBus(t, name).Written(t, nservicebus.Messages(t, "testdata/nservicebus/messages.json"), &written)
		})
	}
}
