package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type ping struct{ N int }

func TestReply_AnswersARequest(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		client, server := b.endpoint("client", core.Config{}), b.endpoint("server", core.Config{})
		core.Handle(server, "ping", func(_ context.Context, m *core.TypedMessage[ping]) error {
			return errors.Join(m.Reply("pong", ping{m.Body.N + 1}), m.Send("client", "note", ping{}))
		})
		var pongs record[*core.TypedMessage[ping]]
		core.Handle(client, "pong", func(_ context.Context, m *core.TypedMessage[ping]) error {
			pongs.add(m)
			return nil
		})
		var notes record[*core.Message]
		b.handle(client, "note", func(_ context.Context, m *core.Message) error { notes.add(m); return nil })
		b.run(client)
		b.run(server)
		options := core.SendOptions{ID: "request", Headers: map[string]string{"Tenant": "7"}}
		if err := client.Send(b.Context(), "server", "ping", ping{1}, options); err != nil {
			b.Fatal(err)
		}
		b.holds("server", 0)
		b.holds("client", 0)
		if pongs.len() != 1 || notes.len() != 1 {
			b.Fatalf("%d replies, %d notes", pongs.len(), notes.len())
		}
		pong := pongs.all()[0]
		equal(b, "body", pong.Body, ping{2})
		for key, want := range map[string]string{
			core.HeaderConversationID: "request", core.HeaderCorrelationID: "request", core.HeaderRelatedTo: "request",
			core.HeaderMessageIntent: core.IntentReply, core.HeaderMessageTypes: "pong", core.HeaderMessageID: pong.ID,
			core.HeaderReplyToAddress: "server", core.HeaderOriginatingEndpoint: "server", core.HeaderContentType: "application/json",
			"Tenant": "",
		} {
			equal(b, key, pong.Headers.Get(key), want)
		}
		if _, err := core.ParseTime(pong.Headers.Get(core.HeaderTimeSent)); err != nil {
			b.Error(err)
		}
		equal(b, "intent of a send", notes.all()[0].Headers.Get(core.HeaderMessageIntent), core.IntentSend)
	})
}

// A saga of NServiceBus names itself in a request, and is found by a reply that names it. What else
// the handler sends is not for it.
func TestReply_NamesTheSagaThatAsked(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		saga, server := b.endpoint("saga", core.Config{}), b.endpoint("server", core.Config{})
		core.Handle(server, "ping", func(_ context.Context, m *core.TypedMessage[ping]) error {
			return errors.Join(m.Reply("pong", ping{}), m.Send("saga", "note", ping{}))
		})
		headers := map[string]core.Headers{}
		var mu sync.Mutex
		for _, name := range []string{"pong", "note"} {
			b.handle(saga, name, func(_ context.Context, m *core.Message) error {
				mu.Lock()
				defer mu.Unlock()
				headers[name] = m.Headers
				return nil
			})
		}
		b.run(saga)
		b.run(server)
		const id, of = "0b5d7a3e-4a5b-4c0e-9d3c-b50a00ee32fa", "Shop.OrderSaga, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
		if err := saga.Send(b.Context(), "server", "ping", ping{}, core.SendOptions{Headers: map[string]string{
			"NServiceBus.OriginatingSagaId": id, "NServiceBus.OriginatingSagaType": of,
		}}); err != nil {
			b.Fatal(err)
		}
		b.holds("server", 0)
		b.holds("saga", 0)
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string][2]string{"pong": {id, of}, "note": {}} {
			equal(b, name, [2]string{headers[name].Get("NServiceBus.SagaId"), headers[name].Get("NServiceBus.SagaType")}, want)
		}
		if _, has := headers["note"].Lookup("NServiceBus.SagaId"); has {
			b.Error("what is no reply has an empty header")
		}
	})
}

func TestReply_WithoutAnAddress(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if err := m.Reply("pong", "x"); !errors.Is(err, core.ErrNoReplyAddress) {
				b.Errorf("Reply: %v", err)
			}
			return nil
		})
		b.put("m1")
		b.holds("error", 0)
	})
}

