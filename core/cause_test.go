package core_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// causeOf returns the fingerprint of an error with which the handler of a message fails.
func causeOf(fx *fixture, fail error) string {
	fx.Helper()
	if _, err := fx.broker.Purge(fx.Context(), "error"); err != nil {
		fx.Fatal(err)
	}
	_, run := fx.runOrders(core.Config{Recoverability: immediateRetries(0)}, func(context.Context, *core.Message) error { return fail })
	defer func() {
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	}()
	m := order("m1")
	m.Headers.Set(headers.Cause, "1:000000000000") // of a sender
	fx.send(m)
	cause := fx.onlyMessage("error").Headers.Get(headers.Cause)
	if !regexp.MustCompile(`^1:[0-9a-f]{12}$`).MatchString(cause) || cause == "1:000000000000" {
		fx.Errorf("cause of %v is %q", fail, cause)
	}
	return cause
}

// Rule R67.
func TestCause_OfFailures(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		cause := causeOf(fx, fmt.Errorf("save order 4711: %w", &orderError{"17"}))
		equal(fx, "cause of another order", causeOf(fx, fmt.Errorf("save order 3: %w", &orderError{"4"})), cause)
		equal(fx, "cause of the verdict", causeOf(fx, core.GiveUp(fmt.Errorf("save order 3: %w", &orderError{"4"}))), cause)
		for name, other := range map[string]error{
			"another type": errors.New("save order 4711: order 17 is wrong"),
			"another text": fmt.Errorf("load order 4711: %w", &orderError{"17"}),
		} {
			if causeOf(fx, other) == cause {
				fx.Errorf("%s has the cause %s too", name, cause)
			}
		}
		if a, b := causeOf(fx, errors.New("payments: status 404")), causeOf(fx, errors.New("payments: status 503")); a == b {
			fx.Errorf("one cause %s for two statuses", a)
		}
	})
}

// The same text comes from two places.
func TestCause_OfPanics(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message) error {
			if strings.HasPrefix(m.ID, "a") {
				return panicsWithNilPointer(ctx, m)
			}
			return alsoPanicsWithNilPointer(ctx, m)
		})
		fx.enqueue("a1", "a2", "b1")
		causes := map[string]string{}
		for _, m := range fx.messages("error") {
			causes[m.ID] = m.Headers.Get(headers.Cause)
		}
		if causes["a1"] == "" || causes["a1"] != causes["a2"] || causes["a1"] == causes["b1"] {
			fx.Errorf("causes are %v", causes)
		}
	})
}

//go:noinline
func alsoPanicsWithNilPointer(context.Context, *core.Message) error {
	return fmt.Errorf("%d", noConfig.Concurrency)
}
