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

// parkWatch keeps the changes that it is told of.
type parkWatch struct{ record[core.ParkChange] }

func (w *parkWatch) ParkChanged(_ context.Context, e core.ParkChange) { w.add(e) }

func (w *parkWatch) observer() core.Observer {
	return core.Observer{ParkChanged: w.ParkChanged}
}

// parking is noRetries with a limit that parks.
func parking(limit int) core.Recoverability {
	r := noRetries
	r.UnacceptableMessageLimit, r.UnacceptableMessageAction = limit, core.LimitPark
	return r
}

// bad fails messages for good whose id begins with "bad".
func bad(_ context.Context, m *core.Message) error {
	if strings.HasPrefix(m.ID, "bad") {
		return core.Unrecoverable(errBoom)
	}
	return nil
}

func TestR50_ParksOneEndpointAlone(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		const many = 1000
		var criticals record[error]
		watch := &parkWatch{}
		recover := parking(3)
		recover.UnacceptableMessageAction = core.LimitAuto // what RunAll makes LimitPark
		one := b.endpoint("orders", core.Config{
			Concurrency: 1, Recoverability: recover, Observers: []core.Observer{watch.observer()},
			OnCriticalError: func(_ context.Context, err error) { criticals.add(err) },
		})
		b.handle(one, "order", bad)
		var handled atomic.Int64
		other := b.endpoint("shipping", core.Config{Recoverability: recover})
		b.handle(other, "order", func(context.Context, *core.Message) error {
			handled.Add(1)
			return nil
		})
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, one, other) }()
		synctest.Wait()
		began := time.Now()
		b.put("good", "bad 1", "bad 2", "bad 3", "bad 4", "bad 5")
		for i := range many {
			m := order(fmt.Sprint("s", i))
			m.Queue = "shipping"
			b.send(m)
		}
		b.pass(time.Hour)
		equal(b, "messages of the other endpoint that were handled", handled.Load(), many)
		equal(b, "in flight at the parked endpoint", b.depth("orders").InFlight, 0)
		b.holds("orders", 2)
		b.holds("error", 3)

		want := core.Park{Since: began, Failed: 3, MessageIDs: []string{"bad 1", "bad 2", "bad 3"}}
		h := one.Health()
		if h.Parked == nil || !reflect.DeepEqual(*h.Parked, want) {
			b.Errorf("Health.Parked is %+v, want %+v", h.Parked, want)
		}
		equal(b, "Health.Running", h.Running, true)
		equal(b, "Health.Paused", h.Paused, false)
		equal(b, "critical errors in Health", h.CriticalErrors, 1)
		h.Parked.MessageIDs[0] = "changed" // a copy
		equal(b, "the other endpoint is parked", other.Health().Parked != nil, false)
		if all := criticals.all(); len(all) != 1 || !errors.Is(all[0], core.ErrUnacceptableMessageLimit) ||
			!containsAll(all[0].Error(), "3 messages", `"bad 3"`, "is parked until Endpoint.Resume is called") {
			b.Errorf("OnCriticalError got %v", all)
		}
		equal(b, "lines of start-up", len(b.logs.about("the endpoint is parked when as many messages")), 2)

		one.Resume()
		synctest.Wait()
		equal(b, "parked after Resume, with two more that failed", one.Health().Parked != nil, false)
		b.holds("orders", 0)
		b.holds("error", 5)
		b.put("bad 6")
		equal(b, "parked by the third since Resume", one.Health().Parked != nil, true)
		var told []string
		for _, e := range watch.all() {
			told = append(told, fmt.Sprintf("%s %t %v", e.Endpoint, e.Parked, e.Park.MessageIDs))
		}
		if want := []string{"orders true [bad 1 bad 2 bad 3]", "orders false [bad 1 bad 2 bad 3]", "orders true [bad 4 bad 5 bad 6]"}; !slices.Equal(told, want) {
			b.Errorf("the observer was told %q, want %q", told, want)
		}
		stop()
		if err := <-done; err != nil {
			b.Errorf("RunAll returned %v", err)
		}
	})
}

