package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// connectionText is the text of Health for the connection.
func connectionText(ep *core.Endpoint) string {
	h := ep.Health()
	return fmt.Sprintf("connected %t (%v), sends %v, run %v", h.Connected, h.ConnectionError, h.SendError, h.RunError)
}

func TestHealth_ClaimsNoConnectionThatWasNotMade(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		equal(fx, "before Run", connectionText(ep), "connected false (<nil>), sends <nil>, run <nil>")
		fx.broker.setFaults(faults{open: func(context.Context) error { return errBoom }})
		if err := core.RunAll(fx.Context(), ep, fx.newEndpoint("shipping", core.Config{})); !errors.Is(err, errBoom) {
			fx.Fatalf("RunAll returned %v", err)
		}
		if h := ep.Health(); h.Connected || !errors.Is(h.RunError, errBoom) {
			fx.Errorf("after a failed Run: %s", connectionText(ep))
		}
		opening := make(chan struct{})
		fx.broker.setFaults(faults{open: func(context.Context) error { <-opening; return nil }})
		run := fx.start(ep)
		equal(fx, "while it connects", connectionText(ep), "connected false (<nil>), sends <nil>, run <nil>")
		close(opening)
		synctest.Wait()
		equal(fx, "while it receives", connectionText(ep), "connected true (<nil>), sends <nil>, run <nil>")
		fx.broker.reportConnection(core.ConnectionChange{Err: errBoom})
		equal(fx, "in an outage", connectionText(ep), "connected false (boom), sends <nil>, run <nil>")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "after Run", connectionText(ep), "connected false (<nil>), sends <nil>, run <nil>")
	})
}

func TestHealth_KnowsAboutSending(t *testing.T) {
	bubble(t, func(fx *fixture) {
		start := time.Now()
		sender := fx.newEndpoint("sender", core.Config{SendOnly: true})
		send := func(ctx context.Context, ep *core.Endpoint) {
			_ = ep.Send(ctx, "shipping", shipByteType.Of([]byte("x")))
		}
		fails := func(err error) { fx.broker.setFaults(faults{send: func([]core.Outgoing) error { return err }}) }

		fails(errBoom)
		send(fx.Context(), sender)
		fx.advance(time.Minute)
		fails(errors.New("still"))
		send(fx.Context(), sender)
		equal(fx, "health", connectionText(sender), "connected false (still), sends still, run <nil>")
		equal(fx, "since", sender.Health().SendsFailingSince, start)
		equal(fx, "disconnected since", sender.Health().DisconnectedSince, start)
		fails(nil)
		send(fx.Context(), sender)
		equal(fx, "health", connectionText(sender), "connected true (<nil>), sends <nil>, run <nil>")
		equal(fx, "since", sender.Health().SendsFailingSince, time.Time{})

		for _, err := range []error{ // which say nothing of the broker
			core.ErrQueueNotFound, core.ErrTooLarge, core.ErrInvalidHeader, errors.ErrUnsupported, core.ErrNoSubscriber, core.ErrMessageRefused, &core.NameError{},
			&core.SendError{Results: []core.SendResult{{State: core.SendAccepted}, {State: core.SendRefused, Err: core.ErrQueueNotFound}}},
		} {
			fails(err)
			send(fx.Context(), sender)
			equal(fx, fmt.Sprint("health after ", err), connectionText(sender), "connected true (<nil>), sends <nil>, run <nil>")
		}
		cancelled, cancel := context.WithCancel(fx.Context())
		cancel()
		fails(errBoom)
		send(cancelled, sender)
		equal(fx, "connected after a send that was cancelled", sender.Health().Connected, true)
		late, cancel := context.WithTimeout(fx.Context(), time.Second)
		defer cancel()
		fx.broker.setFaults(faults{send: func([]core.Outgoing) error { <-late.Done(); return late.Err() }})
		send(late, sender)
		equal(fx, "connected after a send that the broker did not answer in time", sender.Health().Connected, false)
		fails(&core.SendError{Results: []core.SendResult{{State: core.SendRefused, Err: core.ErrQueueNotFound}, {State: core.SendUnknown, Err: errBoom}}})
		send(fx.Context(), sender)
		equal(fx, "connected after a lost confirm", sender.Health().Connected, false)

		// A handler's send fails while its endpoint receives.
		fx.mode = core.TransactionReceiveOnly
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error { return m.Send("shipping", shipType.Of("x")) })
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if out[0].Queue == "shipping" {
				return errBoom
			}
			return nil
		}})
		fx.enqueue("m1")
		equal(fx, "health after its move to the error queue", connectionText(ep), "connected true (<nil>), sends <nil>, run <nil>")
		fails(errBoom)
		send(fx.Context(), ep)
		equal(fx, "health", connectionText(ep), "connected true (<nil>), sends boom, run <nil>")
		fails(nil)
	})
}

type textlessError struct{}

func (*textlessError) Error() string { panic("no text") }

func TestHealth_IsReadableJSON(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ep *core.Endpoint
		recover := limited(1, func(_ context.Context, err error) {
			ep.Pause()
			ep.RaiseCritical(err)
		})
		ep = fx.newEndpoint("orders", core.Config{Instance: "one", Concurrency: 3, Recoverability: recover, Middleware: []core.Middleware{
			describingMiddleware(core.MiddlewareFacts{Kind: "circuit breaker", Name: "bank", State: func() string { return "open" }}),
		}})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			if m.ID == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return failBadMessages(ctx, m)
		})
		fx.run(ep)
		fx.enqueue("slow")
		fx.enqueue("bad 1") // once the other is in its handler: it pauses the endpoint
		fx.broker.reportConnection(core.ConnectionChange{Err: errors.New("no route"), Since: time.Now()})
		fx.advance(90 * time.Second)
		text, err := json.Marshal(ep.Health())
		const want = `{"endpoint":"orders","instance":"one","queue":"orders","starting":false,"running":true,"draining":false,"paused":true,` +
			`"rateLimited":false,"isolating":false,` +
			`"connected":false,"connectionError":"no route","disconnectedSince":"2000-01-01T00:00:00Z",` +
			`"middleware":[{"kind":"circuit breaker","name":"bank","state":"open"}],"concurrency":3,"inFlight":1,"oldestAttempt":"1m30s",` +
			`"undelivered":0,"unsettled":0,"stalled":false,"retrying":0,"criticalErrors":1,` +
			`"lastCritical":{"error":"unacceptable message limit reached: 1 messages failed for good, the newest: [\"bad 1\"]","at":"2000-01-01T00:00:00Z"},"notificationsDropped":0}`
		if got := strings.ReplaceAll(string(text), "+00:00", "Z"); err != nil || got != want {
			fx.Errorf("%v\n%s, want\n%s", err, text, want)
		}
		ep.RaiseCritical(&textlessError{})
		if text, err := json.Marshal(ep.Health()); err != nil || !strings.Contains(string(text), "cannot be read") {
			fx.Errorf("%v, %s", err, text)
		}
	})
}

func TestConnectionObserver_IsToldOfTheEndpoint(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told recorder[core.ConnectionChange]
		ep := fx.newEndpoint("orders", core.Config{Instance: "one", Observers: []core.Observer{connectionObserver(func(e core.ConnectionChange) { told.add(e) })}})
		fx.run(ep)
		fx.broker.reportConnection(core.ConnectionChange{Err: errBoom})
		synctest.Wait()
		if all := told.all(); len(all) != 1 || all[0].Endpoint != "orders" || all[0].Instance != "one" || all[0].Queue != "orders" {
			fx.Errorf("told %+v", all)
		}
	})
}
