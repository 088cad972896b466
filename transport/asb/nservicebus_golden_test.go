//go:build darwin || linux

package asb_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/internal/nservicebus"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// testdata/nservicebus/messages.json has messages with the headers of a real NServiceBus on
// another transport. How they are put on Service Bus is known from the source of
// NServiceBus.Transport.AzureServiceBus 6.5; it was not run.

// ofNServiceBus returns a namespace on which messages are as NServiceBus writes them: headers are
// application properties, and three of them native fields too. The native id is new for each send.
func ofNServiceBus(t *testing.T) *nservicebus.Site {
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "Interop.Go", "Interop.Net", "error", "audit", "forwarded")
	if err := transport.Subscribe(t.Context(), "Interop.Go", "Interop.NetHappened"); err != nil {
		t.Fatal(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &nservicebus.Site{
		Transport: transport,
		Put: func(_ testing.TB, queue string, m *nservicebus.Message) {
			sender, err := client.NewSender(queue, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sender.Close(context.WithoutCancel(t.Context())) }()
			out := &azservicebus.Message{Body: []byte(m.Body), ApplicationProperties: map[string]any{}}
			for key, value := range m.Headers {
				out.ApplicationProperties[key] = value
			}
			for field, name := range map[**string]string{&out.MessageID: "MessageId", &out.ContentType: "ContentType", &out.CorrelationID: "CorrelationId", &out.ReplyTo: "ReplyTo"} {
				if value, ok := m.Properties[name]; ok {
					*field = &value
				}
			}
			if err := sender.SendMessage(t.Context(), out, nil); err != nil {
				t.Fatal(err)
			}
		},
		Take: func(_ testing.TB, queue string) *nservicebus.Message {
			receiver, err := client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = receiver.Close(context.WithoutCancel(t.Context())) }()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			list, err := receiver.ReceiveMessages(ctx, 1, nil)
			if err != nil {
				t.Fatalf("nothing comes to %s: %v", queue, err)
			}
			got := list[0]
			m := &nservicebus.Message{Queue: queue, Body: string(got.Body), Headers: map[string]string{}, Properties: map[string]string{"MessageId": got.MessageID}}
			for key, value := range got.ApplicationProperties {
				text, ok := value.(string)
				if !ok {
					t.Errorf("the application property %s is a %T", key, value)
				}
				m.Headers[key] = text
			}
			for name, value := range map[string]*string{
				"ContentType": got.ContentType, "CorrelationId": got.CorrelationID, "ReplyTo": got.ReplyTo, "SessionId": got.SessionID, "To": got.To, "Subject": got.Subject,
			} {
				if value != nil {
					m.Properties[name] = *value
				}
			}
			return m
		},
	}
}

// interopNet is the address of Interop.Net, in any case.
var interopNet = regexp.MustCompile(`^(?i:Interop\.Net)$`)

const lowerCase = "Reprise's addresses are in lower case; the service compares names without case"

func TestNServiceBus_Messages(t *testing.T) {
	t.Parallel()
	kept := nservicebus.Comparison{Table: nservicebus.Kept(
		nservicebus.Allowed{Name: "property MessageId", Kind: nservicebus.Differs, Reason: "a new one for each copy, as NServiceBus does"},
	)}
	written := nservicebus.Comparison{Table: nservicebus.Written(
		nservicebus.Allowed{Name: "property MessageId", Kind: nservicebus.Differs, Reason: "the message's id, and a new one for copies; NServiceBus has a new one in each send, and reads none"},
		nservicebus.Allowed{Name: "property CorrelationId", Kind: nservicebus.Differs, Form: nservicebus.ID, Reason: "another message"},
		nservicebus.Allowed{Name: "property SessionId", Kind: nservicebus.Added, Situations: []string{"publish"}, Reason: "for subscribers whose queues have sessions; others ignore it"},
		nservicebus.Allowed{Name: "header NServiceBus.ReplyToAddress", Kind: nservicebus.Differs, Form: interopNet, Reason: lowerCase},
		nservicebus.Allowed{Name: "property ReplyTo", Kind: nservicebus.Differs, Form: interopNet, Reason: lowerCase},
		nservicebus.Allowed{Name: "header NServiceBus.FailedQ", Kind: nservicebus.Differs, Form: interopNet, Reason: lowerCase},
	)}
	t.Cleanup(func() { kept.Used(t); written.Used(t) })
	for name, do := range map[string]func(t *testing.T, s *nservicebus.Site, all map[string]*nservicebus.Message){
		"received": func(t *testing.T, s *nservicebus.Site, all map[string]*nservicebus.Message) {
			s.Received(t, all, &kept)
		},
		"written": func(t *testing.T, s *nservicebus.Site, all map[string]*nservicebus.Message) {
			s.Written(t, all, &written)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, ofNServiceBus(t), nservicebus.Messages(t, "testdata/nservicebus/messages.json"))
		})
	}
}