// What is counted, in docs/recoverability.md#stopping-on-too-many-failures.
func TestR50_CountsMovesAlone(t *testing.T) {
	exhausted := immediate(1)
	for _, test := range []struct {
		name    string
		recover core.Recoverability
		answer  func(m *core.Message) error
		failed  func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error
		message string // its id, where unfitArrives knows it
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
		{
			name: "PutBack that is to count", recover: core.Recoverability{UnacceptableMessagePutBacks: true}, limit: 5,
			answer: func(*core.Message) error { return core.PutBack(errBoom, core.Pause{}) }, counts: true,
		},
		{
			name: "PutBack of the message alone that is to count", recover: core.Recoverability{UnacceptableMessagePutBacks: true}, limit: 5,
			answer: func(*core.Message) error { return core.PutBack(errBoom, core.Pause{Scope: core.PauseMessage}) }, counts: true,
		},
		{name: "Fallback", recover: exhausted, around: []core.Middleware{core.Fallback{
			On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error { return nil },
		}.Middleware()}, answer: func(*core.Message) error { return errBoom }},
		{name: "Fallback that fails", recover: exhausted, around: []core.Middleware{core.Fallback{
			On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error { return errBoom },
		}.Middleware()}, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "malformed", recover: exhausted, message: "malformed", faults: faults{arrive: unfitArrives}, counts: true},
		{name: "MaxDeliveries", recover: exhausted, message: "too-often", faults: faults{arrive: unfitArrives}, counts: true},
		{name: "undecodable", recover: exhausted, of: "number", counts: true},
		{name: "no handler", recover: exhausted, of: "unknown", counts: true},
		{name: "stored while the error queue is away", recover: exhausted, faults: faults{send: unreachableQueue("error")}, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "stored, and stored again", recover: exhausted, faults: faults{send: unreachableQueue("error")}, limit: 2, answer: func(*core.Message) error { return errBoom }},
		{name: "success", recover: exhausted, answer: func(*core.Message) error { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"invalid", "audit"}}); err != nil {
					b.Fatal(err)
				}
				b.broker.provoke(test.faults)
				test.recover.UnacceptableMessageLimit, test.recover.UnacceptableMessageAction = max(test.limit, 1), core.LimitPark
				ep := b.endpoint("orders", core.Config{Recoverability: test.recover, AuditQueue: "audit", Middleware: test.around})
				core.Handle(ep, "number", func(context.Context, *core.TypedMessage[int]) error { return nil })
				b.handle(ep, "order", func(_ context.Context, m *core.Message) error { return test.answer(m) })
				if test.failed != nil {
					core.HandleFailed(ep, "order", test.failed)
				}
				b.run(ep)
				m := order(cmp.Or(test.message, "m1"))
				m.Headers.Set(core.HeaderMessageTypes, cmp.Or(test.of, "order"))
				b.send(m)
				b.pass(time.Hour)
				equal(b, "counts", ep.Health().Parked != nil, test.counts)
			})
		})
	}
}

