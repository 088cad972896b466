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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type ping struct{ N int }

func TestReply_AnswersARequest(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		client, server := fx.newEndpoint("client", core.Config{}), fx.newEndpoint("server", core.Config{})
		core.Handle(server, pingType, func(_ context.Context, m *core.Message, body ping) error {
			return errors.Join(m.Reply(pongType.Of(ping{body.N + 1})), m.Send("client", noteType.Of(ping{})))
		})
		type answer struct {
			*core.Message
			body ping
		}
		var pongs recorder[answer]
		core.Handle(client, pongType, func(_ context.Context, m *core.Message, body ping) error {
			pongs.add(answer{m, body})
			return nil
		})
		var notes recorder[*core.Message]
		fx.handle(client, "note", func(_ context.Context, m *core.Message) error { notes.add(m); return nil })
		fx.run(client)
		fx.run(server)
		options := core.SendOptions{ID: "request", Headers: map[string]string{"Tenant": "7"}}
		if err := client.Send(fx.Context(), "server", pingType.Of(ping{1}).With(options)); err != nil {
			fx.Fatal(err)
		}
		fx.wantDepth("server", 0)
		fx.wantDepth("client", 0)
		if pongs.len() != 1 || notes.len() != 1 {
			fx.Fatalf("%d replies, %d notes", pongs.len(), notes.len())
		}
		pong := pongs.all()[0]
		equal(fx, "body", pong.body, ping{2})
		for key, want := range map[string]string{
			headers.ConversationID: "request", headers.CorrelationID: "request", headers.RelatedTo: "request",
			headers.MessageIntent: headers.IntentReply, headers.MessageTypes: "pong", headers.MessageID: pong.ID,
			headers.ReplyToAddress: "server", headers.OriginatingEndpoint: "server", headers.ContentType: "application/json",
			"Tenant": "",
		} {
			equal(fx, key, pong.Headers.Get(key), want)
		}
		if _, err := headers.ParseTime(pong.Headers.Get(headers.TimeSent)); err != nil {
			fx.Error(err)
		}
		equal(fx, "intent of a send", notes.all()[0].Headers.Get(headers.MessageIntent), headers.IntentSend)
	})
}

// A saga of NServiceBus names itself in a request, and is found by a reply that names it. What else
// the handler sends is not for it.
// A reply has the group that the request names, unless the handler chooses one; a name that is
// longer than the longest id of a session, which only a sender has written, counts for nothing.
func TestReply_HasTheGroupThatTheRequestNames(t *testing.T) {
	longest := strings.Repeat("x", 128)
	for named, want := range map[string]string{"": "", "s1": "s1", longest: longest, longest + "x": ""} {
		inModes(t, allModes, func(fx *fixture) {
			fx.provision("client")
			fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
				own := pongType.Of(ping{}).With(core.SendOptions{ID: "own", GroupKey: "own"})
				return errors.Join(m.Reply(pongType.Of(ping{})), m.Reply(own), m.Send("client", noteType.Of(ping{})))
			})
			request := order("m1")
			request.Headers.Set(headers.ReplyToAddress, "client")
			request.Headers.Set(headers.ReplyToGroup, named)
			fx.send(request)
			fx.wantDepth("orders", 0)
			var groups []string
			for _, in := range fx.messages("client") {
				groups = append(groups, in.GroupKey)
			}
			if want := []string{want, "own", ""}; !slices.Equal(groups, want) {
				fx.Errorf("named %q: groups of two replies and a note: %q, want %q", named, groups, want)
			}
		})
	}
}

