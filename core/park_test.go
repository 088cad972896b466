package core_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// parkRecorder keeps the changes that it is told of.
type parkRecorder struct{ recorder[core.ParkChange] }

func (w *parkRecorder) ParkChanged(_ context.Context, e core.ParkChange) { w.add(e) }

func (w *parkRecorder) observer() core.Observer {
	return core.Observer{ParkChanged: w.ParkChanged}
}

// parking is noRetries with a limit that parks.
func parking(limit int) core.Recoverability {
	r := noRetries
	r.UnacceptableMessageLimit, r.UnacceptableMessageAction = limit, core.LimitPark
	return r
}

// failBadMessages fails messages for good whose id begins with "bad".
func failBadMessages(_ context.Context, m *core.Message) error {
	if strings.HasPrefix(m.ID, "bad") {
		return core.Unrecoverable(errBoom)
	}
	return nil
}

// Rule R50.
func TestPark_OneEndpointAlone(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		const many = 1000
		var criticals recorder[error]
		watch := &parkRecorder{}
		recover := parking(3)
		recover.UnacceptableMessageAction = core.LimitAuto // what RunAll makes LimitPark
		one := fx.newEndpoint("orders", core.Config{
			Concurrency: 1, Recoverability: recover, Observers: []core.Observer{watch.observer()},
			OnCriticalError: func(_ context.Context, err error) { criticals.add(err) },
		})
		fx.handle(one, "order", failBadMessages)
		var handled atomic.Int64
		other := fx.newEndpoint("shipping", core.Config{Recoverability: recover})
		fx.handle(other, "order", func(context.Context, *core.Message) error {
			handled.Add(1)
			return nil
		})
		ctx, stop := context.WithCancel(fx.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, one, other) }()
		synctest.Wait()
		began := time.Now()
		fx.enqueue("good", "bad 1", "bad 2", "bad 3", "bad 4", "bad 5")
		for i := range many {
			m := order(fmt.Sprint("s", i))
			m.Queue = "shipping"
			fx.send(m)
		}
		fx.advance(time.Hour)
		equal(fx, "messages of the other endpoint that were handled", handled.Load(), many)
		equal(fx, "in flight at the parked endpoint", fx.depth("orders").InFlight, 0)
		fx.wantDepth("orders", 2)
		fx.wantDepth("error", 3)

		want := core.Park{Since: began, Failed: 3, MessageIDs: []string{"bad 1", "bad 2", "bad 3"}}
		h := one.Health()
		if h.Parked == nil || !reflect.DeepEqual(*h.Parked, want) {
			fx.Errorf("Health.Parked is %+v, want %+v", h.Parked, want)
		}
		equal(fx, "Health.Running", h.Running, true)
		equal(fx, "Health.Paused", h.Paused, false)
		equal(fx, "critical errors in Health", h.CriticalErrors, 1)
		h.Parked.MessageIDs[0] = "changed" // a copy
		equal(fx, "the other endpoint is parked", other.Health().Parked != nil, false)
		if all := criticals.all(); len(all) != 1 || !errors.Is(all[0], core.ErrUnacceptableMessageLimit) ||
			!containsAll(all[0].Error(), "3 messages", `"bad 3"`, "is parked until Endpoint.Resume is called") {
			fx.Errorf("OnCriticalError got %v", all)
		}
		equal(fx, "lines of start-up", len(fx.logs.find("the endpoint is parked when as many messages")), 2)

		one.Resume()
		synctest.Wait()
		equal(fx, "parked after Resume, with two more that failed", one.Health().Parked != nil, false)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 5)
		fx.enqueue("bad 6")
		equal(fx, "parked by the third since Resume", one.Health().Parked != nil, true)
		var told []string
		for _, e := range watch.all() {
			told = append(told, fmt.Sprintf("%s %t %v", e.Endpoint, e.Parked, e.Park.MessageIDs))
		}
		if want := []string{"orders true [bad 1 bad 2 bad 3]", "orders false [bad 1 bad 2 bad 3]", "orders true [bad 4 bad 5 bad 6]"}; !slices.Equal(told, want) {
			fx.Errorf("the observer was told %q, want %q", told, want)
		}
		stop()
		if err := <-done; err != nil {
			fx.Errorf("RunAll returned %v", err)
		}
	})
}