func TestPublish_ReachesEverySubscriberOnce(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var got record[string]
		for _, name := range []string{"billing", "billing", "stock", "deaf"} { // billing has two instances
			ep := b.endpoint(name, core.Config{})
			topic := "order.placed"
			if name == "deaf" {
				topic = "another"
			}
			core.HandleEvent(ep, topic, func(_ context.Context, m *core.TypedMessage[ping]) error {
				got.add(fmt.Sprint(name, " ", m.Body.N, " ", m.Headers.Get(core.HeaderMessageIntent)))
				if m.Attempt == 1 && name == "stock" && b.mode != core.TransactionNone {
					return errBoom // retried for its own queue alone
				}
				return nil
			})
			b.run(ep)
		}
		publisher := b.endpoint("publisher", core.Config{SendOnly: true})
		if err := publisher.Publish(b.Context(), "order.placed", ping{1}); err != nil {
			b.Fatal(err)
		}
		if err := publisher.Publish(b.Context(), "nobody.listens", ping{1}); err != nil {
			b.Error(err)
		}
		b.holds("billing", 0)
		b.holds("stock", 0)
		want := []string{"billing 1 Publish", "stock 1 Publish"}
		if b.mode != core.TransactionNone {
			want = append(want, "stock 1 Publish")
		}
		all := got.all()
		slices.Sort(all)
		if !slices.Equal(all, want) {
			b.Errorf("handled %v, want %v", all, want)
		}
	})
}

func TestHandlers_RunInOrderAndAllAgainOnRetry(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		var got record[string]
		for _, name := range []string{"first", "second", "third"} {
			b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				got.add(fmt.Sprint(name, " ", m.Attempt))
				body := m.RawBody()
				equal(b, "body of "+name, string(body), "body of m1")
				clear(body)
				if name == "second" && m.Attempt == 1 {
					return errBoom
				}
				return m.Send("shipping", name, "x")
			})
		}
		b.run(ep)
		b.put("m1")
		if all := got.all(); !slices.Equal(all, []string{"first 1", "second 1", "first 2", "second 2", "third 2"}) {
			b.Errorf("ran %v", all)
		}
		if types := b.sentTypes("shipping"); !slices.Equal(types, []string{"first", "second", "third"}) {
			b.Errorf("sent %v", types)
		}
	})
}

func TestMessageType_ForeignNotations(t *testing.T) {
	bubble(t, func(b *bed) {
		var got record[string]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			got.add(m.Type)
			return nil
		})
		for _, types := range []string{"order", "special.order;order", "Special, Assembly, Version=1.0.0.0;order, Assembly", " order "} {
			m := order("m")
			m.Headers.Set(core.HeaderMessageTypes, types)
			b.send(m)
		}
		b.holds("orders", 0)
		if all := got.all(); !slices.Equal(all, []string{"order", "order", "order", "order"}) {
			b.Errorf("handled as %v", all)
		}
	})
}

func TestMessageType_UnknownOneIsAFailure(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 2}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}}},
			func(context.Context, *core.Message) error { return nil })
		unknown := order("m1")
		unknown.Headers.Set(core.HeaderMessageTypes, "unknown;stranger")
		b.send(unknown)
		time.Sleep(2 * time.Second)
		failed := b.only("error")
		if text := failed.Headers.Get(core.HeaderExceptionMessage); !containsAll(text, core.ErrNoHandler.Error(), "unknown") {
			b.Errorf("error text is %q", text)
		}
		equal(b, "abandoned", b.broker.settledAs("Abandon", "m1"), 4)
	})
}