func TestReply_NamesTheSagaThatAsked(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		saga, server := fx.newEndpoint("saga", core.Config{}), fx.newEndpoint("server", core.Config{})
		core.Handle(server, pingType, func(_ context.Context, m *core.Message, _ ping) error {
			return errors.Join(m.Reply(pongType.Of(ping{})), m.Send("saga", noteType.Of(ping{})))
		})
		headers := map[string]core.Headers{}
		var mu sync.Mutex
		for _, name := range []string{"pong", "note"} {
			fx.handle(saga, name, func(_ context.Context, m *core.Message) error {
				mu.Lock()
				defer mu.Unlock()
				headers[name] = m.Headers
				return nil
			})
		}
		fx.run(saga)
		fx.run(server)
		const id, sagaType = "0b5d7a3e-4a5b-4c0e-9d3c-b50a00ee32fa", "Shop.OrderSaga, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
		if err := saga.Send(fx.Context(), "server", pingType.Of(ping{}).With(core.SendOptions{Headers: map[string]string{
			"NServiceBus.OriginatingSagaId": id, "NServiceBus.OriginatingSagaType": sagaType,
		}})); err != nil {
			fx.Fatal(err)
		}
		fx.wantDepth("server", 0)
		fx.wantDepth("saga", 0)
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string][2]string{"pong": {id, sagaType}, "note": {}} {
			equal(fx, name, [2]string{headers[name].Get("NServiceBus.SagaId"), headers[name].Get("NServiceBus.SagaType")}, want)
		}
		if _, has := headers["note"].Lookup("NServiceBus.SagaId"); has {
			fx.Error("a message that is no reply has an empty header")
		}
	})
}

func TestReply_WithoutAnAddress(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if err := m.Reply(pongStringType.Of("x")); !errors.Is(err, core.ErrNoReplyAddress) {
				fx.Errorf("Reply: %v", err)
			}
			return nil
		})
		fx.enqueue("m1")
		fx.wantDepth("error", 0)
	})
}

func TestPublish_ReachesEverySubscriberOnce(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var got recorder[string]
		for _, name := range []string{"billing", "billing", "stock", "deaf"} { // billing has two instances
			ep := fx.newEndpoint(name, core.Config{})
			topic := "order.placed"
			if name == "deaf" {
				topic = "another"
			}
			core.HandleEvent(ep, core.NewEvent[ping](topic), func(_ context.Context, m *core.Message, body ping) error {
				got.add(fmt.Sprint(name, " ", body.N, " ", m.Headers.Get(headers.MessageIntent)))
				if m.Attempt == 1 && name == "stock" && fx.mode != core.TransactionNone {
					return errBoom // retried for its own queue alone
				}
				return nil
			})
			fx.run(ep)
		}
		publisher := fx.newEndpoint("publisher", core.Config{SendOnly: true})
		if err := publisher.Publish(fx.Context(), placedPingType.Of(ping{1})); err != nil {
			fx.Fatal(err)
		}
		if err := publisher.Publish(fx.Context(), listensEvent.Of(ping{1})); err != nil {
			fx.Error(err)
		}
		fx.wantDepth("billing", 0)
		fx.wantDepth("stock", 0)
		want := []string{"billing 1 Publish", "stock 1 Publish"}
		if fx.mode != core.TransactionNone {
			want = append(want, "stock 1 Publish")
		}
		all := got.all()
		slices.Sort(all)
		if !slices.Equal(all, want) {
			fx.Errorf("handled %v, want %v", all, want)
		}
	})
}

func TestHandlers_RunInOrderAndAllAgainOnRetry(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		var got recorder[string]
		for _, name := range []string{"first", "second", "third"} {
			fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				got.add(fmt.Sprint(name, " ", m.Attempt))
				body := m.RawBody()
				equal(fx, "body of "+name, string(body), "body of m1")
				clear(body)
				if name == "second" && m.Attempt == 1 {
					return errBoom
				}
				return m.Send("shipping", core.NewMessageType[string](name).Of("x"))
			})
		}
		fx.run(ep)
		fx.enqueue("m1")
		if all := got.all(); !slices.Equal(all, []string{"first 1", "second 1", "first 2", "second 2", "third 2"}) {
			fx.Errorf("ran %v", all)
		}
		if types := fx.sentTypes("shipping"); !slices.Equal(types, []string{"first", "second", "third"}) {
			fx.Errorf("sent %v", types)
		}
	})
}

func TestMessageType_ForeignNotations(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var got recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			got.add(m.Type)
			return nil
		})
		for _, types := range []string{"order", "special.order;order", "Special, Assembly, Version=1.0.0.0;order, Assembly", " order "} {
			m := order("m")
			m.Headers.Set(headers.MessageTypes, types)
			fx.send(m)
		}
		fx.wantDepth("orders", 0)
		if all := got.all(); !slices.Equal(all, []string{"order", "order", "order", "order"}) {
			fx.Errorf("handled as %v", all)
		}
	})
}

