package core_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
)

var forgotten = core.NewEvent[string]("orders.forgotten")

const unsubscribedLine = "an event has no subscriber"

func TestPublish_WithoutASubscriberIsLoggedOnceAndCounted(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			return m.Publish(forgotten.Of("x"))
		})
		fx.enqueue("m1", "m2")
		fx.noError(ep.Publish(fx.Context(), forgotten.Of("x")))
		equal(fx, "events without a subscriber", ep.Health().EventsWithoutSubscriber, 3)
		equal(fx, "lines", len(fx.logs.find(unsubscribedLine)), 1)
	})
}

// unreachableTransport reports for each event that one of its subscribers cannot be reached.
type unreachableTransport struct{ *faultyTransport }

func (u unreachableTransport) Send(ctx context.Context, out ...core.Outgoing) error {
	err := u.faultyTransport.Send(ctx, out...)
	for i := range out {
		if out[i].Topic != "" {
			core.ReportUnreachableSubscriber(ctx, &out[i], "gone", errBoom)
		}
	}
	return err
}

func TestPublish_UnreachableSubscriberIsLoggedOnceAndCounted(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var reported recorder[core.Undeliverable]
		ep, err := core.New("orders", unreachableTransport{fx.broker}, core.Config{
			SendOnly: true, Logger: slog.New(logHandler{recorder: fx.logs}),
			Observers: []core.Observer{undeliverableObserver(func(e core.Undeliverable) { reported.add(e) }), undeliverableObserver(func(core.Undeliverable) { panic("observer") })},
		})
		fx.noError(err)
		fx.noError(ep.Publish(fx.Context(), forgotten.Of("x")))
		fx.noError(ep.Publish(fx.Context(), forgotten.Of("y")))
		equal(fx, "copies that were not delivered", ep.Health().UnreachableSubscribers, 2)
		equal(fx, "lines", len(fx.logs.find("a subscriber does not get an event")), 1)
		for _, e := range reported.all() {
			if e.Topic != "orders.forgotten" || e.Queue != "gone" || e.MessageID == "" || !errors.Is(e.Err, errBoom) {
				fx.Errorf("the observer got %+v", e)
			}
		}
		equal(fx, "reports to the observer", reported.len(), 2)
	})
}

func TestPublish_RequiresASubscriber(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		required := forgotten.Of("x").With(core.SendOptions{RequireSubscriber: true})
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			return m.Publish(required)
		})
		if err := ep.Publish(fx.Context(), required); !errors.Is(err, core.ErrNoSubscriber) || !core.IsPermanent(err) {
			fx.Errorf("Publish: %v", err)
		}
		fx.enqueue("m1")
		fx.wantDepth("error", 1) // the handler's send has failed
		billing := fx.newEndpoint("billing", core.Config{})
		var got recorder[string]
		core.HandleEvent(billing, forgotten, func(_ context.Context, _ *core.Message, body string) error {
			got.add(body)
			return nil
		})
		fx.run(billing)
		fx.noError(ep.Publish(fx.Context(), required))
		fx.enqueue("m2")
		equal(fx, "events", got.len(), 2)
		equal(fx, "events without a subscriber", ep.Health().EventsWithoutSubscriber, 0)
		if err := ep.Send(fx.Context(), "shipping", orderType.Of(nil).With(core.SendOptions{RequireSubscriber: true})); err == nil || !strings.Contains(err.Error(), "SendOptions.RequireSubscriber is for events") {
			fx.Errorf("a message to a queue that requires a subscriber: %v", err)
		}
	})
}
