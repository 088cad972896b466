//go:build darwin || linux

package sqs_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/fauxqs"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// shown returns the attributes of a foreign message in a form that can be compared.
func shown(m *types.Message) map[string]string {
	all := map[string]string{"text": *m.Body}
	for name, v := range m.MessageAttributes {
		switch name {
		case "NServiceBus.MessageId", headersAttribute, "Reprise.Delay":
		default:
			all[name] = fmt.Sprintf("%s %q %q", aws.ToString(v.DataType), aws.ToString(v.StringValue), v.BinaryValue)
		}
	}
	return all
}

// A foreign message keeps its text, the types of its attributes and its trace in every copy: of a refusal, a delayed
// retry, in the error queue, after a return and in the audit queue.
func TestCopies_KeepNativeAttributes(t *testing.T) {
	t.Parallel()
	sent := attributes{
		"n": {DataType: aws.String("Number.int"), StringValue: aws.String("-42")}, "bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0x1f, 0x8b, 0xff}},
		"label": {DataType: aws.String("String.url"), StringValue: aws.String("https://example.com")}, "tenant": text("7"), "MessageTypeFullName": text("Interop.Order"),
	}
	const body, trace = "<Order/>", "Root=1-5759e988-bd862e3fe1be46a994272793"
	want := shown(&types.Message{Body: aws.String(body), MessageAttributes: sent})
	for name, start := range map[string]func(t *testing.T) (url, trace string){
		"own server": func(t *testing.T) (string, string) {
			t.Helper()
			return testserver.StartFor(t, testserver.Config{}).URL(), trace
		},
		"fauxqs": func(t *testing.T) (string, string) { // which loses traces
			t.Helper()
			return fauxqs.StartFor(t).URL(), ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "fauxqs" && testing.Short() {
				t.Skip("starts another server: not in short runs")
			}
			t.Parallel()
			url, trace := start(t)
			s := newService(t, url)
			transport := openConfigured(t, s.configured(sqs.Config{}, s.network))
			if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing", "error", "audit"}}); err != nil {
				t.Fatal(err)
			}
			check := func(copied string, native any) {
				t.Helper()
				m := native.(*types.Message)
				if got := shown(m); !maps.Equal(got, want) || m.Attributes["AWSTraceHeader"] != trace {
					t.Errorf("%s has %q and the trace %q, want %q and %q", copied, got, m.Attributes["AWSTraceHeader"], want, trace)
				}
			}
			attempts := 0
			runMessages(t, transport, "billing", core.Config{
				AuditQueue: "audit",
				Recoverability: core.Recoverability{
					Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
				},
			}, func(m *core.Message) error {
				attempts++
				check(fmt.Sprint("attempt ", attempts), m.Native())
				switch attempts {
				case 1:
					return core.Refuse(errors.New("the circuit is open"), time.Second)
				case 4:
					return nil
				}
				return errors.New("it failed")
			})
			if _, err := s.client().SendMessage(t.Context(), &awssqs.SendMessageInput{
				QueueUrl: s.url(t, "billing"), MessageBody: aws.String(body), MessageAttributes: sent,
				MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")}},
			}); err != nil {
				t.Fatal(err)
			}
			d := take(t, openReceiver(t, transport, "error", 1), 1)[0]
			in := d.Incoming()
			check("the error queue", in.Native)
			returned := core.Outgoing{ID: in.ID, Queue: "billing", Headers: in.Headers, Body: in.Body, Native: in.Native}
			if err := errors.Join(transport.Send(t.Context(), returned), d.Complete(t.Context())); err != nil {
				t.Fatal(err)
			}
			check("the audit queue", take(t, openReceiver(t, transport, "audit", 1), 1)[0].Incoming().Native)
		})
	}
}

// A message without a place goes back as a copy, although its attributes leave no room for those of the copy.
func TestSetMaxInFlight_MessageWithTenAttributes(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, "billing")
	sent := many(attributes{"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0xff}}})
	s.put(t, "billing", "hello", sent)
	receiver := openReceiver(t, transport, "billing", 1)
	first := take(t, receiver, 1)[0]
	want := first.Incoming().Headers.Map()
	if err := first.Abandon(t.Context(), errors.New("it failed")); err != nil {
		t.Fatal(err)
	}
	await(t, "the message is received once more", func() bool {
		c := s.contents(t, "billing")
		return len(c.InFlight) == 1 && c.InFlight[0].ReceiveCount == 2
	})
	receiver.SetMaxInFlight(0)
	await(t, "its copy is in the queue", func() bool {
		c := s.contents(t, "billing")
		return len(c.Ready) == 1 && c.Ready[0].ReceiveCount == 0 && len(c.InFlight) == 0
	})
	in := take(t, openReceiver(t, s.open(t, sqs.Config{NoLongDelays: true}), "billing", 1), 1)[0].Incoming()
	got := in.Headers.Map()
	if got[headers.Failures] != "1" || in.DeliveryCount != 1 || string(in.Body) != "hello" {
		t.Errorf("the copy is delivery %d with the body %q and %q failures", in.DeliveryCount, in.Body, got[headers.Failures])
	}
	if delete(got, headers.Failures); !maps.Equal(got, want) {
		t.Errorf("the copy has the headers %q, want %q", got, want)
	}
	if kept := in.Native.(*types.Message).MessageAttributes; aws.ToString(kept["bytes"].DataType) != "Binary" || len(kept) != 10 {
		t.Errorf("the copy has %d attributes, and the bytes have the type %q", len(kept), aws.ToString(kept["bytes"].DataType))
	}
}
