// Package cloudevents tests the middleware of the same name on the broker of an adapter, with
// messages as other programs write them there.
package cloudevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/cloudevents"
)

// Message is a message at the broker, with all headers that it has there.
type Message struct {
	ContentType, Body string
	Headers           map[string]string
	Native            any // as the broker has it, in a form that only the site knows
}

// Site is a transport with the queues "shop", "error" and "answers". Put sends a message
// with "answers" as its reply address, or one that Take returned as it was. Take waits for a
// message.
type Site struct {
	Transport core.Transport
	Put       func(t testing.TB, queue string, m Message)
	Take      func(t testing.TB, queue string) Message
}

// Data is the data of all events.
const Data = `{"Number":7}`

type order struct{ Number int }

var (
	placed   = core.NewMessageType[order]("com.example.order.placed")
	accepted = core.NewMessageType[order]("com.example.order.accepted")
)

// attributes are those of all events.
var attributes = map[string]string{
	"specversion": "1.0", "id": "1234", "source": "/mycontext", "type": "com.example.order.placed", "time": "2018-04-05T17:31:00Z", "comexample": "5",
}

// Binary returns an event in the binary mode, with a prefix before the names of attributes.
func Binary(prefix string) Message {
	m := Message{Body: Data, ContentType: "application/json", Headers: map[string]string{}}
	for name, value := range attributes {
		m.Headers[prefix+name] = value
	}
	return m
}

// Structured returns an event in the structured mode.
func Structured(contentType string) Message {
	members := map[string]any{"data": json.RawMessage(Data)}
	for name, value := range attributes {
		members[name] = value
	}
	body, err := json.Marshal(members)
	if err != nil {
		panic(err) // they are constant
	}
	return Message{Body: string(body), ContentType: contentType, Headers: map[string]string{}}
}

// Run puts an event into the queue of an endpoint, whose handler fails. A tool returns it from
// the error queue as it finds it there, and the handler replies.
func (s *Site) Run(t *testing.T, m Message) {
	events, err := cloudevents.New(cloudevents.Config{Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := core.New("shop", s.Transport, core.Config{
		MessageType: events.MessageType, MessageID: events.MessageID,
		Middleware: []core.Middleware{events}, SendMiddleware: []core.SendMiddleware{events.Send},
		Logger:         slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	fails := true
	core.Handle(ep, placed, func(_ context.Context, received *core.Message, body order) error {
		for name, value := range attributes {
			if got := cloudevents.Attribute(received, name); got != value {
				t.Errorf("the attribute %s is %q, want %q", name, got, value)
			}
		}
		if body.Number != 7 || string(received.RawBody()) != Data {
			t.Errorf("the body is %s", received.RawBody())
		}
		mu.Lock()
		defer mu.Unlock()
		if fails {
			return errors.New("no")
		}
		return received.Reply(accepted.Of(body))
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-ep.Ready()

	s.Put(t, "shop", m)
	failed := s.Take(t, "error")
	if failed.Body != m.Body {
		t.Errorf("the body in the error queue is %q, want %q", failed.Body, m.Body)
	}
	if failed.ContentType != m.ContentType && m.ContentType != "" {
		t.Errorf("the content type in the error queue is %q, want %q", failed.ContentType, m.ContentType)
	}
	for key, value := range m.Headers {
		if failed.Headers[key] != value {
			t.Errorf("the header %s in the error queue is %q, want %q", key, failed.Headers[key], value)
		}
	}
	mu.Lock()
	fails = false
	mu.Unlock()
	s.Put(t, "shop", failed)
	reply := s.Take(t, "answers")
	inBody := strings.HasPrefix(reply.Body, "{") && strings.Contains(reply.Body, `"source":"/shop"`) && reply.ContentType == "application/cloudevents+json"
	inHeaders := reply.Headers["cloudEvents:source"] == "/shop" && reply.Headers["cloudEvents:type"] == "com.example.order.accepted" && reply.Body == Data
	if isStructured := len(m.Headers) == 0; inBody != isStructured || inHeaders == isStructured {
		t.Errorf("the reply %s has the headers %v", reply.Body, reply.Headers)
	}
}