func TestAudit_CopiesSuccesses(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		started := time.Now()
		b.orders(core.Config{AuditQueue: "audit", Instance: "i1", Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Second)
			m.Headers.Set("Sender", "overwritten")
			switch m.ID {
			case "bad":
				return errBoom
			case "discarded":
				return core.Discard("x")
			}
			return m.Send("shipping", "ship", "x")
		})
		b.put("bad", "discarded", "good")
		time.Sleep(2 * time.Second)
		audit := b.only("audit")
		equal(b, "id", audit.ID, "good")
		equal(b, "body", string(audit.Body), "body of good")
		equal(b, "sender's header", audit.Headers.Get("Sender"), "unit \u00e9")
		for key, want := range map[string]string{
			core.HeaderProcessingStarted: core.FormatTime(started), core.HeaderProcessingEnded: core.FormatTime(started.Add(time.Second)),
			core.HeaderProcessingEndpoint: "orders", core.HeaderHostDisplayName: "i1", core.HeaderFailedQ: "",
		} {
			equal(b, key, audit.Headers.Get(key), want)
		}
		b.holds("shipping", 1)
		b.holds("error", 1)
	})
}

func TestAcknowledgement_OfAnOperatorsRetry(t *testing.T) {
	for name, auditQueue := range map[string]string{"with audit": "audit", "without": ""} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				now := time.Now()
				b.orders(core.Config{AuditQueue: auditQueue, Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(_ context.Context, m *core.Message) error {
					if m.ID == "fails again" {
						return errBoom
					}
					return nil
				})
				for _, id := range []string{"retried", "fails again", "no queue"} {
					m := order(id)
					m.Headers.Set(core.HeaderRetryUniqueMessageID, "unique "+id)
					if id != "no queue" {
						m.Headers.Set(core.HeaderRetryAckQueue, "shipping")
					}
					b.send(m)
				}
				ack := b.only("shipping")
				equal(b, "unique id", ack.Headers.Get(core.HeaderRetryUniqueMessageID), "unique retried")
				equal(b, "time", ack.Headers.Get(core.HeaderRetrySuccessful), core.FormatTime(now))
				equal(b, "control message", ack.Headers.Get(core.HeaderControlMessage), "True")
				equal(b, "body", len(ack.Body), 0)
				if auditQueue == "" {
					return
				}
				for _, m := range b.queue(auditQueue) {
					want := "true"
					if m.ID == "no queue" {
						want = ""
					}
					equal(b, "acknowledgement sent for "+m.ID, m.Headers.Get(core.HeaderRetryAckSent), want)
				}
				b.holds(auditQueue, 2)
			})
		})
	}
}

func TestInvoke_RunsHandlersInProcess(t *testing.T) {
	bubble(t, func(b *bed) {
		type key struct{}
		var got record[string]
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				got.add("middleware")
				return next(ctx, m)
			}
		}}})
		core.Handle(ep, "ping", func(ctx context.Context, m *core.TypedMessage[ping]) error {
			got.add(fmt.Sprint(m.Body.N, m.Attempt, ctx.Value(key{})))
			if err := m.Send("shipping", "ship", "x"); err != nil {
				b.Error(err)
			}
			switch m.Body.N {
			case 2:
				return errBoom
			case 3:
				panic("boom")
			}
			return nil
		})
		ctx := context.WithValue(b.Context(), key{}, "value")
		if err := ep.Invoke(ctx, "ping", ping{1}); err != nil {
			b.Error(err)
		}
		if err := ep.Invoke(ctx, "ping", ping{2}); err != errBoom { //nolint:errorlint // the error itself, not one that wraps it
			b.Errorf("Invoke returned %v, want the handler's error itself", err)
		}
		var panicked *core.PanicError
		if err := ep.Invoke(ctx, "ping", ping{3}); !errors.As(err, &panicked) {
			b.Errorf("Invoke returned %v, want a PanicError", err)
		}
		if err := ep.Invoke(ctx, "unknown", ping{}); !errors.Is(err, core.ErrNoHandler) {
			b.Errorf("Invoke returned %v, want ErrNoHandler", err)
		}
		if err := ep.Invoke(ctx, "ping", make(chan int)); err == nil {
			b.Error("a body that cannot be encoded was accepted")
		}
		b.holds("shipping", 1)
		b.holds("orders", 0)
		if all := strings.Join(got.all(), ","); all != "middleware,1 1value,middleware,2 1value,middleware,3 1value,middleware" {
			b.Errorf("ran %s", all)
		}
	})
}

