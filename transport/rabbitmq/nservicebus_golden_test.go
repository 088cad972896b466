package rabbitmq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/nservicebus"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// recorded is a message that NServiceBus 10.2 put on a RabbitMQ 3.10, as the broker's
// management API returned it.
type recorded struct {
	Queue      string
	Exchange   string
	RoutingKey string `json:"routing_key"`
	Properties struct {
		Type          string
		MessageID     string `json:"message_id"`
		ReplyTo       string `json:"reply_to"`
		CorrelationID string `json:"correlation_id"`
		ContentType   string `json:"content_type"`
		DeliveryMode  uint8  `json:"delivery_mode"`
		Headers       map[string]any
	}
	Payload string
}

// recordings returns them by type. The one in the error queue failed in an endpoint
// Interop.Net, the one in the audit queue was handled there.
func recordings(t *testing.T) map[string]*recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/nservicebus/messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []*recorded
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*recorded{}
	for _, r := range list {
		all[r.Properties.Type] = r
	}
	if len(all) != 7 {
		t.Fatalf("there are recordings of %d types, want 7", len(all))
	}
	return all
}

// publishing returns the message with the properties and headers as they were recorded.
func (r *recorded) publishing() amqp.Publishing {
	headers, _ := asAMQP(r.Properties.Headers).(amqp.Table)
	return amqp.Publishing{
		Type: r.Properties.Type, MessageId: r.Properties.MessageID, ReplyTo: r.Properties.ReplyTo, CorrelationId: r.Properties.CorrelationID,
		ContentType: r.Properties.ContentType, DeliveryMode: r.Properties.DeliveryMode, Headers: headers, Body: []byte(r.Payload),
	}
}

func asAMQP(value any) any {
	switch v := value.(type) {
	case map[string]any:
		table := amqp.Table{}
		for key, value := range v {
			table[key] = asAMQP(value)
			if n, ok := table[key].(int64); ok && key == "time" {
				table[key] = time.Unix(n, 0)
			}
		}
		return table
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = asAMQP(v[i])
		}
		return list
	case json.Number:
		n, _ := v.Int64()
		return n
	}
	return value
}

// fields returns the fields that NServiceBus wrote, for comparison.
func (r *recorded) fields() map[string]string {
	d := amqp.Delivery{Exchange: r.Exchange, RoutingKey: r.RoutingKey}
	p := r.publishing()
	d.Headers, d.Type, d.MessageId, d.ReplyTo, d.CorrelationId = p.Headers, p.Type, p.MessageId, p.ReplyTo, p.CorrelationId
	d.ContentType, d.DeliveryMode, d.Body = p.ContentType, p.DeliveryMode, p.Body
	return fieldsOf(&d)
}

// fieldsOf returns all that a message has, but for properties that it has not.
func fieldsOf(d *amqp.Delivery) map[string]string {
	fields := map[string]string{}
	for name, value := range map[string]string{
		"exchange": d.Exchange, "routing key": d.RoutingKey, "body": string(d.Body),
		"type": d.Type, "message-id": d.MessageId, "reply-to": d.ReplyTo, "correlation-id": d.CorrelationId, "content-type": d.ContentType,
		"content-encoding": d.ContentEncoding, "expiration": d.Expiration, "app-id": d.AppId, "user-id": d.UserId,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	fields["delivery-mode"] = strconv.Itoa(int(d.DeliveryMode))
	if d.Priority != 0 {
		fields["priority"] = strconv.Itoa(int(d.Priority))
	}
	if !d.Timestamp.IsZero() {
		fields["timestamp"] = "set"
	}
	for key, value := range d.Headers {
		fields["header "+key] = fmt.Sprint(value)
		if deaths, ok := value.([]any); ok {
			var text []string
			for _, death := range deaths {
				table, _ := death.(amqp.Table)
				delete(table, "time")
				text = append(text, fmt.Sprint(table))
			}
			fields["header "+key] = strings.Join(text, " ")
		}
	}
	return fields
}

// note is the body of all recorded messages.
type note struct {
	Text string
	N    int
}

// want is the note in a recording.
func (r *recorded) want(t *testing.T) (n note) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Payload), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rounds is how many rounds of attempts a message gets of two: NServiceBus leaves the time of
// the last delayed retry on a message that it moves, and a day after that there are no more,
// there and here. (ServiceControl removes it when it returns a message.)
func (r *recorded) rounds(t *testing.T) int {
	t.Helper()
	last, ok := r.Properties.Headers[headers.RetriesTimestamp].(string)
	if !ok {
		return 2
	}
	at, err := headers.ParseTime(last)
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(at) > 24*time.Hour {
		return 1
	}
	return 2
}

