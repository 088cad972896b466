package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// brief returns an order that expires.
func brief(id string, life time.Duration) core.Outgoing {
	m := order(id)
	m.TimeToBeReceived = life
	m.Headers.Set(headers.TimeToBeReceived, headers.FormatSpan(life))
	return m
}

// However a message waits for its next attempt, it expires at its deadline, and each attempt
// before it sees the header. The copy that takes its place has the rest of its time.
func TestExpiry_DeadlineSurvivesEachWait(t *testing.T) {
	const wait, life = 10 * time.Second, 25 * time.Second
	for name, c := range map[string]struct {
		result error
		rules  core.Recoverability
	}{
		"delayed retries":   {errBoom, core.Recoverability{Immediate: noRetries.Immediate, Delayed: core.Delayed{NumberOfRetries: 9, TimeIncrease: wait, MaxDelay: wait}}},
		"immediate retries": {errBoom, core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 9, Pause: wait, MaxPause: wait}, Delayed: noRetries.Delayed}},
		"Defer":             {core.Defer(errBoom, wait), noRetries},
		"RetryAfter":        {core.RetryAfter(errBoom, wait), noRetries},
		"Refuse":            {core.Refuse(errBoom, wait), noRetries},
		"PutBack":           {core.PutBack(errBoom, wait), noRetries},
	} {
		t.Run(name, func(t *testing.T) {
			for transport, cfg := range map[string]inmemory.Config{
				"plain":          {},
				"counts returns": withCapabilities(func(c *core.Capabilities) { c.CountsReleases = true }),
			} {
				t.Run(transport, func(t *testing.T) {
					inModesWith(t, cfg, retryModes, func(fx *fixture) {
						start := time.Now()
						var attempts recorder[time.Duration]
						fx.runOrders(core.Config{Recoverability: c.rules}, func(_ context.Context, m *core.Message) error {
							attempts.add(time.Since(start))
							equal(fx, "header", m.Headers.Get(headers.TimeToBeReceived), "00:00:25")
							return c.result
						})
						fx.send(brief("m1", life))
						fx.advance(2 * time.Minute)
						if at := attempts.all(); len(at) < 2 || at[len(at)-1] >= life {
							fx.Errorf("attempts after %v, want several, all before %v", at, life)
						}
						fx.wantDepth("orders", 0)
						fx.wantDepth("error", 0)
					})
				})
			}
		})
	}
}

// A copy outside the input queue does not expire, and shows the time that the sender gave: in
// the error queue, after a return from there, and in the audit queue.
func TestExpiry_CopiesOfHandledMessagesDoNotExpire(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("audit")
		fail := true
		fx.runOrders(core.Config{AuditQueue: "audit", Recoverability: noRetries}, func(context.Context, *core.Message) error {
			if fail {
				return errBoom
			}
			return nil
		})
		fx.send(brief("m1", 5*time.Second))
		fx.advance(time.Minute)
		failed := fx.onlyMessage("error")
		equal(fx, "header in the error queue", failed.Headers.Get(headers.TimeToBeReceived), "00:00:05")
		equal(fx, "deadline in the error queue", failed.ExpiresAt, time.Time{})

		fail = false
		fx.send(core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(headers.FailedQ), Headers: failed.Headers, Body: failed.Body})
		fx.advance(time.Minute)
		audited := fx.onlyMessage("audit")
		equal(fx, "header in the audit queue", audited.Headers.Get(headers.TimeToBeReceived), "00:00:05")
		equal(fx, "deadline in the audit queue", audited.ExpiresAt, time.Time{})
		fx.wantDepth("orders", 0)
	})
}

// The header alone, which any sender writes, lets no copy expire.
func TestExpiry_IsNotReadFromTheHeader(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		attempts := 0
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if attempts++; attempts == 1 {
				return core.Defer(errBoom, time.Minute)
			}
			equal(fx, "header", m.Headers.Get(headers.TimeToBeReceived), "00:00:05")
			return nil
		})
		m := order("m1")
		m.Headers.Set(headers.TimeToBeReceived, "00:00:05")
		fx.send(m)
		fx.advance(2 * time.Minute)
		equal(fx, "attempts", attempts, 2)
	})
}

// A copy for another transport has the rest of the time; a forwarded message is a new send of
// its handler, and has none.
func TestExpiry_OfCopyAndForward(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			equal(fx, "the copy's time", messagekit.Copy(m).TimeToBeReceived, 15*time.Second)
			return m.Forward("shipping")
		})
		m := brief("m1", 25*time.Second)
		m.Delay = 10 * time.Second
		fx.send(m)
		fx.advance(time.Minute)
		equal(fx, "deadline of the forwarded message", fx.onlyMessage("shipping").ExpiresAt, time.Time{})
	})
}
