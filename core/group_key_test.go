package core_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestGroupKey_SurvivesInCopies: a queue with ordered groups refuses a copy that
// has lost its group, and a copy without its properties is another message.
func TestGroupKey_SurvivesInCopies(t *testing.T) {
	twoRounds := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}
	for name, c := range map[string]struct {
		outcome func(m *core.Message) error
		at      string // the queue that has the copy
		after   time.Duration
	}{
		"audit copy":           {func(*core.Message) error { return nil }, "audit", time.Second},
		"error queue":          {func(*core.Message) error { return errBoom }, "error", time.Hour},
		"a named error queue":  {func(*core.Message) error { return core.GiveUpTo(errBoom, "shipping") }, "shipping", time.Second},
		"deferral, then audit": {deferOnce, "audit", time.Hour},
		"retry, then audit":    {failOneRound, "audit", time.Hour},
		"dead letter":          {func(*core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) }, inmemory.DeadLetterQueue("orders"), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit"}}); err != nil {
					fx.Fatal(err)
				}
				properties := map[string]string{"priority": "9", "empty": ""}
				fx.runOrders(core.Config{AuditQueue: "audit", Recoverability: twoRounds}, func(_ context.Context, m *core.Message) error {
					equal(fx, "group key that the handler sees", m.GroupKey(), "customer 7")
					return c.outcome(m)
				})
				m := order("m1")
				m.GroupKey, m.Properties = "customer 7", maps.Clone(properties)
				fx.send(m)
				time.Sleep(c.after)
				synctest.Wait()
				got := fx.onlyMessage(c.at)
				equal(fx, "group key of the copy", got.GroupKey, "customer 7")
				if !maps.Equal(got.Properties, properties) {
					fx.Errorf("the copy has the properties %q, want %q", got.Properties, properties)
				}
			})
		})
	}
}

func deferOnce(m *core.Message) error {
	if m.Deferrals == 0 {
		return core.Defer(errors.New("not yet"), time.Minute)
	}
	return nil
}

func failOneRound(m *core.Message) error {
	if m.DelayedRetries == 0 {
		return errBoom
	}
	return nil
}

// TestGroupKey_LeavesRoomInTheErrorQueue: headers of the failure are given up one
// by one, not all at once, where a long group key leaves no room for them.
func TestGroupKey_LeavesRoomInTheErrorQueue(t *testing.T) {
	tight := withCapabilities(func(c *core.Capabilities) { c.MaxHeaderBytes = 2000 })
	inModesWith(t, tight, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			return errors.New(strings.Repeat("long ", 200))
		})
		m := order("m1")
		m.GroupKey = strings.Repeat("k", 600)
		fx.send(m)
		time.Sleep(time.Second)
		moved := fx.onlyMessage("error")
		equal(fx, "group key", moved.GroupKey, m.GroupKey)
		for _, key := range []string{headers.FailedQ, headers.ExceptionType, headers.TimeOfFailure} {
			if moved.Headers.Get(key) == "" {
				fx.Errorf("the moved message has no header %s, though there is room: %d bytes of headers and %d of group key, of 2000",
					key, moved.Headers.Bytes(), len(moved.GroupKey))
			}
		}
	})
}