// declareAsThey makes what an endpoint of NServiceBus makes for the exchanges of recorded
// messages: that of its queue's name is there, since Provision makes it too.
func declareAsThey(t *testing.T, ch *amqp.Channel, all map[string]*recorded) {
	t.Helper()
	for _, r := range all {
		if !strings.HasPrefix(r.Exchange, "Interop:") {
			continue
		}
		if err := errors.Join(
			ch.ExchangeDeclare(r.Exchange, amqp.ExchangeFanout, true, false, false, false, nil),
			ch.ExchangeBind(r.Queue, "", r.Exchange, false, nil),
		); err != nil {
			t.Fatal(err)
		}
	}
}

// keptOfTheirs are the differences between a message of NServiceBus and what is left of it on
// its way through an endpoint that does not change it.
func keptOfTheirs() []nservicebus.Allowed {
	return nservicebus.Kept(
		nservicebus.Allowed{Name: "exchange", Kind: nservicebus.Missing, Reason: "Reprise sends to queues by the default exchange: an exchange of the queue's name may be missing"},
		nservicebus.Allowed{Name: "routing key", Kind: nservicebus.Added, Reason: "the default exchange takes the queue's name"},
		nservicebus.Allowed{Name: "routing key", Kind: nservicebus.Differs, Reason: "the recording has that of the delay which is over"},
		nservicebus.Allowed{Name: "header Reprise.CopyID", Kind: nservicebus.Added, Reason: "names the stored copy; NServiceBus keeps headers that it does not know"},
		nservicebus.Allowed{Name: "header x-dotnet-pub-seq-no", Kind: nservicebus.Missing, Reason: "of the publisher's client library; NServiceBus's receiver removes it too"},
		nservicebus.Allowed{Name: "header x-delivery-count", Kind: nservicebus.Missing, Optional: true, Reason: "the broker's, of newer releases; NServiceBus's receiver removes it too"},
		nservicebus.Allowed{Name: "header x-death", Kind: nservicebus.Missing, Reason: "the broker's; NServiceBus's receiver removes it too"},
		nservicebus.Allowed{Name: "header x-first-death-*", Kind: nservicebus.Missing, Reason: "the broker's; NServiceBus's receiver removes it too"},
		nservicebus.Allowed{Name: "header NServiceBus.Transport.RabbitMQ.DelayInSeconds", Kind: nservicebus.Missing, Reason: "of the delay which is over; NServiceBus's receiver removes it too"},
	)
}

