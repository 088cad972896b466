package core_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// runCalls notes calls of RunStarted and RunEnded, and what Health told then.
type runCalls struct{ record[string] }

func (r *runCalls) RunStarted(_ context.Context, ep *core.Endpoint) {
	h := ep.Health()
	r.add(fmt.Sprintf("%s started, starting %t, running %t", ep.Name(), h.Starting, h.Running))
}

func (r *runCalls) RunEnded(_ context.Context, ep *core.Endpoint, err error) {
	h := ep.Health()
	r.add(fmt.Sprintf("%s ended, running %t, dropped %d, err %v", ep.Name(), h.Running, h.NotificationsDropped, err))
}

func (r *runCalls) observer() core.Observer {
	return core.Observer{RunStarted: r.RunStarted, RunEnded: r.RunEnded}
}

func TestRunObserver_EveryRunOnce(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen runCalls
		ep := b.endpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		for range 2 {
			if err := b.run(ep).stop(); err != nil {
				b.Error(err)
			}
		}
		want := "[orders started, starting true, running false orders ended, running false, dropped 0, err <nil> orders started, starting true, running false orders ended, running false, dropped 0, err <nil>]"
		equal(b, "calls", fmt.Sprint(seen.all()), want)
	})
}

func TestRunObserver_ErrorOfRun(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen runCalls
		recover := noRetries
		recover.UnacceptableMessageLimit = 1
		_, run := b.orders(core.Config{Recoverability: recover, Observers: []core.Observer{seen.observer()}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		err := run.wait()
		if !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			b.Fatal(err)
		}
		equal(b, "last call", seen.all()[1], fmt.Sprintf("orders ended, running false, dropped 0, err %v", err))
	})
}

func TestRunObserver_RunThatCouldNotStart(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen runCalls
		ep := b.endpoint("nowhere", core.Config{Provision: core.ProvisionNever, Observers: []core.Observer{seen.observer()}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		err := b.launch(ep).wait()
		if !errors.Is(err, core.ErrQueueNotFound) {
			b.Fatal(err)
		}
		equal(b, "calls", fmt.Sprint(seen.all()), fmt.Sprintf("[nowhere started, starting true, running false nowhere ended, running false, dropped 0, err %v]", err))
	})
}

// A Run that waits for its broker is visible from its beginning, and one that never receives has an end.
func TestRunObserver_RunThatWaits(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen runCalls
		var tries int
		b.away(&tries)
		run := b.launch(b.endpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}}))
		equal(b, "calls while it waits", fmt.Sprint(seen.all()), "[orders started, starting true, running false]")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "calls", seen.len(), 2)
	})
}

// A Run that is refused because another is in progress is no Run.
func TestRunObserver_RefusedRun(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen runCalls
		ep := b.endpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		b.run(ep)
		if err := ep.Run(b.Context()); err == nil {
			b.Error("a second Run is not refused")
		}
		equal(b, "calls", seen.len(), 1)
	})
}

func TestRunObserver_PanicChangesNothing(t *testing.T) {
	bubble(t, func(b *bed) {
		_, run := b.orders(core.Config{Observers: []core.Observer{panickyRuns{}.observer()}}, func(context.Context, *core.Message) error { return nil })
		b.put("m1")
		b.holds("orders", 0)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "lines", len(b.logs.about("an observer or hook panicked")), 2)
	})
}

type panickyRuns struct{}

func (panickyRuns) RunStarted(context.Context, *core.Endpoint)      { panic("RunStarted") }
func (panickyRuns) RunEnded(context.Context, *core.Endpoint, error) { panic("RunEnded") }

func (p panickyRuns) observer() core.Observer {
	return core.Observer{RunStarted: p.RunStarted, RunEnded: p.RunEnded}
}

// pigeonPost is a transport that tells of a server.
type pigeonPost struct{ *faulty }