// Rule R50.
// What is counted, in docs/recoverability.md#stopping-on-too-many-failures.
func TestFailureLimit_CountsMovesAlone(t *testing.T) {
	exhausted := immediateRetries(1)
	for _, test := range []struct {
		name    string
		recover core.Recoverability
		answer  func(m *core.Message) error
		failed  func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error
		message string // its id, where makeUnhandleable knows it
		of      string // the message's type, where it is not "order"
		around  []core.Middleware
		faults  faults
		limit   int // 0 is 1
		counts  bool
	}{
		{name: "retries used up", recover: exhausted, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "Unrecoverable", recover: exhausted, answer: func(*core.Message) error { return core.Unrecoverable(errBoom) }, counts: true},
		{name: "MoveTo", recover: exhausted, answer: func(*core.Message) error { return core.MoveTo(errBoom, "shipping") }, counts: true},
		{name: "Reject to the error queue", recover: exhausted, answer: func(*core.Message) error { return core.Reject(errBoom) }, counts: true},
		{name: "Reject to a dead-letter queue", recover: core.Recoverability{DeadLetter: core.DeadLettersRejected}, answer: func(*core.Message) error { return core.Reject(errBoom) }, counts: true},
		{name: "Invalid", recover: core.Recoverability{InvalidQueue: "invalid"}, answer: func(*core.Message) error { return core.Invalid(errBoom) }, counts: true},
		{
			name: "RequeueLimit", recover: core.Recoverability{RequeueLimit: 1, RequeueDelay: time.Second},
			answer: func(*core.Message) error { return core.Defer(0) }, counts: true,
		},
		{name: "HandleFailed that fails", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error { return errBoom }, counts: true},
		{name: "HandleFailed that takes the message over", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
			f.TakeOver()
			return nil
		}},
		{name: "HandleFailed that lets the message go", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error { return nil }, counts: true},
		{name: "success after a retry", recover: exhausted, answer: func(m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		}},
		{name: "Discard", recover: exhausted, answer: func(*core.Message) error { return core.Discard("not needed") }},
		{name: "Defer", recover: core.Recoverability{RequeueDelay: 2 * time.Hour}, answer: func(*core.Message) error { return core.Defer(0) }},
		{name: "Refuse", recover: exhausted, answer: func(*core.Message) error { return core.Refuse(errBoom, 2*time.Hour) }},
		{name: "Defer with an error", recover: exhausted, answer: func(*core.Message) error { return core.DeferError(errBoom, 2*time.Hour) }},
		{name: "RetryAfter", recover: core.Recoverability{Delayed: core.Delayed{Retries: 1}}, answer: func(*core.Message) error { return core.RetryAfter(errBoom, 2*time.Hour) }},
		{name: "RetryAfter without delayed retries", recover: exhausted, answer: func(*core.Message) error { return core.RetryAfter(errBoom, time.Hour) }, counts: true},
		{name: "PutBack", recover: exhausted, answer: func(*core.Message) error { return core.PutBack(errBoom, core.Pause{}) }},
		{name: "PutBack of the message alone", recover: exhausted, answer: func(*core.Message) error { return core.PutBack(errBoom, core.Pause{Scope: core.PauseMessage}) }},
		{name: "Fallback", recover: exhausted, around: []core.Middleware{core.Fallback{
			On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error { return nil },
		}.Middleware()}, answer: func(*core.Message) error { return errBoom }},
		{name: "Fallback that fails", recover: exhausted, around: []core.Middleware{core.Fallback{
			On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error { return errBoom },
		}.Middleware()}, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "malformed", recover: exhausted, message: "malformed", faults: faults{onReceive: makeUnhandleable}, counts: true},
		{name: "MaxDeliveries", recover: exhausted, message: "too-often", faults: faults{onReceive: makeUnhandleable}, counts: true},
		{name: "undecodable", recover: exhausted, of: "number", counts: true},
		{name: "no handler", recover: exhausted, of: "unknown", counts: true},
		{name: "stored while the error queue is away", recover: exhausted, faults: faults{send: failSendsToQueue("error")}, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "stored, and stored again", recover: exhausted, faults: faults{send: failSendsToQueue("error")}, limit: 2, answer: func(*core.Message) error { return errBoom }},
		{name: "success", recover: exhausted, answer: func(*core.Message) error { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"invalid", "audit"}}); err != nil {
					fx.Fatal(err)
				}
				fx.broker.setFaults(test.faults)
				test.recover.UnacceptableMessageLimit, test.recover.UnacceptableMessageAction = max(test.limit, 1), core.LimitPark
				ep := fx.newEndpoint("orders", core.Config{Recoverability: test.recover, AuditQueue: "audit", Middleware: test.around})
				core.Handle(ep, "number", func(context.Context, *core.TypedMessage[int]) error { return nil })
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error { return test.answer(m) })
				if test.failed != nil {
					core.HandleFailed(ep, "order", test.failed)
				}
				fx.run(ep)
				m := order(cmp.Or(test.message, "m1"))
				m.Headers.Set(core.HeaderMessageTypes, cmp.Or(test.of, "order"))
				fx.send(m)
				fx.advance(time.Hour)
				equal(fx, "counts", ep.Health().Parked != nil, test.counts)
			})
		})
	}
}