// TestNServiceBus_RecordedMessages puts each message that NServiceBus wrote on a broker, as
// NServiceBus published it, and has an endpoint do all that endpoints do with messages. What
// comes out is compared with what went in.
func TestNServiceBus_RecordedMessages(t *testing.T) {
	t.Parallel()
	ofDelayQueues(t)
	kept := nservicebus.Comparison{Table: keptOfTheirs()}
	t.Cleanup(func() { kept.Used(t) })
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		all := recordings(t)
		transport := s.provisioned(t, rabbitmq.Config{}, "Interop.Go", "error", "audit", "forwarded")
		ep, err := core.New("Interop.Go", transport, core.Config{
			AuditQueue: "audit", Logger: slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{
				ErrorQueue: "error",
				Immediate:  core.Immediate{NumberOfRetries: 1},
				Delayed:    core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		type attempt struct{ id, outcome string }
		var mu sync.Mutex
		attempts := map[attempt]int{}
		outcome := "handled"
		for name, r := range all {
			want := r.want(t)
			if name == "Interop.NetHappened" || name == "Interop.PingGo" {
				r.Payload = "\uFEFF" + r.Payload // Newtonsoft.Json, NServiceBus's other serializer, begins with a byte order mark
			}
			core.Handle(ep, core.NewMessageType[note](name), func(_ context.Context, m *core.Message, body note) error {
				mu.Lock()
				defer mu.Unlock()
				attempts[attempt{m.ID, outcome}]++
				if body != want {
					t.Errorf("%s has the body %+v, want %+v", name, body, want)
				}
				for key, value := range r.Properties.Headers {
					if text, ok := value.(string); ok && !strings.HasPrefix(key, "x-") && m.Headers.Get(key) != text {
						t.Errorf("%s has the header %s=%q, want %q", name, key, m.Headers.Get(key), text)
					}
				}
				if outcome != "handled" {
					return errors.New("no")
				}
				return m.Forward("forwarded")
			})
		}
		runs(t, ep)
		ch := s.channel(t)
		declareAsThey(t, ch, all)
		publish := func(r *recorded) {
			exchange := r.Exchange
			if !strings.HasPrefix(exchange, "Interop:") {
				exchange = "Interop.Go"
			}
			if err := ch.PublishWithContext(t.Context(), exchange, "", true, false, r.publishing()); err != nil {
				t.Fatal(err)
			}
		}
		take := func(queue string) map[string]*amqp.Delivery {
			taken := map[string]*amqp.Delivery{}
			awaitTrue(t, fmt.Sprintf("there are %d messages in %s", len(all), queue), func() bool {
				d, ok, err := ch.Get(queue, true)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					taken[d.MessageId+d.CorrelationId] = &d
				}
				return len(taken) == len(all)
			})
			return taken
		}

		for _, r := range all {
			publish(r)
		}
		forwarded, audited := take("forwarded"), take("audit")
		mu.Lock()
		outcome = "failed"
		mu.Unlock()
		for _, r := range all {
			publish(r)
		}
		failed := take("error")
		for name, r := range all {
			id := r.Properties.MessageID
			key := id + r.Properties.CorrelationID
			theirs := r.fields()
			for situation, in := range map[string]map[string]*amqp.Delivery{"forwarded": forwarded, "audited": audited, "moved": failed} {
				d := in[key]
				if d == nil {
					t.Errorf("%s is not among those %s: %v", name, situation, slices.Collect(maps.Keys(in)))
					continue
				}
				kept.Compare(t, situation, theirs, fieldsOf(d))
			}
			mu.Lock()
			if n := attempts[attempt{id, "handled"}]; n != 1 {
				t.Errorf("%s was handled in %d attempts, want 1", name, n)
			}
			if n, want := attempts[attempt{id, "failed"}], 2*r.rounds(t); n != want {
				t.Errorf("%s failed in %d attempts, want %d", name, n, want)
			}
			mu.Unlock()
		}
	})
}

