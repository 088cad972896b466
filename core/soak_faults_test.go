package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestRecovery_UnderRandomFaults runs two instances of an endpoint while queues cannot be
// reached, settlements and renewals fail, answers are lost, and instances are paused,
// resized and restarted, all at random. When the faults have ended:
//
//   - Each message is in one place: in "shipping" if a handler succeeded, in "error" if it
//     was given up, nowhere if it was discarded. In ReceiveOnly there may be more copies of
//     a message whose delivery was lost before its settlement (its lock ended, or its
//     receiver was closed), because its handler may have run on another instance.
//   - No handler has run again in the same round of the same instance after the policy had
//     decided to end the round, with the same exception.
//   - Nothing is in flight, kept, or renewed.
func TestRecovery_UnderRandomFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for _, mode := range retryModes {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%v/%d", mode, seed), func(t *testing.T) {
				cfg := expiringLocks
				switch {
				case seed%4 == 1:
					cfg = inmemory.Config{}
				case seed%4 == 3:
					cfg = withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false })
					cfg.LockDuration = expiringLocks.LockDuration
				case seed%4 == 2 && mode == core.TransactionReceiveOnly:
					cfg = prefetchConfig(10 * time.Second)
				}
				synctest.Test(t, func(t *testing.T) {
					s := &faultySoak{
						fixture: newFixture(t, cfg, mode),
						dice:    rand.New(rand.NewPCG(seed, 1)), unreachable: map[string]bool{},
						open: map[string]*core.Incoming{}, lost: map[string]bool{}, decided: map[string]bool{}, runs: map[string]int{},
					}
					s.run(seed)
				})
			})
		}
	}
}

// faultySoak is one run with one seed.
type faultySoak struct {
	*fixture

	mu          sync.Mutex
	dice        *rand.Rand
	unreachable map[string]bool // queues that cannot be reached
	settlements float64         // how likely a settlement fails
	answers     float64         // how likely the answer of a settlement is lost
	renewals    float64         // how likely a renewal fails
	open        map[string]*core.Incoming
	lost        map[string]bool // by id: a delivery was lost before its settlement
	decided     map[string]bool // by roundOf
	runs        map[string]int  // by id
	sent        []string
}

// kindsOfOrders are how handlers deal with them, by their numbers.
var kindsOfOrders = []string{"good", "bad", "flaky", "late", "discarded", "deferred"}

func (s *faultySoak) chance(p float64) bool { return p > 0 && s.dice.Float64() < p }

func (s *faultySoak) faults() faults {
	return faults{
		send: func(out []core.Outgoing) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, o := range out {
				if s.unreachable[o.Queue] {
					return fmt.Errorf("queue %s is away", o.Queue)
				}
			}
			return nil
		},
		settle: func(operation string, _ *core.Incoming) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			p := s.settlements
			if operation == "Renew" {
				p = s.renewals
			}
			if s.chance(p) {
				return fmt.Errorf("%s failed", operation)
			}
			return nil
		},
		afterSettle: func(operation string, in *core.Incoming) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if operation == "Reset" {
				return nil
			}
			if s.open[in.NativeID] == in {
				delete(s.open, in.NativeID)
			}
			if s.chance(s.answers) {
				return fmt.Errorf("the answer of %s was lost", operation)
			}
			return nil
		},
		onReceive: func(in *core.Incoming) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.open[in.NativeID] != nil {
				s.lost[in.ID] = true
			}
			s.open[in.NativeID] = in
		},
	}
}

func roundOf(instance, id string, delayedRetries int) string {
	return fmt.Sprintf("message %s on %s after %d delayed retries", id, instance, delayedRetries)
}

func (s *faultySoak) instance(name string) *core.Endpoint {
	delayed := core.Delayed{NumberOfRetries: core.Off}
	if s.broker.caps.DelayedDelivery {
		delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: 5 * time.Second}
	}
	ep := s.newEndpoint("orders", core.Config{Instance: name, Concurrency: 3, AuditQueue: "audit", Recoverability: core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1},
		Delayed:   delayed,
		RateLimit: core.RateLimit{ConsecutiveFailures: 6},
		Policy: func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			action, err := core.DefaultPolicy(ctx, c, f)
			if action.Kind != core.ActionImmediateRetry {
				s.mu.Lock()
				s.decided[roundOf(name, f.Message.ID, f.DelayedDeliveriesPerformed)] = true
				s.mu.Unlock()
			}
			return action, err
		},
	}})
	s.handle(ep, "order", func(_ context.Context, m *core.Message) error {
		s.mu.Lock()
		if round := roundOf(name, m.ID, m.DelayedRetries); s.decided[round] && !s.lost[m.ID] {
			s.Errorf("the handler ran again for %s", round)
		}
		s.runs[m.ID]++
		run := s.runs[m.ID]
		pause := time.Duration(s.dice.IntN(2000)) * time.Millisecond
		s.mu.Unlock()
		time.Sleep(pause)
		kind, _, _ := strings.Cut(m.ID, "-")
		switch {
		case kind == "bad", kind == "flaky" && run == 1, kind == "late" && run <= 2:
			return errBoom
		case kind == "discarded":
			return core.Discard(errors.New("not wanted"))
		case kind == "deferred" && run == 1:
			return core.Defer(errors.New("not yet"), 3*time.Second)
		}
		return m.Send("shipping", shipType.Of(m.ID))
	})
	return ep
}