// Rule R50.
// What was fetched and not started is given back, also where the broker counts that; running
// handlers end as usual.
func TestPark_EndpointHoldsNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{
		"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second),
		"counting": countsReleasesConfig(),
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				release := make(chan struct{})
				var handled recorder[string]
				ep, run := fx.runOrders(core.Config{Concurrency: 2, Recoverability: parking(1)}, func(ctx context.Context, m *core.Message) error {
					if m.ID == "slow" {
						<-release
					}
					handled.add(m.ID)
					if m.ID == "slow" {
						return errBoom
					}
					return failBadMessages(ctx, m)
				})
				for i := range 20 {
					fx.enqueue(fmt.Sprint("fast", i)) // so that others are prefetched, where they may be
				}
				fx.send(order("slow"))
				synctest.Wait() // it runs when the limit is reached
				waiting := []core.Outgoing{order("bad")}
				for i := range 20 {
					waiting = append(waiting, order(fmt.Sprint("late", i)))
				}
				fx.send(waiting...)
				synctest.Wait()
				equal(fx, "parked", ep.Health().Parked != nil, true)
				equal(fx, "in flight with one handler running", fx.depth("orders").InFlight, 1)
				equal(fx, "MaxInFlight", fx.newestMaxInFlight(), 0)
				close(release)
				fx.advance(time.Hour)
				equal(fx, "in flight", fx.depth("orders").InFlight, 0)
				fx.wantDepth("orders", 20)
				fx.wantDepth("error", 2) // the one that ran too

				// Another instance has them all.
				var taken atomic.Int64
				second := fx.newEndpoint("orders", core.Config{})
				fx.handle(second, "order", func(context.Context, *core.Message) error { taken.Add(1); return nil })
				other := fx.run(second)
				fx.advance(time.Minute)
				equal(fx, "handled by another instance", taken.Load(), 20)
				if err := other.stop(); err != nil {
					fx.Error(err)
				}
				ep.Resume()
				fx.enqueue("last")
				fx.advance(time.Minute)
				fx.wantDepth("orders", 0)
				equal(fx, "handled by the resumed one", handled.len(), 23)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
			})
		})
	}
}