// What was fetched and not started is given back, also where the broker counts that; running
// handlers end as usual.
func TestR50_ParkedEndpointHoldsNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{
		"plain": locking, "ahead": aheadConfig(10 * time.Second),
		"counting": countingConfig(),
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, cfg, retrying, func(b *bed) {
				release := make(chan struct{})
				var handled record[string]
				ep, run := b.orders(core.Config{Concurrency: 2, Recoverability: parking(1)}, func(ctx context.Context, m *core.Message) error {
					if m.ID == "slow" {
						<-release
					}
					handled.add(m.ID)
					if m.ID == "slow" {
						return errBoom
					}
					return bad(ctx, m)
				})
				for i := range 20 {
					b.put(fmt.Sprint("fast", i)) // so that others are prefetched, where they may be
				}
				b.send(order("slow"))
				synctest.Wait() // it runs when the limit is reached
				waiting := []core.Outgoing{order("bad")}
				for i := range 20 {
					waiting = append(waiting, order(fmt.Sprint("late", i)))
				}
				b.send(waiting...)
				synctest.Wait()
				equal(b, "parked", ep.Health().Parked != nil, true)
				equal(b, "in flight with one handler running", b.depth("orders").InFlight, 1)
				equal(b, "MaxInFlight", b.newestMaxInFlight(), 0)
				close(release)
				b.pass(time.Hour)
				equal(b, "in flight", b.depth("orders").InFlight, 0)
				b.holds("orders", 20)
				b.holds("error", 2) // the one that ran too

				// Another instance has them all.
				var taken atomic.Int64
				second := b.endpoint("orders", core.Config{})
				b.handle(second, "order", func(context.Context, *core.Message) error { taken.Add(1); return nil })
				other := b.run(second)
				b.pass(time.Minute)
				equal(b, "handled by another instance", taken.Load(), 20)
				if err := other.stop(); err != nil {
					b.Error(err)
				}
				ep.Resume()
				b.put("last")
				b.pass(time.Minute)
				b.holds("orders", 0)
				equal(b, "handled by the resumed one", handled.len(), 23)
				if err := run.stop(); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func TestR50_ParkForEndsParking(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		recover := parking(1)
		recover.ParkFor = time.Minute
		ep, run := b.orders(core.Config{Concurrency: 1, Recoverability: recover}, bad)
		b.put("bad 1", "m1")
		b.pass(time.Minute - 1)
		equal(b, "parked just before", ep.Health().Parked != nil, true)
		equal(b, "in flight", b.depth("orders").InFlight, 0)
		b.holds("orders", 1)
		b.pass(1)
		equal(b, "parked after ParkFor", ep.Health().Parked != nil, false)
		b.holds("orders", 0)

		b.put("bad 2")
		b.pass(30 * time.Second)
		ep.Resume()
		b.put("bad 3")
		b.pass(59 * time.Second) // longer than the first of the two had
		equal(b, "parked by the newest", ep.Health().Parked != nil, true)
		ep.Pause()
		b.pass(time.Second)
		equal(b, "parked", ep.Health().Parked != nil, false)
		b.put("m2")
		b.holds("orders", 1) // it is still paused
		ep.Resume()
		b.holds("orders", 0)

		b.put("bad 4") // holds over several Runs
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		run = b.run(ep)
		b.put("m3")
		b.holds("orders", 1)
		equal(b, "lines", len(b.logs.about("the endpoint starts parked")), 1)
		b.pass(time.Minute)
		b.holds("orders", 0)

		b.put("bad 5") // and ends between two
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		b.pass(time.Minute)
		equal(b, "parked after its end", ep.Health().Parked != nil, false)
		b.run(ep)
		b.put("m4")
		b.holds("orders", 0)
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

func TestR50_RestartsMoveOneLimitAtMost(t *testing.T) {
	for _, action := range []core.LimitAction{core.LimitStop, core.LimitPark, core.LimitAuto} {
		t.Run(action.String(), func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				for i := range 40 {
					b.send(order(fmt.Sprint("bad ", i)))
				}
				store := &storedPark{}
				recover := parking(3)
				recover.UnacceptableMessageAction, recover.ParkStore = action, store
				var ep *core.Endpoint
				for range 10 {
					ep = b.endpoint("orders", core.Config{Concurrency: 1, Recoverability: recover}) // as a new process does
					b.handle(ep, "order", bad)
					run := b.launch(ep)
					b.pass(time.Minute)
					equal(b, "parked", ep.Health().Parked != nil, true)
					if err := run.stop(); err != nil && !errors.Is(err, core.ErrUnacceptableMessageLimit) {
						b.Errorf("Run returned %v", err)
					}
				}
				b.holds("error", 3)
				b.holds("orders", 37)
				equal(b, "failed, as stored", ep.Health().Parked.Failed, 3)
				ep.Resume()
				equal(b, "stored before Resume returns", *store.text.Load(), "null")
				run := b.launch(b.endpointWith(recover))
				b.pass(time.Minute)
				if err := run.stop(); err != nil && !errors.Is(err, core.ErrUnacceptableMessageLimit) {
					b.Errorf("Run returned %v", err)
				}
				b.holds("error", 6)
			})
		})
	}
}

