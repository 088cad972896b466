package nservicebus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Message is a message as NServiceBus writes it for a transport: headers, body, and other
// fields of the transport.
type Message struct {
	Queue      string
	Headers    map[string]string
	Properties map[string]string
	Body       string
}

// Fields returns the fields that Compare compares.
func (m *Message) Fields() map[string]string {
	fields := map[string]string{"body": m.Body}
	for key, value := range m.Headers {
		fields["header "+key] = value
	}
	for key, value := range m.Properties {
		fields["property "+key] = value
	}
	return fields
}

// Messages reads a file with one message of each type, sent by the endpoints Interop.Net, of
// NServiceBus, and Interop.Go. The message in the queue error failed in Interop.Net, the
// message in the queue audit was handled there.
func Messages(t testing.TB, file string) map[string]*Message {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []*Message
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*Message{}
	for _, m := range list {
		all[m.Type()] = m
	}
	if len(all) != 7 {
		t.Fatalf("%s has messages of %d types, want 7", file, len(all))
	}
	return all
}

// Type returns the type of the message, without its assembly.
func (m *Message) Type() string {
	name, _, _ := strings.Cut(m.Headers[headers.MessageTypes], ",")
	return name
}

// request returns the original of a message in the error or audit queue: without the headers
// that NServiceBus adds.
func (m *Message) request() *Message {
	r := *m
	r.Headers = map[string]string{}
next:
	for key, value := range m.Headers {
		switch key {
		case headers.FailedQ, headers.TimeOfFailure, headers.TimeSent, headers.DeliverAt, headers.RetriesTimestamp, "NServiceBus.Version":
			continue
		}
		for _, prefix := range []string{"NServiceBus.ExceptionInfo.", "NServiceBus.Processing", "$.diagnostics."} {
			if strings.HasPrefix(key, prefix) {
				continue next
			}
		}
		r.Headers[key] = value
	}
	return &r
}

// Note is the body of all messages.
type Note struct {
	Text string
	N    int
}

func (m *Message) note(t testing.TB) (n Note) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.Body), &n); err != nil {
		t.Fatalf("%s: the body %q: %v", m.Type(), m.Body, err)
	}
	return n
}

// rounds returns the number of rounds of attempts that a message gets, out of two: NServiceBus
// leaves the time of the last delayed retry in the headers of a message that it moves, and a
// day after that time neither NServiceBus nor Reprise makes delayed retries. (ServiceControl
// removes the header when it returns a message.)
func (m *Message) rounds() int {
	if at, err := headers.ParseTime(m.Headers[headers.RetriesTimestamp]); err == nil && time.Since(at) > 24*time.Hour {
		return 1
	}
	return 2
}

// Site is a broker with the queues Interop.Go, Interop.Net, error, audit and forwarded.
type Site struct {
	Transport core.Transport
	// Put sends a message to a queue as NServiceBus does.
	Put func(t testing.TB, queue string, m *Message)
	// Take waits for a message of a queue, and removes it.
	Take func(t testing.TB, queue string) *Message
}

const patience = 2 * time.Minute