func TestInvoke_RunsObservers(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen calls
		ep := b.endpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			equal(b, "value of the observer", ctx.Value(callKey{}), any("traced"))
			m.ID = "m1"
			if string(m.RawBody()) == "bad" {
				return errBoom
			}
			return m.Send("shipping", "ship", "x")
		})
		if err := ep.Invoke(b.Context(), "order", []byte("good")); err != nil {
			b.Error(err)
		}
		if err := ep.Invoke(b.Context(), "order", []byte("bad")); !errors.Is(err, errBoom) {
			b.Errorf("Invoke returned %v", err)
		}
		all := seen.all()
		for i, start := range []int{0, 4} {
			if !strings.HasPrefix(all[start], "handle ") || !strings.HasSuffix(all[start], " 1 orders") {
				b.Errorf("call %d began with %q", i, all[start])
			}
		}
		all = slices.Delete(slices.Delete(all, 4, 5), 0, 1)
		want := []string{"handled <nil> 0s traced", "send shipping traced", "sent <nil>", "handled boom 0s traced"}
		if !slices.Equal(all, want) { // the message was not received: Succeeded is not called
			b.Errorf("observed %q, want %q", all, want)
		}
	})
}

func TestDelayedSend_HasItsDueTime(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var seen record[string]
		began := time.Now()
		due := core.FormatTime(began.Add(time.Minute))
		ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1}}})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			seen.add(m.Headers.Get(core.HeaderDeliverAt))
			if m.DelayedRetries == 0 {
				return errBoom
			}
			return m.Send("shipping", "at once", "x")
		})
		b.run(ep)
		if err := ep.Send(b.Context(), "orders", "order", []byte("x"), core.SendOptions{Delay: time.Minute}); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := seen.all(); !slices.Equal(got, []string{due, due}) {
			b.Errorf("handlers saw %q, want twice %q", got, due)
		}
		if value, ok := b.only("shipping").Headers.Lookup(core.HeaderDeliverAt); ok {
			b.Errorf("a message without a delay is due at %q", value)
		}
	})
}

func TestDelayedSend_OfAHandlerArrivesWhenDue(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", "later", "x", core.SendOptions{Delay: time.Minute})
		})
		b.put("m1")
		time.Sleep(time.Minute - time.Nanosecond)
		equal(b, "before it is due", b.depth("shipping").Ready, 0)
		time.Sleep(time.Nanosecond)
		equal(b, "when it is due", b.depth("shipping").Ready, 1)
	})
}

func TestTransport_SharedByEndpoints(t *testing.T) {
	inModesOn(t, inmemory.Config{}, everyMode, func(b *bed) {
		const endpoints = 20
		var path record[string]
		for i := range endpoints {
			name := fmt.Sprint("station ", i)
			ep := b.endpoint(name, core.Config{Concurrency: 2})
			b.handle(ep, "letter", func(_ context.Context, m *core.Message) error {
				path.add(name)
				if i+1 < endpoints {
					return m.Send(fmt.Sprint("station ", i+1), "letter", m.RawBody())
				}
				equal(b, "conversation at the end", m.Headers.Get(core.HeaderConversationID), "letter")
				return nil
			})
			b.run(ep)
		}
		sender := b.endpoint("sender", core.Config{SendOnly: true})
		if err := sender.Send(b.Context(), "station 0", "letter", []byte("x"), core.SendOptions{ID: "letter"}); err != nil {
			b.Fatal(err)
		}
		b.holds("station 19", 0)
		equal(b, "stations passed", path.len(), endpoints)
	})
}