// Rule R50.
func TestPark_EndsAfterParkFor(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		recover := parking(1)
		recover.ParkFor = time.Minute
		ep, run := fx.runOrders(core.Config{Concurrency: 1, Recoverability: recover}, failBadMessages)
		fx.enqueue("bad 1", "m1")
		fx.advance(time.Minute - 1)
		equal(fx, "parked just before", ep.Health().Parked != nil, true)
		equal(fx, "in flight", fx.depth("orders").InFlight, 0)
		fx.wantDepth("orders", 1)
		fx.advance(1)
		equal(fx, "parked after ParkFor", ep.Health().Parked != nil, false)
		fx.wantDepth("orders", 0)

		fx.enqueue("bad 2")
		fx.advance(30 * time.Second)
		ep.Resume()
		fx.enqueue("bad 3")
		fx.advance(59 * time.Second) // longer than the first of the two had
		equal(fx, "parked by the newest", ep.Health().Parked != nil, true)
		ep.Pause()
		fx.advance(time.Second)
		equal(fx, "parked", ep.Health().Parked != nil, false)
		fx.enqueue("m2")
		fx.wantDepth("orders", 1) // it is still paused
		ep.Resume()
		fx.wantDepth("orders", 0)

		fx.enqueue("bad 4") // holds over several Runs
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		run = fx.run(ep)
		fx.enqueue("m3")
		fx.wantDepth("orders", 1)
		equal(fx, "lines", len(fx.logs.find("the endpoint starts parked")), 1)
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)

		fx.enqueue("bad 5") // and ends between two
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.advance(time.Minute)
		equal(fx, "parked after its end", ep.Health().Parked != nil, false)
		fx.run(ep)
		fx.enqueue("m4")
		fx.wantDepth("orders", 0)
	})
}

// storedPark is a ParkStore that keeps JSON, as one in a database would.
type storedPark struct {
	text       atomic.Pointer[string]
	saved      atomic.Int64
	fail       atomic.Bool
	failToLoad atomic.Bool
}

func (s *storedPark) LoadPark(_ context.Context, e core.ObservedEndpoint) (*core.Park, error) {
	if s.failToLoad.Load() {
		return nil, errBoom
	}
	if e.Endpoint != "orders" {
		return nil, fmt.Errorf("asked for %q", e.Endpoint)
	}
	text := s.text.Load()
	if text == nil {
		return nil, nil
	}
	var p *core.Park
	return p, json.Unmarshal([]byte(*text), &p)
}

func (s *storedPark) SavePark(_ context.Context, _ core.ObservedEndpoint, p *core.Park) error {
	if s.fail.Load() {
		return errBoom
	}
	s.saved.Add(1)
	text, err := json.Marshal(p)
	s.text.Store(new(string(text)))
	return err
}

// Rule R50.
func TestFailureLimit_RestartsMoveOneLimitAtMost(t *testing.T) {
	for _, action := range []core.LimitAction{core.LimitStop, core.LimitPark, core.LimitAuto} {
		t.Run(action.String(), func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				for i := range 40 {
					fx.send(order(fmt.Sprint("bad ", i)))
				}
				store := &storedPark{}
				recover := parking(3)
				recover.UnacceptableMessageAction, recover.ParkStore = action, store
				var ep *core.Endpoint
				for range 10 {
					ep = fx.newEndpoint("orders", core.Config{Concurrency: 1, Recoverability: recover}) // as a new process does
					fx.handle(ep, "order", failBadMessages)
					run := fx.start(ep)
					fx.advance(time.Minute)
					equal(fx, "parked", ep.Health().Parked != nil, true)
					if err := run.stop(); err != nil && !errors.Is(err, core.ErrUnacceptableMessageLimit) {
						fx.Errorf("Run returned %v", err)
					}
				}
				fx.wantDepth("error", 3)
				fx.wantDepth("orders", 37)
				equal(fx, "failed, as stored", ep.Health().Parked.Failed, 3)
				ep.Resume()
				equal(fx, "stored before Resume returns", *store.text.Load(), "null")
				run := fx.start(fx.newParkingEndpoint(recover))
				fx.advance(time.Minute)
				if err := run.stop(); err != nil && !errors.Is(err, core.ErrUnacceptableMessageLimit) {
					fx.Errorf("Run returned %v", err)
				}
				fx.wantDepth("error", 6)
			})
		})
	}
}