// addedByFailure reports whether a header of a recording is one that NServiceBus adds to a
// message when it moves or audits it: the others were in the request.
func addedByFailure(key string) bool {
	switch key {
	case headers.FailedQ, headers.TimeOfFailure, headers.TimeSent, headers.DeliverAt, headers.RetriesTimestamp, "NServiceBus.Version":
		return true
	}
	for _, prefix := range []string{"NServiceBus.ExceptionInfo.", "NServiceBus.Processing", "$.diagnostics.", "x-"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// request returns the message that the recorded one in the error or audit queue was made of.
func (r *recorded) request() amqp.Publishing {
	p := r.publishing()
	for key := range p.Headers {
		if addedByFailure(key) {
			delete(p.Headers, key)
		}
	}
	return p
}

// writtenAsTheirs are the differences between what an endpoint of NServiceBus wrote and what
// one of Reprise writes in the same situation.
func writtenAsTheirs(topology rabbitmq.RoutingTopology) []nservicebus.Allowed {
	allowed := []nservicebus.Allowed{
		{Name: "message-id", Kind: nservicebus.Differs, Form: nservicebus.ID, Reason: "another message"},
		{Name: "correlation-id", Kind: nservicebus.Differs, Form: nservicebus.ID, Reason: "another message"},
		{Name: "timestamp", Kind: nservicebus.Added, Reason: "NServiceBus does not read it"},
		{Name: "header Reprise.CopyID", Kind: nservicebus.Added, Reason: "names the stored copy; NServiceBus keeps headers that it does not know"},
		{Name: "header x-dotnet-pub-seq-no", Kind: nservicebus.Missing, Reason: "of its client library, whose receiver removes it"},
		{Name: "header x-delivery-count", Kind: nservicebus.Missing, Optional: true, Reason: "the broker's, of newer releases, which the management API shows before the first delivery"},
		{Name: "header x-last-death-*", Kind: nservicebus.Added, Situations: []string{"delay"}, Optional: true, Reason: "the broker's, of newer releases than that of the recording"},
	}
	if topology != rabbitmq.NServiceBus {
		toQueues := []string{"reply", "send", "moved", "audited"}
		allowed = append(allowed,
			nservicebus.Allowed{Name: "exchange", Kind: nservicebus.Missing, Situations: toQueues, Reason: "this topology sends to queues by the default exchange: an exchange of the queue's name may be missing"},
			nservicebus.Allowed{Name: "routing key", Kind: nservicebus.Added, Situations: toQueues, Reason: "the default exchange takes the queue's name"},
			nservicebus.Allowed{Name: "exchange", Kind: nservicebus.Differs, Situations: []string{"publish"}, Reason: "this topology publishes to topic:Interop.NetHappened"},
		)
	}
	return nservicebus.Written(allowed...)
}

// TestNServiceBus_WrittenAsTheirs has an endpoint of Reprise do what the endpoint Interop.Net of
// NServiceBus did, and compares all that both wrote.
func TestNServiceBus_WrittenAsTheirs(t *testing.T) {
	t.Parallel()
	for _, topology := range []rabbitmq.RoutingTopology{rabbitmq.Conventional, rabbitmq.NServiceBus} {
		t.Run(topology.String(), func(t *testing.T) {
			t.Parallel()
			writesAsTheirs(t, topology)
		})
	}
}

func writesAsTheirs(t *testing.T, topology rabbitmq.RoutingTopology) {
	ofDelayQueues(t)
	written := nservicebus.Comparison{Table: writtenAsTheirs(topology)}
	t.Cleanup(func() { written.Used(t) })
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		all := recordings(t)
		transport := s.provisioned(t, rabbitmq.Config{Topology: topology, UnverifiedDeliveryLimit: true}, "Interop.Go", "Interop.Net", "error", "audit")
		if err := transport.Subscribe(t.Context(), "Interop.Go", "Interop.NetHappened"); err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("Interop.Net", transport, core.Config{
			AuditQueue: "audit", Logger: slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{
				ErrorQueue: "error",
				Immediate:  core.Immediate{NumberOfRetries: 1},
				Delayed:    core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, pingNetType, func(_ context.Context, m *core.Message, body note) error {
			return m.Reply(pongFromNetType.Of(note{"reply to " + body.Text, body.N}))
		})
		core.Handle(ep, failInNetType, func(_ context.Context, _ *core.Message, body note) error {
			return fmt.Errorf("this always fails in .NET: %s", body.Text)
		})
		runs(t, ep)
		ch := s.channel(t)
		for _, typeName := range []string{"Interop.PingNet", "Interop.FailInNet"} {
			if err := ch.PublishWithContext(t.Context(), "Interop.Net", "", true, false, all[typeName].request()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(
			ep.Send(t.Context(), "Interop.Go", pingGoType.Of(note{"from .NET: grüße \u2028 \"quoted\"", 1})),
			ep.Send(t.Context(), "Interop.Go", failInGoType.Of(note{"fail", 2})),
			ep.Publish(t.Context(), netHappenedEvent.Of(note{"published in .NET", 3})),
			ep.Send(t.Context(), "Interop.Go", delayedToGoType.Of(note{time.Now().String(), 5}).With(core.SendOptions{Delay: 5 * time.Second})),
		); err != nil {
			t.Fatal(err)
		}
		situations := map[string]string{
			"Interop.PongFromNet": "reply", "Interop.PingGo": "send", "Interop.FailInGo": "send", "Interop.NetHappened": "publish",
			"Interop.DelayedToGo": "delay", "Interop.FailInNet": "moved", "Interop.PingNet": "audited",
		}
		came := map[string]*amqp.Delivery{}
		awaitTrue(t, "all messages are written", func() bool {
			for _, queue := range []string{"Interop.Go", "error", "audit"} {
				d, ok, err := ch.Get(queue, true)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					came[d.Type] = &d
				}
			}
			return len(came) == len(all)
		})
		for name, theirs := range all {
			ours := came[name]
			if ours == nil {
				t.Errorf("%s is not among %v", name, slices.Collect(maps.Keys(came)))
				continue
			}
			written.Compare(t, situations[name], theirs.fields(), fieldsOf(ours))
			var our, their note
			if err := errors.Join(json.Unmarshal(ours.Body, &our), json.Unmarshal([]byte(theirs.Payload), &their)); err != nil {
				t.Fatal(err)
			}
			if our != their && name != "Interop.DelayedToGo" {
				t.Errorf("%s: the body is %+v, NServiceBus wrote %+v", name, our, their)
			}
		}
	})
}
