//go:build darwin || linux

package sqs_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/cloudevents"
	"github.com/reprise-go/reprise/internal/nservicebus"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// Events of CloudEvents are events again after a return from the error queue, and so are
// replies to them.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	brighter := cloudevents.Binary("")
	all, err := json.Marshal(brighter.Headers)
	if err != nil {
		t.Fatal(err)
	}
	brighter.Headers = map[string]string{"cloudeventheaders": string(all), "message-type": "MT_EVENT"}
	for format, f := range formats {
		for name, m := range map[string]cloudevents.Message{
			"binary": cloudevents.Binary("ce-"), "binary as of Brighter": brighter, "a body alone": cloudevents.Structured(""),
		} {
			m.ContentType = "" // SQS has no field for it
			t.Run(format+", "+name, func(t *testing.T) {
				t.Parallel()
				s := startSite(t, testserver.Config{})
				transport := s.provisioned(t, sqs.Config{Format: f.format}, "shop", "error", "answers")
				address := func(queue string) string {
					name, err := transport.Address(queue)
					if err != nil {
						t.Fatal(err)
					}
					return name
				}
				events := cloudevents.Site{
					Transport: transport,
					Put: func(_ testing.TB, queue string, m cloudevents.Message) {
						if native, ok := m.Native.(types.Message); ok {
							s.put(t, address(queue), *native.Body, native.MessageAttributes)
							return
						}
						attributes := map[string]types.MessageAttributeValue{headers.ReplyToAddress: text("answers")}
						for key, value := range m.Headers {
							attributes[key] = text(value)
						}
						s.put(t, address(queue), m.Body, attributes)
					},
					Take: func(_ testing.TB, queue string) cloudevents.Message {
						native := s.get(t, address(queue))
						taken := nservicebus.Message{Properties: map[string]string{}}
						for key, value := range stringsOf(t, &native) {
							taken.Properties["attribute "+key] = value
						}
						read := f.read
						if _, isRaw := native.MessageAttributes["NServiceBus.AmazonSQS.Headers"]; isRaw { // as a copy of a foreign text is
							read = formats["raw"].read
						}
						read(t, *native.Body, &taken)
						return cloudevents.Message{ContentType: taken.Headers[headers.ContentType], Body: taken.Body, Headers: maps.Clone(taken.Headers), Native: native}
					},
				}
				events.Run(t, m)
			})
		}
	}
}