// endpointWith makes "orders" with a handler for which bad messages fail.
func (b *bed) endpointWith(recover core.Recoverability) *core.Endpoint {
	b.Helper()
	ep := b.endpoint("orders", core.Config{Concurrency: 1, Recoverability: recover})
	b.handle(ep, "order", bad)
	return ep
}

func TestR50_StoredParkHasItsTime(t *testing.T) {
	bubble(t, func(b *bed) {
		store := &storedPark{}
		recover := parking(1)
		recover.ParkStore, recover.ParkFor = store, time.Hour
		run := b.run(b.endpointWith(recover))
		b.put("bad 1", "m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		b.pass(59 * time.Minute)
		second := b.endpointWith(recover)
		run = b.run(second)
		b.holds("orders", 1)
		b.pass(time.Minute)
		b.holds("orders", 0)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "saved", store.saved.Load(), 2) // the beginning, and the end
	})
}

func TestR50_ParkStoreThatFails(t *testing.T) {
	bubble(t, func(b *bed) {
		store := &storedPark{}
		store.failToLoad.Store(true)
		recover := parking(1)
		recover.ParkStore = store
		refusing := b.endpoint("orders", core.Config{Recoverability: recover, WaitForBroker: core.Off})
		if err := b.launch(refusing).wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "LoadPark") {
			b.Errorf("Run returned %v", err)
		}
		ep := b.endpointWith(recover)
		b.launch(ep)
		b.pass(time.Minute)
		if h := ep.Health(); !h.Starting || !errors.Is(h.ConnectionError, errBoom) || h.Connected {
			b.Errorf("while the store cannot be asked Health is %+v", h)
		}
		store.failToLoad.Store(false)
		store.fail.Store(true)
		b.pass(15 * time.Second)
		<-ep.Ready()
		b.put("bad 1", "m1")
		h := ep.Health()
		equal(b, "parked", h.Parked != nil, true)
		equal(b, "critical errors", h.CriticalErrors, 2) // the limit, and the store
		equal(b, "the store's error is the newest", errors.Is(h.LastCritical.Err, errBoom), true)
		b.holds("orders", 1)
		ep.Resume()
		b.holds("orders", 0)
	})
}

// Pauses, parks, Resume and ends of Run in any order lose nothing.
func TestR50_ParkAndResumeLoseNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"ahead": aheadConfig(10 * time.Second), "counting": countingConfig()} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, cfg, retrying, func(b *bed) {
				const messages = 500
				recover := parking(3)
				recover.ParkFor, recover.MaxDeliveries.Off = 200*time.Millisecond, true
				var good atomic.Int64
				ep, run := b.orders(core.Config{Recoverability: recover}, func(ctx context.Context, m *core.Message) error {
					time.Sleep(time.Duration(len(m.ID)) * time.Millisecond)
					err := bad(ctx, m)
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
					b.send(order(id))
				}
				for i := range 40 {
					switch i % 4 {
					case 0:
						ep.Pause()
					case 1:
						if err := run.stop(); err != nil {
							b.Error(err)
						}
						run = b.launch(ep)
					case 2:
						ep.Resume()
					}
					time.Sleep(time.Duration(i*7) * time.Millisecond)
				}
				ep.Resume()
				b.pass(time.Hour)
				b.holds("orders", 0)
				b.holds("error", messages/10)
				equal(b, "handled", good.Load(), messages*9/10)
			})
		})
	}
}
