package core_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// runCalls notes calls of RunStarted and RunEnded, and the Health at those times.
type runCalls struct{ recorder[string] }

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
	bubble(t, func(fx *fixture) {
		var seen runCalls
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		for range 2 {
			if err := fx.run(ep).stop(); err != nil {
				fx.Error(err)
			}
		}
		want := "[orders started, starting true, running false orders ended, running false, dropped 0, err <nil> orders started, starting true, running false orders ended, running false, dropped 0, err <nil>]"
		equal(fx, "calls", fmt.Sprint(seen.all()), want)
	})
}

func TestRunObserver_ErrorOfRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen runCalls
		recover := noRetries
		recover.UnacceptableMessageLimit.Count = 1
		_, run := fx.runOrders(core.Config{Recoverability: recover, Observers: []core.Observer{seen.observer()}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		err := run.wait()
		if !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			fx.Fatal(err)
		}
		equal(fx, "last call", seen.all()[1], fmt.Sprintf("orders ended, running false, dropped 0, err %v", err))
	})
}

func TestRunObserver_RunThatCouldNotStart(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen runCalls
		ep := fx.newEndpoint("nowhere", core.Config{Provision: core.ProvisionNever, Observers: []core.Observer{seen.observer()}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		err := fx.start(ep).wait()
		if !errors.Is(err, core.ErrQueueNotFound) {
			fx.Fatal(err)
		}
		equal(fx, "calls", fmt.Sprint(seen.all()), fmt.Sprintf("[nowhere started, starting true, running false nowhere ended, running false, dropped 0, err %v]", err))
	})
}

// A Run that waits for its broker is visible from its beginning, and one that never receives has an end.
func TestRunObserver_RunThatWaits(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen runCalls
		var tries int
		fx.failOpening(&tries)
		run := fx.start(fx.newEndpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}}))
		equal(fx, "calls while it waits", fmt.Sprint(seen.all()), "[orders started, starting true, running false]")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "calls", seen.len(), 2)
	})
}

// A Run that is refused because another is in progress is no Run.
func TestRunObserver_RefusedRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen runCalls
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{seen.observer()}})
		fx.run(ep)
		if err := ep.Run(fx.Context()); err == nil {
			fx.Error("a second Run is not refused")
		}
		equal(fx, "calls", seen.len(), 1)
	})
}

func TestRunObserver_PanicChangesNothing(t *testing.T) {
	bubble(t, func(fx *fixture) {
		_, run := fx.runOrders(core.Config{Observers: []core.Observer{panickingRunObserver{}.observer()}}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "lines", len(fx.logs.find("an observer or hook panicked")), 2)
	})
}

type panickingRunObserver struct{}

func (panickingRunObserver) RunStarted(context.Context, *core.Endpoint)      { panic("RunStarted") }
func (panickingRunObserver) RunEnded(context.Context, *core.Endpoint, error) { panic("RunEnded") }

func (p panickingRunObserver) observer() core.Observer {
	return core.Observer{RunStarted: p.RunStarted, RunEnded: p.RunEnded}
}

// describedTransport is a transport that tells of a server.
type describedTransport struct{ *faultyTransport }

func (describedTransport) Describe() core.TransportInfo {
	return core.TransportInfo{System: "carrier-pigeon", ServerAddress: "loft", ServerPort: 17}
}

// undescribedTransport is a Describer that does not know.
type undescribedTransport struct{ *faultyTransport }

func (undescribedTransport) Describe() core.TransportInfo { return core.TransportInfo{} }

func TestObservedEndpoint_TellsTheTransport(t *testing.T) {
	bubble(t, func(fx *fixture) {
		for _, c := range []struct {
			name      string
			transport core.Transport
			want      string
		}{
			{"known", describedTransport{fx.broker}, "&{carrier-pigeon loft 17}"},
			{"unknown", undescribedTransport{fx.broker}, "<nil>"},
		} {
			var seen recorder[*core.TransportInfo]
			starts := sendStartFunc(func(e core.Sending) { seen.add(e.Transport) })
			ep, err := core.New(c.name, c.transport, core.Config{Observers: []core.Observer{starts}})
			if err != nil {
				fx.Fatal(err)
			}
			for range 2 {
				if err := ep.Invoke(fx.Context(), xType.Of("y")); !errors.Is(err, core.ErrNoHandler) {
					fx.Fatal(err)
				}
			}
			if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"orders"}}); err != nil {
				fx.Fatal(err)
			}
			for range 2 {
				if err := ep.Send(fx.Context(), "orders", orderStringType.Of("x")); err != nil {
					fx.Fatal(err)
				}
			}
			infos := seen.all()
			if len(infos) != 2 || infos[0] != infos[1] || fmt.Sprint(infos[0]) != c.want {
				fx.Errorf("%s: told %v, want the same %s twice", c.name, infos, c.want)
			}
		}
	})
}

// sendStartFunc returns an observer that calls f at the start of each send.
func sendStartFunc(f func(e core.Sending)) core.Observer {
	return core.Observer{SendStart: func(ctx context.Context, e core.Sending) context.Context {
		f(e)
		return ctx
	}}
}

func TestMessage_NativeIDNamesTheCopy(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen recorder[string]
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}}, func(_ context.Context, m *core.Message) error {
			seen.add(m.NativeID())
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(time.Minute)
		ids := seen.all()
		if len(ids) != 4 || ids[0] == "" || ids[0] != ids[1] || ids[2] != ids[3] || ids[0] == ids[2] {
			fx.Errorf("the native ids are %q; want one for the two attempts of each round", ids)
		}
	})
}

func TestRecovery_TellsTheFirstFailure(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var first recorder[time.Time]
		observer := onRecovery(func(_ context.Context, e core.Recovery) { first.add(e.Failure.FirstFailure) })
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 2}}
		fx.runOrders(core.Config{Recoverability: recover, Observers: []core.Observer{observer}}, func(context.Context, *core.Message) error { return errBoom })
		began := time.Now()
		fx.enqueue("m1")
		fx.advance(time.Hour)
		got := first.all()
		if len(got) != 3 || !got[0].IsZero() || !got[1].Equal(began) || !got[2].Equal(began) {
			fx.Errorf("told %v, want none, then %v twice", got, began)
		}
	})
}

func TestErrorTypeOf_IsThatOfTheHeader(t *testing.T) {
	equalText := func(subject, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", subject, got, want)
		}
	}
	equalText("no error", core.ErrorTypeOf(nil), "")
	for name, err := range map[string]error{
		"plain":   errBoom,
		"wrapped": fmt.Errorf("read order: %w", &fs.PathError{Op: "open", Path: "x", Err: errBoom}),
		"joined":  errors.Join(&fs.PathError{Op: "open", Path: "x", Err: errBoom}, errBoom),
		"verdict": core.GiveUp(&fs.PathError{Op: "open", Path: "x", Err: errBoom}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return err })
				fx.enqueue("m1")
				equal(fx, "type", core.ErrorTypeOf(err), fx.onlyMessage("error").Headers.Get(headers.ExceptionType))
			})
		})
	}
}