func (s *faultySoak) run(seed uint64) {
	s.provision("audit")
	s.broker.setFaults(s.faults())
	driver := rand.New(rand.NewPCG(seed, 2))
	instances := []*core.Endpoint{s.instance("one"), s.instance("two")}
	runs := []*runningEndpoint{s.fixture.run(instances[0]), s.fixture.run(instances[1])}
	for range 60 {
		i := driver.IntN(2)
		switch driver.IntN(9) {
		case 0:
			queue := []string{"error", "orders", "audit"}[driver.IntN(3)]
			s.mu.Lock()
			s.unreachable[queue] = !s.unreachable[queue]
			s.mu.Unlock()
		case 1:
			s.mu.Lock()
			s.settlements, s.answers = []float64{0, 0.1, 0.6}[driver.IntN(3)], []float64{0, 0.1}[driver.IntN(2)]
			s.mu.Unlock()
		case 2:
			s.mu.Lock()
			s.renewals = []float64{0, 0.3, 1}[driver.IntN(3)]
			s.mu.Unlock()
		case 3:
			if instances[i].Health().Paused {
				instances[i].Resume()
			} else {
				instances[i].Pause()
			}
		case 4:
			if err := instances[i].SetConcurrency(1 + driver.IntN(6)); err != nil {
				s.Fatal(err)
			}
		case 5:
			if err := runs[i].stop(); err != nil {
				s.Errorf("Run returned %v", err)
			}
			runs[i] = s.fixture.run(instances[i])
		default:
			for range 3 {
				id := fmt.Sprintf("%s-%d", kindsOfOrders[len(s.sent)%len(kindsOfOrders)], len(s.sent))
				s.sent = append(s.sent, id)
				s.send(order(id))
			}
		}
		s.advance(time.Duration(driver.IntN(8000)) * time.Millisecond)
	}
	s.mu.Lock()
	clear(s.unreachable)
	s.settlements, s.answers, s.renewals = 0, 0, 0
	s.mu.Unlock()
	for _, ep := range instances {
		ep.Resume()
	}
	s.advance(30 * time.Minute)
	s.check(instances)
}

// check is called when the faults have long ended.
func (s *faultySoak) check(instances []*core.Endpoint) {
	for _, queue := range []string{"orders", "shipping", "error", "audit"} {
		depth := s.depth(queue)
		equal(s.fixture, "messages in flight in "+queue, depth.Locked, 0)
		equal(s.fixture, "delayed messages in "+queue, depth.Delayed, 0)
	}
	s.wantDepth("orders", 0)
	for _, ep := range instances {
		h := ep.Health()
		if h.InFlight+h.Unsettled+h.Undelivered != 0 || h.Stalled || !h.UnreachableSince.IsZero() {
			s.Errorf("%s: in flight %d, unsettled %d, undelivered %d, unreachable since %v", h.Instance, h.InFlight, h.Unsettled, h.Undelivered, h.UnreachableSince)
		}
	}
	renewals := s.broker.renewals()
	s.advance(time.Minute)
	equal(s.fixture, "renewals after the end", s.broker.renewals()-renewals, 0)

	ends := map[string]int{}
	for _, m := range s.messages("shipping") {
		ends[m.Headers.Get(headers.RelatedTo)]++
	}
	for _, m := range s.messages("error") {
		ends[m.ID]++
		equal(s.fixture, "note of "+m.ID, m.Headers.Get(headers.Undelivered), "")
	}
	for _, m := range s.messages("audit") {
		equal(s.fixture, "note of the audit copy of "+m.ID, m.Headers.Get(headers.Undelivered), "")
	}
	for _, id := range s.sent {
		want := 1
		if strings.HasPrefix(id, "discarded") {
			want = 0
		}
		mayBeTwice := s.mode == core.TransactionReceiveOnly && s.lost[id] && want > 0
		if n := ends[id]; n < want || n > want && !mayBeTwice {
			s.Errorf("message %s ended %d times, want %d; a delivery was lost: %t", id, n, want, s.lost[id])
		}
	}
}