// newParkingEndpoint makes "orders" with a handler for which bad messages fail.
func (fx *fixture) newParkingEndpoint(recover core.Recoverability) *core.Endpoint {
	fx.Helper()
	ep := fx.newEndpoint("orders", core.Config{Concurrency: 1, Recoverability: recover})
	fx.handle(ep, "order", failBadMessages)
	return ep
}

// Rule R50.
func TestParkStore_KeepsTheTime(t *testing.T) {
	bubble(t, func(fx *fixture) {
		store := &storedPark{}
		recover := parking(1)
		recover.ParkStore, recover.ParkFor = store, time.Hour
		run := fx.run(fx.newParkingEndpoint(recover))
		fx.enqueue("bad 1", "m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.advance(59 * time.Minute)
		second := fx.newParkingEndpoint(recover)
		run = fx.run(second)
		fx.wantDepth("orders", 1)
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "saved", store.saved.Load(), 2) // the beginning, and the end
	})
}

// Rule R50.
func TestParkStore_ThatFails(t *testing.T) {
	bubble(t, func(fx *fixture) {
		store := &storedPark{}
		store.failToLoad.Store(true)
		recover := parking(1)
		recover.ParkStore = store
		refusing := fx.newEndpoint("orders", core.Config{Recoverability: recover, WaitForBroker: core.Off})
		if err := fx.start(refusing).wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "LoadPark") {
			fx.Errorf("Run returned %v", err)
		}
		ep := fx.newParkingEndpoint(recover)
		fx.start(ep)
		fx.advance(time.Minute)
		if h := ep.Health(); !h.Starting || !errors.Is(h.ConnectionError, errBoom) || h.Connected {
			fx.Errorf("while the store cannot be asked Health is %+v", h)
		}
		store.failToLoad.Store(false)
		store.fail.Store(true)
		fx.advance(15 * time.Second)
		<-ep.Ready()
		fx.enqueue("bad 1", "m1")
		h := ep.Health()
		equal(fx, "parked", h.Parked != nil, true)
		equal(fx, "critical errors", h.CriticalErrors, 2) // the limit, and the store
		equal(fx, "the store's error is the newest", errors.Is(h.LastCritical.Err, errBoom), true)
		fx.wantDepth("orders", 1)
		ep.Resume()
		fx.wantDepth("orders", 0)
	})
}

// Rule R50.
// Pauses, parks, Resume and ends of Run in any order lose nothing.
func TestPark_AndResumeLoseNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"ahead": prefetchConfig(10 * time.Second), "counting": countsReleasesConfig()} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				const messages = 500
				recover := parking(3)
				recover.ParkFor, recover.MaxDeliveries.Off = 200*time.Millisecond, true
				var good atomic.Int64
				ep, run := fx.runOrders(core.Config{Recoverability: recover}, func(ctx context.Context, m *core.Message) error {
					time.Sleep(time.Duration(len(m.ID)) * time.Millisecond)
					err := failBadMessages(ctx, m)
					if err == nil {
						good.Add(1)
					}
					return err
				})
				for i := range messages {
					id := fmt.Sprint("good", i)
					if i%10 == 0 {
						id = fmt.Sprint("bad", i)
					}
					fx.send(order(id))
				}
				for i := range 40 {
					switch i % 4 {
					case 0:
						ep.Pause()
					case 1:
						if err := run.stop(); err != nil {
							fx.Error(err)
						}
						run = fx.start(ep)
					case 2:
						ep.Resume()
					}
					time.Sleep(time.Duration(i*7) * time.Millisecond)
				}
				ep.Resume()
				fx.advance(time.Hour)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", messages/10)
				equal(fx, "handled", good.Load(), messages*9/10)
			})
		})
	}
}
