package asb_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/internal/cloudevents"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// Events of CloudEvents are events again after a return from the error queue, and so are
// replies to them.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	events := cloudevents.Site{
		Transport: s.provisioned(t, asb.Config{}, "shop", "error", "answers"),
		Put: func(_ testing.TB, queue string, m cloudevents.Message) {
			out := &azservicebus.Message{Body: []byte(m.Body), ReplyTo: new("answers"), ApplicationProperties: map[string]any{}}
			if m.ContentType != "" {
				out.ContentType = &m.ContentType
			}
			for key, value := range m.Headers {
				out.ApplicationProperties[key] = value
			}
			sendForeign(t, s, queue, out)
		},
		Take: func(_ testing.TB, queue string) cloudevents.Message {
			receiver, err := client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = receiver.Close(context.WithoutCancel(t.Context())) }()
			got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := cloudevents.Message{Body: string(got[0].Body), Headers: map[string]string{}}
			if got[0].ContentType != nil {
				m.ContentType = *got[0].ContentType
			}
			for key, value := range got[0].ApplicationProperties {
				m.Headers[key] = fmt.Sprint(value)
			}
			return m
		},
	}
	for name, m := range map[string]cloudevents.Message{
		"binary": cloudevents.Binary("cloudEvents:"), "binary without colons": cloudevents.Binary("cloudEvents_"),
		"structured": cloudevents.Structured("application/cloudevents+json; charset=utf-8"), "a body alone": cloudevents.Structured(""),
	} {
		t.Run(name, func(t *testing.T) { events.Run(t, m) })
	}
}
