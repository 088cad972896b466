package probes_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/health/probes"
)

func TestHandler_Protocol(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		p := fx.probes(probes.Config{})
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for name, h := range map[string]http.Handler{"200": p.Liveness(), "503": p.Readiness()} {
				w := ask(fx, h, method)
				for key, want := range map[string]string{"Cache-Control": "no-store", "Content-Type": "application/json", "X-Content-Type-Options": "nosniff"} {
					if got := w.Header().Get(key); got != want {
						fx.Errorf("%s %s: header %s is %q, want %q", method, name, key, got, want)
					}
				}
				if want := map[string]int{"200": http.StatusOK, "503": http.StatusServiceUnavailable}[name]; w.Code != want {
					fx.Errorf("%s: status %d, want %d", method, w.Code, want)
				}
			}
		}
		w := ask(fx, p.Liveness(), http.MethodPost)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			fx.Errorf("POST: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
		}
	})
}

// TestHandler_Body: each endpoint's Health is in the body, and texts of errors only where that is wanted.
func TestHandler_Body(t *testing.T) {
	const secret = "amqp://shop:hunter2@broker" //nolint:gosec // an example of a text that must not be shown
	bubble(t, core.Config{Instance: "one"}, untilCancelled, func(fx *fixture) {
		fx.run()
		fx.broker.report(core.ConnectionChange{Err: errors.New(secret), Since: time.Now()})
		fx.broker.fail(nil, errors.New(secret))
		_ = fx.ep.Send(fx.Context(), "orders", orderType.Of("x"))
		fx.ep.RaiseCritical(errors.New(secret))
		sender := fx.endpoint("mail", core.Config{SendOnly: true, Instance: "one"})
		_ = sender.Send(fx.Context(), "orders", orderType.Of("x"))
		synctest.Wait()

		type state struct {
			Endpoint, Instance, Queue  string
			ConnectionError, SendError string
			LastCritical               *struct{ Error string }
		}
		var got struct{ Endpoints []state }
		text := ask(fx, fx.probes(probes.Config{}, sender).Readiness(), http.MethodGet).Body.String()
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			fx.Fatal(err)
		}
		if strings.Contains(text, "hunter2") || strings.Count(text, "see the log") != 5 {
			fx.Errorf("the answer is %s; want no text of an error, and that there are five", text)
		}
		if len(got.Endpoints) != 2 || got.Endpoints[0].Queue != "orders" || got.Endpoints[1].Endpoint != "mail" || got.Endpoints[0].Instance != "one" {
			fx.Errorf("the endpoints are %+v", got.Endpoints)
		}
		text = ask(fx, fx.probes(probes.Config{ErrorTexts: true}).Readiness(), http.MethodGet).Body.String()
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			fx.Fatal(err)
		}
		if s := got.Endpoints[0]; s.ConnectionError != secret || !strings.Contains(s.SendError, secret) || s.LastCritical.Error != secret {
			fx.Errorf("with ErrorTexts the answer is %s", text)
		}
		if h := fx.ep.Health(); h.LastCritical.Err.Error() != secret { // it was not written to
			fx.Errorf("Health.LastCritical is %v after an answer", h.LastCritical.Err)
		}
	})
}