func TestMessageType_UnknownOneIsAFailure(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}}},
			func(context.Context, *core.Message) error { return nil })
		unknown := order("m1")
		unknown.Headers.Set(headers.MessageTypes, "unknown;stranger")
		fx.send(unknown)
		time.Sleep(2 * time.Second)
		failed := fx.onlyMessage("error")
		if text := failed.Headers.Get(headers.ExceptionMessage); !containsAll(text, core.ErrNoHandler.Error(), "unknown") {
			fx.Errorf("error text is %q", text)
		}
		equal(fx, "abandoned", fx.broker.countSettled("Abandon", "m1"), 4)
	})
}

func TestAudit_CopiesSuccesses(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		started := time.Now()
		fx.runOrders(core.Config{AuditQueue: "audit", Instance: "i1", Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Second)
			m.Headers.Set("Sender", "overwritten")
			switch m.ID {
			case "bad":
				return errBoom
			case "discarded":
				return core.Discard(errors.New("x"))
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("bad", "discarded", "good")
		time.Sleep(2 * time.Second)
		audit := fx.onlyMessage("audit")
		equal(fx, "id", audit.ID, "good")
		equal(fx, "body", string(audit.Body), "body of good")
		equal(fx, "sender's header", audit.Headers.Get("Sender"), "unit \u00e9")
		for key, want := range map[string]string{
			headers.ProcessingStarted: headers.FormatTime(started), headers.ProcessingEnded: headers.FormatTime(started.Add(time.Second)),
			headers.ProcessingEndpoint: "orders", headers.HostDisplayName: "i1", headers.FailedQ: "",
		} {
			equal(fx, key, audit.Headers.Get(key), want)
		}
		fx.wantDepth("shipping", 1)
		fx.wantDepth("error", 1)
	})
}

func TestAcknowledgement_OfAnOperatorsRetry(t *testing.T) {
	for name, auditQueue := range map[string]string{"with audit": "audit", "without": ""} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				now := time.Now()
				fx.runOrders(core.Config{AuditQueue: auditQueue, RetryAckQueues: []string{"shipping"}, Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(_ context.Context, m *core.Message) error {
					if m.ID == "fails again" {
						return errBoom
					}
					return nil
				})
				for _, id := range []string{"retried", "fails again", "no queue"} {
					m := order(id)
					m.Headers.Set(headers.RetryUniqueMessageID, "unique "+id)
					if id != "no queue" {
						m.Headers.Set(headers.RetryAckQueue, "shipping")
					}
					fx.send(m)
				}
				ack := fx.onlyMessage("shipping")
				equal(fx, "unique id", ack.Headers.Get(headers.RetryUniqueMessageID), "unique retried")
				equal(fx, "time", ack.Headers.Get(headers.RetrySuccessful), headers.FormatTime(now))
				equal(fx, "control message", ack.Headers.Get(headers.ControlMessage), "True")
				equal(fx, "body", len(ack.Body), 0)
				if auditQueue == "" {
					return
				}
				for _, m := range fx.messages(auditQueue) {
					want := "true"
					if m.ID == "no queue" {
						want = ""
					}
					equal(fx, "acknowledgement sent for "+m.ID, m.Headers.Get(headers.RetryAckSent), want)
				}
				fx.wantDepth(auditQueue, 2)
			})
		})
	}
}

func TestInvoke_RunsHandlersInProcess(t *testing.T) {
	bubble(t, func(fx *fixture) {
		type key struct{}
		var got recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				got.add("middleware")
				return next(ctx, m)
			}
		})}})
		core.Handle(ep, pingType, func(ctx context.Context, m *core.Message, body ping) error {
			got.add(fmt.Sprint(body.N, m.Attempt, ctx.Value(key{})))
			if err := m.Send("shipping", shipType.Of("x")); err != nil {
				fx.Error(err)
			}
			switch body.N {
			case 2:
				return errBoom
			case 3:
				panic("boom")
			}
			return nil
		})
		ctx := context.WithValue(fx.Context(), key{}, "value")
		if err := ep.Invoke(ctx, pingType.Of(ping{1})); err != nil {
			fx.Error(err)
		}
		if err := ep.Invoke(ctx, pingType.Of(ping{2})); err != errBoom { //nolint:errorlint // the error itself, not one that wraps it
			fx.Errorf("Invoke returned %v, want the handler's error itself", err)
		}
		var panicked *core.PanicError
		if err := ep.Invoke(ctx, pingType.Of(ping{3})); !errors.As(err, &panicked) {
			fx.Errorf("Invoke returned %v, want a PanicError", err)
		}
		if err := ep.Invoke(ctx, unknownType.Of(ping{})); !errors.Is(err, core.ErrNoHandler) {
			fx.Errorf("Invoke returned %v, want ErrNoHandler", err)
		}
		if err := ep.Invoke(ctx, pingChanIntType.Of(make(chan int))); err == nil {
			fx.Error("a body that cannot be encoded was accepted")
		}
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
		if all := strings.Join(got.all(), ","); all != "middleware,1 1value,middleware,2 1value,middleware,3 1value,middleware" {
			fx.Errorf("ran %s", all)
		}
	})
}

