package rabbitmq_test

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/internal/cloudevents"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Events of CloudEvents are events again after a return from the error queue, and so are
// replies to them.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		queues := []string{"shop", "error", "answers"}
		transport := s.provisioned(t, rabbitmq.Config{}, queues...)
		ch := s.channel(t)
		events := cloudevents.Site{
			Transport: transport,
			Put: func(t testing.TB, queue string, m cloudevents.Message) {
				table := amqp.Table{}
				for key, value := range m.Headers {
					table[key] = value
				}
				message := amqp.Publishing{ContentType: m.ContentType, ReplyTo: "answers", Headers: table, Body: []byte(m.Body)}
				if err := ch.PublishWithContext(t.Context(), "", queue, true, false, message); err != nil {
					t.Fatal(err)
				}
			},
			Take: func(t testing.TB, queue string) (m cloudevents.Message) {
				awaitTrue(t, "a message is in "+queue, func() bool {
					d, ok, err := ch.Get(queue, true)
					if err != nil {
						t.Fatal(err)
					}
					if ok {
						m = cloudevents.Message{ContentType: d.ContentType, Body: string(d.Body), Headers: map[string]string{}}
						for key, value := range d.Headers {
							m.Headers[key] = fmt.Sprint(value)
						}
					}
					return ok
				})
				return m
			},
		}
		for name, m := range map[string]cloudevents.Message{
			"binary": cloudevents.Binary("cloudEvents:"), "binary without colons": cloudevents.Binary("cloudEvents_"),
			"structured": cloudevents.Structured("application/cloudevents+json; charset=utf-8"), "a body alone": cloudevents.Structured(""),
		} {
			t.Run(name, func(t *testing.T) { events.Run(t, m) })
		}
	})
}