func (pigeonPost) Describe() core.TransportInfo {
	return core.TransportInfo{System: "carrier-pigeon", ServerAddress: "loft", ServerPort: 17}
}

// unknownPost is a Describer that does not know.
type unknownPost struct{ *faulty }

func (unknownPost) Describe() core.TransportInfo { return core.TransportInfo{} }

func TestObservedEndpoint_TellsTheTransport(t *testing.T) {
	bubble(t, func(b *bed) {
		for _, c := range []struct {
			name      string
			transport core.Transport
			want      string
		}{
			{"known", pigeonPost{b.broker}, "&{carrier-pigeon loft 17}"},
			{"unknown", unknownPost{b.broker}, "<nil>"},
		} {
			var seen record[*core.TransportInfo]
			starts := sendStartFunc(func(e core.SendStart) { seen.add(e.Transport) })
			ep, err := core.New(c.name, c.transport, core.Config{Observers: []core.Observer{starts}})
			if err != nil {
				b.Fatal(err)
			}
			for range 2 {
				if err := ep.Invoke(b.Context(), "x", "y"); !errors.Is(err, core.ErrNoHandler) {
					b.Fatal(err)
				}
			}
			if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"orders"}}); err != nil {
				b.Fatal(err)
			}
			for range 2 {
				if err := ep.Send(b.Context(), "orders", "order", "x"); err != nil {
					b.Fatal(err)
				}
			}
			infos := seen.all()
			if len(infos) != 2 || infos[0] != infos[1] || fmt.Sprint(infos[0]) != c.want {
				b.Errorf("%s: told %v, want the same %s twice", c.name, infos, c.want)
			}
		}
	})
}

// sendStartFunc returns an observer that calls f at the start of each send.
func sendStartFunc(f func(e core.SendStart)) core.Observer {
	return core.Observer{SendStart: func(ctx context.Context, e core.SendStart) context.Context {
		f(e)
		return ctx
	}}
}

func TestMessage_NativeIDNamesTheCopy(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen record[string]
		b.orders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1}}}, func(_ context.Context, m *core.Message) error {
			seen.add(m.NativeID())
			return errBoom
		})
		b.put("m1")
		b.pass(time.Minute)
		ids := seen.all()
		if len(ids) != 4 || ids[0] == "" || ids[0] != ids[1] || ids[2] != ids[3] || ids[0] == ids[2] {
			b.Errorf("the native ids are %q; want one for the two attempts of each round", ids)
		}
	})
}

func TestRecovery_TellsTheFirstFailure(t *testing.T) {
	bubble(t, func(b *bed) {
		var first record[time.Time]
		observer := onRecovery(func(_ context.Context, e core.Recovery) { first.add(e.FirstFailure) })
		recover := core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 2}}
		b.orders(core.Config{Recoverability: recover, Observers: []core.Observer{observer}}, func(context.Context, *core.Message) error { return errBoom })
		began := time.Now()
		b.put("m1")
		b.pass(time.Hour)
		got := first.all()
		if len(got) != 3 || !got[0].IsZero() || !got[1].Equal(began) || !got[2].Equal(began) {
			b.Errorf("told %v, want none, then %v twice", got, began)
		}
	})
}

func TestErrorTypeOf_IsThatOfTheHeader(t *testing.T) {
	equalText := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	equalText("no error", core.ErrorTypeOf(nil), "")
	for name, err := range map[string]error{
		"plain":   errBoom,
		"wrapped": fmt.Errorf("read order: %w", &fs.PathError{Op: "open", Path: "x", Err: errBoom}),
		"joined":  errors.Join(&fs.PathError{Op: "open", Path: "x", Err: errBoom}, errBoom),
		"verdict": core.Reject(&fs.PathError{Op: "open", Path: "x", Err: errBoom}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return err })
				b.put("m1")
				equal(b, "type", core.ErrorTypeOf(err), b.only("error").Headers.Get(core.HeaderExceptionType))
			})
		})
	}
}