func TestInvoke_RunsObservers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen calls
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			equal(fx, "value of the observer", ctx.Value(callKey{}), any("traced"))
			m.ID = "m1"
			if string(m.RawBody()) == "bad" {
				return errBoom
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("good"))); err != nil {
			fx.Error(err)
		}
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("bad"))); !errors.Is(err, errBoom) {
			fx.Errorf("Invoke returned %v", err)
		}
		all := seen.all()
		for i, start := range []int{0, 4} {
			if !strings.HasPrefix(all[start], "handle ") || !strings.HasSuffix(all[start], " 1 orders") {
				fx.Errorf("call %d began with %q", i, all[start])
			}
		}
		all = slices.Delete(slices.Delete(all, 4, 5), 0, 1)
		want := []string{"handled <nil> 0s traced", "send shipping traced", "sent <nil>", "handled boom 0s traced"}
		if !slices.Equal(all, want) { // the message was not received: Succeeded is not called
			fx.Errorf("observed %q, want %q", all, want)
		}
	})
}

func TestDelayedSend_HasItsDueTime(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var seen recorder[string]
		began := time.Now()
		due := headers.FormatTime(began.Add(time.Minute))
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1}}})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			seen.add(m.Headers.Get(headers.DeliverAt))
			if m.DelayedRetries == 0 {
				return errBoom
			}
			return m.Send("shipping", onceType.Of("x"))
		})
		fx.run(ep)
		if err := ep.Send(fx.Context(), "orders", orderType.Of([]byte("x")).With(core.SendOptions{Delay: time.Minute})); err != nil {
			fx.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := seen.all(); !slices.Equal(got, []string{due, due}) {
			fx.Errorf("handlers saw %q, want twice %q", got, due)
		}
		if value, ok := fx.onlyMessage("shipping").Headers.Lookup(headers.DeliverAt); ok {
			fx.Errorf("a message without a delay is due at %q", value)
		}
	})
}

func TestDelayedSend_OfAHandlerArrivesWhenDue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", laterType.Of("x").With(core.SendOptions{Delay: time.Minute}))
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute - time.Nanosecond)
		equal(fx, "before it is due", fx.depth("shipping").Ready, 0)
		time.Sleep(time.Nanosecond)
		equal(fx, "when it is due", fx.depth("shipping").Ready, 1)
	})
}

func TestTransport_SharedByEndpoints(t *testing.T) {
	inModesWith(t, inmemory.Config{}, allModes, func(fx *fixture) {
		const endpoints = 20
		var path recorder[string]
		for i := range endpoints {
			name := fmt.Sprint("station ", i)
			ep := fx.newEndpoint(name, core.Config{Concurrency: 2})
			fx.handle(ep, "letter", func(_ context.Context, m *core.Message) error {
				path.add(name)
				if i+1 < endpoints {
					return m.Send(fmt.Sprint("station ", i+1), letterType.Of(m.RawBody()))
				}
				equal(fx, "conversation at the end", m.Headers.Get(headers.ConversationID), "letter")
				return nil
			})
			fx.run(ep)
		}
		sender := fx.newEndpoint("sender", core.Config{SendOnly: true})
		if err := sender.Send(fx.Context(), "station 0", letterType.Of([]byte("x")).With(core.SendOptions{ID: "letter"})); err != nil {
			fx.Fatal(err)
		}
		fx.wantDepth("station 19", 0)
		equal(fx, "stations passed", path.len(), endpoints)
	})
}