func (s *Site) endpoint(t testing.TB, name string) *core.Endpoint {
	t.Helper()
	ep, err := core.New(name, s.Transport, core.Config{
		Transactions: core.TransactionReceiveOnly, AuditQueue: "audit", Logger: slog.New(slog.DiscardHandler), Concurrency: 2,
		Recoverability: core.Recoverability{
			ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func run(t testing.TB, ep *core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ep.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("the endpoint does not start: %v", err)
	case <-time.After(patience):
		t.Fatal("the endpoint is not ready")
	}
}

// Received sends each message to an endpoint that does all that endpoints do with messages: it
// handles, forwards and audits a message, or fails, retries it at once and later, and moves it
// to the error queue. The resulting messages are compared with the sent ones.
func (s *Site) Received(t *testing.T, all map[string]*Message, kept *Comparison) {
	t.Helper()
	type attempt struct {
		id    string
		fails bool
	}
	var mu sync.Mutex
	attempts := map[attempt]int{}
	fails := false
	ep := s.endpoint(t, "Interop.Go")
	for name, m := range all {
		want := m.note(t)
		core.Handle(ep, core.NewMessageType[Note](name), func(_ context.Context, in *core.Message, body Note) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[attempt{in.ID, fails}]++
			if body != want {
				t.Errorf("%s has the body %+v, want %+v", name, body, want)
			}
			for key, value := range m.Headers {
				if in.Headers.Get(key) != value {
					t.Errorf("%s has the header %s=%q, want %q", name, key, in.Headers.Get(key), value)
				}
			}
			if fails {
				return errors.New("no")
			}
			return in.Forward("forwarded")
		})
	}
	run(t, ep)
	putAll := func() {
		for _, m := range all {
			s.Put(t, "Interop.Go", m)
		}
	}
	take := func(queue string) map[string]*Message {
		taken := map[string]*Message{}
		for len(taken) < len(all) {
			m := s.Take(t, queue)
			taken[m.Type()] = m
		}
		return taken
	}
	putAll()
	results := map[string]map[string]*Message{"forwarded": take("forwarded"), "audited": take("audit")}
	mu.Lock()
	fails = true
	mu.Unlock()
	putAll()
	results["moved"] = take("error")
	for name, m := range all {
		for situation, in := range results {
			kept.Compare(t, situation, m.Fields(), in[name].Fields())
		}
		mu.Lock()
		id := m.Headers[headers.MessageID]
		if n := attempts[attempt{id, false}]; n != 1 {
			t.Errorf("%s was handled in %d attempts, want 1", name, n)
		}
		if n, want := attempts[attempt{id, true}], 2*m.rounds(); n != want {
			t.Errorf("%s failed in %d attempts, want %d", name, n, want)
		}
		mu.Unlock()
	}
}

// Written lets an endpoint do the same as Interop.Net, and compares the messages that both
// wrote. The queue Interop.Go is subscribed to Interop.NetHappened.
func (s *Site) Written(t *testing.T, all map[string]*Message, written *Comparison) {
	t.Helper()
	ep := s.endpoint(t, "Interop.Net")
	core.Handle(ep, pingNetType, func(_ context.Context, m *core.Message, body Note) error {
		return m.Reply(pongFromNetType.Of(Note{"reply to " + body.Text, body.N}))
	})
	core.Handle(ep, failInNetType, func(_ context.Context, _ *core.Message, body Note) error {
		return fmt.Errorf("this always fails in .NET: %s", body.Text)
	})
	run(t, ep)
	s.Put(t, "Interop.Net", all["Interop.PingNet"].request())
	s.Put(t, "Interop.Net", all["Interop.FailInNet"].request())
	if err := errors.Join(
		ep.Send(t.Context(), "Interop.Go", pingGoType.Of(Note{"from .NET: grüße \u2028 \"quoted\"", 1})),
		ep.Send(t.Context(), "Interop.Go", failInGoType.Of(Note{"fail", 2})),
		ep.Publish(t.Context(), netHappenedEvent.Of(Note{"published in .NET", 3})),
		ep.Send(t.Context(), "Interop.Go", delayedToGoType.Of(Note{time.Now().String(), 5}).With(core.SendOptions{Delay: time.Second})),
	); err != nil {
		t.Fatal(err)
	}
	situations := map[string]string{
		"Interop.PongFromNet": "reply", "Interop.PingGo": "send", "Interop.FailInGo": "send", "Interop.NetHappened": "publish",
		"Interop.DelayedToGo": "delay", "Interop.FailInNet": "moved", "Interop.PingNet": "audited",
	}
	came := map[string]*Message{}
	for _, m := range all {
		ours := s.Take(t, m.Queue)
		came[ours.Type()] = ours
	}
	for name, theirs := range all {
		ours := came[name]
		if ours == nil {
			t.Errorf("%s did not come", name)
			continue
		}
		written.Compare(t, situations[name], theirs.Fields(), ours.Fields())
		if our, their := ours.note(t), theirs.note(t); our != their && name != "Interop.DelayedToGo" {
			t.Errorf("%s: the body is %+v, NServiceBus wrote %+v", name, our, their)
		}
	}
}

// Kept are the differences between a message of NServiceBus and the same message after its way
// through an endpoint that does not change it, on every transport.
func Kept(more ...Allowed) []Allowed {
	table := []Allowed{
		{Name: "header NServiceBus.Retries.Timestamp", Kind: Missing, Situations: []string{"forwarded", "moved"}, Reason: "of retries that are over; the next receiver begins anew"},
		{Name: "header NServiceBus.ExceptionInfo.Data.*", Kind: Missing, Situations: []string{"moved"}, Reason: "of an earlier failure"},
		{Name: "header Reprise.Attempts", Kind: Added, Situations: []string{"moved"}, Reason: "the way of the message; ServiceControl shows headers that it does not know"},
		{Name: "header Reprise.FailureReason", Kind: Added, Situations: []string{"moved"}, Reason: "why it was given up, in one word"},
		{Name: "header Reprise.Cause", Kind: Added, Situations: []string{"moved"}, Reason: "the fingerprint of the failure"},
	}
	// A copy says where and when the message was processed, and why it failed, and replaces
	// the values of an earlier copy.
	for situation, names := range map[string][]string{
		"audited": {headers.ProcessingStarted, headers.ProcessingEnded, headers.ProcessingEndpoint, headers.ProcessingMachine, headers.HostID, headers.HostDisplayName},
		"moved": {
			headers.ProcessingEndpoint, headers.ProcessingMachine, headers.HostID, headers.HostDisplayName, headers.FailedQ, headers.TimeOfFailure,
			headers.ExceptionType, headers.ExceptionMessage, headers.ExceptionSource, headers.ExceptionStackTrace,
			headers.HandlerType, headers.HandlerStartTime, headers.HandlerFailureTime, headers.HandledMessageType,
		},
	} {
		for _, name := range names {
			table = append(table,
				Allowed{Name: "header " + name, Kind: Added, Situations: []string{situation}, Reason: "NServiceBus adds it to such a copy, too"},
				Allowed{
					Name: "header " + name, Kind: Differs, Situations: []string{situation}, Reason: "of an earlier failure or audit",
					Optional: name == headers.ProcessingMachine || name == headers.HandledMessageType, // the values may be equal
				})
		}
	}
	return append(table, more...)
}

// Written are the differences between messages written by an endpoint of NServiceBus and those
// written by an endpoint of Reprise in the same situation, on every transport.
func Written(more ...Allowed) []Allowed {
	moment := func(name string) Allowed {
		return Allowed{Name: "header " + name, Kind: Differs, Form: Time, Reason: "another moment"}
	}
	value := func(name string, form func(Allowed) Allowed, reason string) Allowed {
		return form(Allowed{Name: "header " + name, Kind: Differs, Reason: reason})
	}
	id := func(a Allowed) Allowed { a.Form = ID; return a }
	machine := func(a Allowed) Allowed { a.Optional = true; return a }
	free := func(a Allowed) Allowed { return a }
	missing := func(name, reason string, situations ...string) Allowed {
		return Allowed{Name: "header " + name, Kind: Missing, Situations: situations, Reason: reason}
	}
	return append(more,
		moment(headers.TimeSent), moment(headers.DeliverAt), moment(headers.TimeOfFailure), moment(headers.ProcessingStarted), moment(headers.ProcessingEnded),
		moment(headers.HandlerStartTime), moment(headers.HandlerFailureTime),
		value(headers.MessageID, id, "another message"), value(headers.ConversationID, id, "another conversation"), value(headers.CorrelationID, id, "another message"),
		value(headers.HostID, id, "another machine"), value(headers.HostDisplayName, free, "another machine"),
		value(headers.OriginatingMachine, machine, "another machine"), value(headers.ProcessingMachine, machine, "another machine"),
		Allowed{Name: "body", Kind: Differs, Situations: []string{"send", "delay"}, Reason: "the same JSON: .NET escapes more characters than it must; the delayed message says when it was sent"},
		value(headers.MessageTypes, free, "without the assembly, which NServiceBus does not need to find the type"),
		missing("NServiceBus.Version", "of NServiceBus; it is for people"),
		missing("$.diagnostics.originating.hostid", "ServiceControl falls back to the name of the machine"),
		missing("NServiceBus.OpenTelemetry.StartNewTrace", "package otel writes it, where it is used"),
		missing(headers.TimeSent, "the request had none, and a copy of Reprise claims no other sender's time", "moved", "audited"),
		missing(headers.DeliverAt, "of the delayed retry; Reprise's retries leave the sender's, and the request had none", "moved"),
		missing(headers.RetriesTimestamp, "NServiceBus forgets to remove it, so that a message that is returned after a day gets no delayed retries", "moved"),
		missing("NServiceBus.ExceptionInfo.Data.Handler canceled", "Reprise moves no message whose handler was cancelled by a shutdown", "moved"),
		missing("NServiceBus.ExceptionInfo.Data.Pipeline canceled", "Reprise moves no message whose handler was cancelled by a shutdown", "moved"),
		missing("NServiceBus.ExceptionInfo.Data.Message ID", "the header NServiceBus.MessageId says it", "moved"),
		value(headers.HandlerType, free, "a function of Go"),
		value(headers.ExceptionType, free, "a type of Go"), value(headers.ExceptionSource, free, "a package of Go"), value(headers.ExceptionStackTrace, free, "the chain of Go's errors"),
		Allowed{Name: "header Reprise.Attempts", Kind: Added, Situations: []string{"moved"}, Reason: "the way of the message; ServiceControl shows headers that it does not know"},
		Allowed{Name: "header Reprise.FailureReason", Kind: Added, Situations: []string{"moved"}, Reason: "why it was given up, in one word"},
		Allowed{Name: "header Reprise.Cause", Kind: Added, Situations: []string{"moved"}, Reason: "the fingerprint of the failure"},
		missing("$.diagnostics.license.expired", "of the licence of NServiceBus", "audited"),
	)
}
