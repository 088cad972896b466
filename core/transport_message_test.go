package core_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// The message of a foreign sender has the id that Config.MessageID gives it, wherever it
// is named; one of an endpoint, one that cannot be parsed and "" are left alone.
func TestMessageID_NamesForeignMessages(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var handled, sent recorder[string]
		var recovered recoveryRecorder
		fx.noError(fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit"}}))
		name := func(in *core.Incoming) string {
			if in.Malformed != nil {
				fx.Errorf("asked for a message that could not be parsed: %v", in.Malformed)
			}
			return in.Headers.Get("invoice")
		}
		ep := fx.newEndpoint("orders", core.Config{
			MessageID: name, AuditQueue: "audit", Observers: []core.Observer{recovered.observer()},
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}},
		})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			if err := m.Send("shipping", shipType.Of(m.ID)); err != nil {
				return err
			}
			sent.add(messagekit.Collected(m)[0].Headers.Get(headers.RelatedTo))
			if m.Headers.Get("bad") != "" {
				return errBoom
			}
			return nil
		})
		fx.run(ep)
		named, nameless, own, bad := order("1"), order("2"), order("3"), order("4")
		for _, m := range []*core.Outgoing{&named, &nameless, &bad} {
			m.Headers.Del(headers.MessageID)
		}
		named.Headers.Set("invoice", "invoice-1")
		own.Headers.Set("invoice", "invoice-3")
		bad.Headers.Set("invoice", "invoice-4")
		bad.Headers.Set("bad", "yes")
		fx.sendOneByOne(named, nameless, own)
		nativeOf := handled.all()[1]
		equal(fx, "handled", fmt.Sprint(handled.all()), fmt.Sprint([]string{"invoice-1", nativeOf, "3"}))
		if nativeOf == "" || nativeOf == "3" {
			fx.Errorf("the message without a name has the id %q", nativeOf)
		}
		equal(fx, "related to", fmt.Sprint(sent.all()), fmt.Sprint(handled.all()))
		var audited []string
		for _, in := range fx.messages("audit") {
			audited = append(audited, in.Headers.Get(headers.MessageID))
		}
		slices.Sort(audited)
		want := handled.all()
		slices.Sort(want)
		equal(fx, "audited", fmt.Sprint(audited), fmt.Sprint(want))

		fx.send(bad)
		fx.advance(time.Hour)
		equal(fx, "attempts of the bad one", fmt.Sprint(handled.all()[3:]), "[invoice-4 invoice-4 invoice-4 invoice-4]")
		in := fx.onlyMessage("error")
		equal(fx, "id in the error queue", in.ID+" "+in.Headers.Get(headers.MessageID), "invoice-4 invoice-4")
		for _, e := range recovered.all() {
			equal(fx, "id of a recovery", e.Failure.Message.ID, "invoice-4")
		}
	})
}

// An id that cannot be one, and a panic, are a failed attempt.
func TestMessageID_FailuresAreAttempts(t *testing.T) {
	for name, f := range map[string]func(*core.Incoming) string{
		"Config.MessageID: panic: no id": func(*core.Incoming) string { panic("no id") },
		"not UTF-8":                      func(*core.Incoming) string { return "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				ran := 0
				fx.runOrders(core.Config{MessageID: f, Recoverability: noRetries}, func(context.Context, *core.Message) error { ran++; return nil })
				m := order("m1")
				m.Headers.Del(headers.MessageID)
				fx.sendOneByOne(m)
				equal(fx, "handled", ran, 0)
				if text := fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage); !containsAll(text, name) {
					fx.Errorf("the error queue says %q", text)
				}
			})
		})
	}
}
