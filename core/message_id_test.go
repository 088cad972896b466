package core_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// The message of a foreign sender has the id that Config.MessageID gives it, wherever it
// is named; one of an endpoint, one that cannot be parsed and "" are left alone.
func TestMessageID_NamesForeignMessages(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var handled, sent record[string]
		var recovered recoveries
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"audit"}}))
		name := func(in *core.Incoming) string {
			if in.Malformed != nil {
				b.Errorf("asked for a message that could not be parsed: %v", in.Malformed)
			}
			return in.Headers.Get("invoice")
		}
		ep := b.endpoint("orders", core.Config{
			MessageID: name, AuditQueue: "audit", Observers: []core.Observer{recovered.observer()},
			Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1}},
		})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			if err := m.Send("shipping", "ship", m.ID); err != nil {
				return err
			}
			sent.add(m.Outgoing()[0].Headers.Get(core.HeaderRelatedTo))
			if m.Headers.Get("bad") != "" {
				return errBoom
			}
			return nil
		})
		b.run(ep)
		named, nameless, own, bad := order("1"), order("2"), order("3"), order("4")
		for _, m := range []*core.Outgoing{&named, &nameless, &bad} {
			m.Headers.Del(core.HeaderMessageID)
		}
		named.Headers.Set("invoice", "invoice-1")
		own.Headers.Set("invoice", "invoice-3")
		bad.Headers.Set("invoice", "invoice-4")
		bad.Headers.Set("bad", "yes")
		b.deliver(named, nameless, own)
		nativeOf := handled.all()[1]
		equal(b, "handled", fmt.Sprint(handled.all()), fmt.Sprint([]string{"invoice-1", nativeOf, "3"}))
		if nativeOf == "" || nativeOf == "3" {
			b.Errorf("the message without a name has the id %q", nativeOf)
		}
		equal(b, "related to", fmt.Sprint(sent.all()), fmt.Sprint(handled.all()))
		var audited []string
		for _, in := range b.queue("audit") {
			audited = append(audited, in.Headers.Get(core.HeaderMessageID))
		}
		slices.Sort(audited)
		want := handled.all()
		slices.Sort(want)
		equal(b, "audited", fmt.Sprint(audited), fmt.Sprint(want))

		b.send(bad)
		b.pass(time.Hour)
		equal(b, "attempts of the bad one", fmt.Sprint(handled.all()[3:]), "[invoice-4 invoice-4 invoice-4 invoice-4]")
		in := b.only("error")
		equal(b, "id in the error queue", in.ID+" "+in.Headers.Get(core.HeaderMessageID), "invoice-4 invoice-4")
		for _, e := range recovered.all() {
			equal(b, "id of a recovery", e.MessageID, "invoice-4")
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
			inModes(t, everyMode, func(b *bed) {
				ran := 0
				b.orders(core.Config{MessageID: f, Recoverability: noRetries}, func(context.Context, *core.Message) error { ran++; return nil })
				m := order("m1")
				m.Headers.Del(core.HeaderMessageID)
				b.deliver(m)
				equal(b, "handled", ran, 0)
				if text := b.only("error").Headers.Get(core.HeaderExceptionMessage); !containsAll(text, name) {
					b.Errorf("the error queue says %q", text)
				}
			})
		})
	}
}
