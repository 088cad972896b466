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

// connection is what Health says of it.
func connection(ep *core.Endpoint) string {
	h := ep.Health()
	return fmt.Sprintf("connected %t (%v), sends %v, run %v", h.Connected, h.ConnectionError, h.SendError, h.RunError)
}

func TestHealth_ClaimsNoConnectionThatWasNotMade(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		equal(b, "before Run", connection(ep), "connected false (<nil>), sends <nil>, run <nil>")
		b.broker.provoke(faults{open: func(context.Context) error { return errBoom }})
		if err := core.RunAll(b.Context(), ep, b.endpoint("shipping", core.Config{})); !errors.Is(err, errBoom) {
			b.Fatalf("RunAll returned %v", err)
		}
		if h := ep.Health(); h.Connected || !errors.Is(h.RunError, errBoom) {
			b.Errorf("after a failed Run: %s", connection(ep))
		}
		opening := make(chan struct{})
		b.broker.provoke(faults{open: func(context.Context) error { <-opening; return nil }})
		run := b.launch(ep)
		equal(b, "while it connects", connection(ep), "connected false (<nil>), sends <nil>, run <nil>")
		close(opening)
		synctest.Wait()
		equal(b, "while it receives", connection(ep), "connected true (<nil>), sends <nil>, run <nil>")
		b.broker.changeConnection(core.ConnectionChange{Err: errBoom})
		equal(b, "in an outage", connection(ep), "connected false (boom), sends <nil>, run <nil>")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "after Run", connection(ep), "connected false (<nil>), sends <nil>, run <nil>")
	})
}

func TestHealth_KnowsAboutSending(t *testing.T) {
	bubble(t, func(b *bed) {
		start := time.Now()
		only := b.endpoint("sender", core.Config{SendOnly: true})
		send := func(ctx context.Context, ep *core.Endpoint) { _ = ep.Send(ctx, "shipping", "ship", []byte("x")) }
		fails := func(err error) { b.broker.provoke(faults{send: func([]core.Outgoing) error { return err }}) }

		fails(errBoom)
		send(b.Context(), only)
		b.pass(time.Minute)
		fails(errors.New("still"))
		send(b.Context(), only)
		equal(b, "health", connection(only), "connected false (still), sends still, run <nil>")
		equal(b, "since", only.Health().SendsFailingSince, start)
		equal(b, "disconnected since", only.Health().DisconnectedSince, start)
		fails(nil)
		send(b.Context(), only)
		equal(b, "health", connection(only), "connected true (<nil>), sends <nil>, run <nil>")
		equal(b, "since", only.Health().SendsFailingSince, time.Time{})

		for _, err := range []error{ // which say nothing of the broker
			core.ErrQueueNotFound, core.ErrTooLarge, core.ErrInvalidHeader, errors.ErrUnsupported,
			&core.SendError{Results: []core.SendResult{{State: core.SendAccepted}, {State: core.SendRefused, Err: core.ErrQueueNotFound}}},
		} {
			fails(err)
			send(b.Context(), only)
			equal(b, fmt.Sprint("health after ", err), connection(only), "connected true (<nil>), sends <nil>, run <nil>")
		}
		cancelled, cancel := context.WithCancel(b.Context())
		cancel()
		fails(errBoom)
		send(cancelled, only)
		equal(b, "connected after a send that was cancelled", only.Health().Connected, true)
		late, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		b.broker.provoke(faults{send: func([]core.Outgoing) error { <-late.Done(); return late.Err() }})
		send(late, only)
		equal(b, "connected after a send that the broker did not answer in time", only.Health().Connected, false)
		fails(&core.SendError{Results: []core.SendResult{{State: core.SendRefused, Err: core.ErrQueueNotFound}, {State: core.SendUnknown, Err: errBoom}}})
		send(b.Context(), only)
		equal(b, "connected after a lost confirm", only.Health().Connected, false)

		// A handler's send fails while its endpoint receives.
		b.mode = core.TransactionReceiveOnly
		ep, _ := b.orders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error { return m.Send("shipping", "ship", "x") })
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if out[0].Queue == "shipping" {
				return errBoom
			}
			return nil
		}})
		b.put("m1")
		equal(b, "health after its move to the error queue", connection(ep), "connected true (<nil>), sends <nil>, run <nil>")
		fails(errBoom)
		send(b.Context(), ep)
		equal(b, "health", connection(ep), "connected true (<nil>), sends boom, run <nil>")
		fails(nil)
	})
}

type textlessError struct{}

func (*textlessError) Error() string { panic("no text") }

func TestHealth_IsReadableJSON(t *testing.T) {
	bubble(t, func(b *bed) {
		recover := parking(1)
		ep, _ := b.orders(core.Config{Instance: "one", Concurrency: 3, Recoverability: recover, Middleware: []core.Middleware{
			described(core.Step{Kind: "circuit breaker", Name: "bank", State: func() string { return "open" }}),
		}}, func(ctx context.Context, m *core.Message) error {
			if m.ID == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return bad(ctx, m)
		})
		b.put("slow", "bad 1")
		b.broker.changeConnection(core.ConnectionChange{Err: errors.New("no route"), Since: time.Now()})
		b.pass(90 * time.Second)
		text, err := json.Marshal(ep.Health())
		const want = `{"endpoint":"orders","instance":"one","queue":"orders","starting":false,"running":true,"draining":false,"paused":false,` +
			`"parked":{"since":"2000-01-01T00:00:00Z","failed":1,"messageIDs":["bad 1"]},"rateLimited":false,"isolating":false,` +
			`"connected":false,"connectionError":"no route","disconnectedSince":"2000-01-01T00:00:00Z",` +
			`"middleware":[{"kind":"circuit breaker","name":"bank","state":"open"}],"concurrency":3,"inFlight":1,"oldestAttempt":"1m30s",` +
			`"undelivered":0,"unsettled":0,"stalled":false,"putBack":0,"retrying":0,"criticalErrors":1,` +
			`"lastCritical":{"error":"unacceptable message limit reached: 1 messages failed for good, the newest: [\"bad 1\"]; the endpoint is parked until Endpoint.Resume is called","at":"2000-01-01T00:00:00Z"},"notificationsDropped":0}`
		if got := strings.ReplaceAll(string(text), "+00:00", "Z"); err != nil || got != want {
			b.Errorf("%v\n%s, want\n%s", err, text, want)
		}
		ep.RaiseCritical(&textlessError{})
		if text, err := json.Marshal(ep.Health()); err != nil || !strings.Contains(string(text), "cannot be read") {
			b.Errorf("%v, %s", err, text)
		}
	})
}

func TestConnectionObserver_IsToldOfTheEndpoint(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[core.ConnectionChange]
		ep := b.endpoint("orders", core.Config{Instance: "one", Observers: []core.Observer{hears(func(e core.ConnectionChange) { told.add(e) })}})
		b.run(ep)
		b.broker.changeConnection(core.ConnectionChange{Err: errBoom})
		synctest.Wait()
		if all := told.all(); len(all) != 1 || all[0].Endpoint != "orders" || all[0].Instance != "one" || all[0].Queue != "orders" {
			b.Errorf("told %+v", all)
		}
	})
}
