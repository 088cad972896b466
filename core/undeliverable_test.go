package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// delayStoringTransport is a transport that stores delayed messages itself, of which the
// test tells.
type delayStoringTransport struct {
	*faultyTransport
	cfg core.ReceiverConfig
}

func (s *delayStoringTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	s.cfg = cfg
	return s.faultyTransport.OpenReceiver(ctx, cfg)
}

// undeliverableObserver returns an observer that calls f for each undeliverable message.
func undeliverableObserver(f func(core.Undeliverable)) core.Observer {
	return core.Observer{MessageUndeliverable: f}
}

// runStoringEndpoint runs "orders" on a transport that stores delayed messages itself,
// and returns what that tells of them.
func (fx *fixture) runStoringEndpoint(c core.Config) (*core.Endpoint, *runningEndpoint, *delayStoringTransport, func(core.Undeliverable)) {
	fx.Helper()
	transport := &delayStoringTransport{faultyTransport: fx.broker}
	if c.Logger == nil {
		c.Logger = slog.New(logHandler{recorder: fx.logs})
	}
	ep, err := core.New("orders", transport, c)
	if err != nil {
		fx.Fatal(err)
	}
	run := fx.run(ep)
	return ep, run, transport, transport.cfg.MessageUndeliverable
}

// TestUndeliverable_IsToldAtTheFirstTryAndAtTheEnd: an Error line for the first failed
// try of each message, none for the tries between, and one for each move; observers hear
// of all.
func TestUndeliverable_IsToldAtTheFirstTryAndAtTheEnd(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told, critical recorder[string]
		ep, _, transport, tell := fx.runStoringEndpoint(core.Config{
			Recoverability: core.Recoverability{ErrorQueue: "shipping"},
			Observers: []core.Observer{undeliverableObserver(func(e core.Undeliverable) {
				told.add(fmt.Sprint(e.MessageID, " ", e.Tries, " ", e.RetryIn, " ", e.MovedTo))
			}), {CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err.Error()) }}},
		})
		equal(fx, "error queue of the receiver", transport.cfg.ErrorQueue, "shipping")
		for _, e := range []core.Undeliverable{
			{MessageID: "1", Queue: "gone", Err: errBoom, Tries: 1, RetryIn: time.Second},
			{MessageID: "1", Queue: "gone", Err: errBoom, Tries: 2, RetryIn: time.Minute},
			{MessageID: "2", Queue: "gone", Err: errBoom, Tries: 1, RetryIn: time.Second},
			{MessageID: "1", Queue: "gone", Err: errBoom, Tries: 3, MovedTo: "shipping"},
			{MessageID: "2", Queue: "gone", Err: errBoom, Tries: 3, MovedTo: "shipping"},
			{MessageID: "3", Queue: "lost", Err: errBoom, Tries: 3, MovedTo: "shipping"},
			{Messages: 7, Err: errBoom, MovedTo: "undelivered"},
			{Messages: 8, Err: errBoom, MovedTo: "undelivered"},
			{MessageID: "4", Queue: "nowhere", Err: errBoom, Tries: 4, RetryIn: time.Hour, MoveErr: errBoom},
		} {
			tell(e)
		}
		synctest.Wait()
		if want := []string{"1 1 1s ", "1 2 1m0s ", "2 1 1s ", "1 3 0s shipping", "2 3 0s shipping", "3 3 0s shipping", " 0 0s undelivered", " 0 0s undelivered", "4 4 1h0m0s "}; !slices.Equal(told.all(), want) {
			fx.Errorf("the observer was told %q, want %q", told.all(), want)
		}
		for text, want := range map[string][]string{
			"cannot be put into its queue; it is tried again":                       {"1 gone", "2 gone"},
			"was moved to the error queue, because it cannot be put into its queue": {"1 gone", "2 gone", "3 lost"},
			"delayed message still cannot be put into its queue; it is tried again": nil, // but for Debug
			"could not be put into their queues, and are in another one":            {"<nil> <nil>", "<nil> <nil>"},
			"can be put neither into its queue nor into the error queue":            {"4 nowhere"},
			"critical error": {"", "", ""},
		} {
			var got []string
			for _, line := range fx.logs.find(text) {
				if line.level != slog.LevelError {
					continue
				}
				if text == "critical error" {
					got = append(got, "")
					continue
				}
				got = append(got, fmt.Sprint(line.attrs["message_id"], " ", line.attrs["queue"]))
				if line.attrs["error"] == nil {
					fx.Errorf("%q does not say why", text)
				}
			}
			if !slices.Equal(got, want) {
				fx.Errorf("Error lines %q are about %q, want %q", text, got, want)
			}
		}
		if all := critical.all(); len(all) != 3 || !strings.Contains(all[0], `"gone"`) || !strings.Contains(all[0], "3 tries") || !strings.Contains(all[1], `"lost"`) || !strings.Contains(all[2], `"nowhere"`) {
			fx.Errorf("critical errors: %q, want one for each queue", all)
		}
		if h := ep.Health(); h.CriticalErrors != 3 || !errors.Is(h.LastCritical.Err, errBoom) {
			fx.Errorf("Health tells of %d critical errors, the last being %v", h.CriticalErrors, h.LastCritical)
		}
	})
}

// TestUndeliverable_BlocksNoAdapter: neither a log handler nor an observer that blocks,
// nor a Run that has ended.
func TestUndeliverable_BlocksNoAdapter(t *testing.T) {
	bubble(t, func(fx *fixture) {
		release := make(chan struct{})
		_, run, _, tell := fx.runStoringEndpoint(core.Config{Observers: []core.Observer{undeliverableObserver(func(core.Undeliverable) { <-release })}})
		for range 10_000 {
			tell(core.Undeliverable{MessageID: "1", Queue: "gone", Err: errBoom, Tries: 3, MovedTo: "error"})
		}
		close(release)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		before := len(fx.logs.all())
		tell(core.Undeliverable{MessageID: "2", Queue: "gone", Err: errBoom, Tries: 1})
		synctest.Wait()
		if n := len(fx.logs.all()); n != before {
			fx.Errorf("%d lines were logged after Run had ended", n-before)
		}
	})
}
