package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// PurgeOnStart empties the input queue before the first message, and nothing else.
func TestPurgeOnStart_EmptiesTheInputQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var handled recorder[string]
		h := func(_ context.Context, m *core.Message) error { handled.add(m.ID); return nil }
		elsewhere, late := order("m2"), order("m3")
		elsewhere.Queue = "shipping"
		late.Delay = time.Minute
		fx.send(order("m1"), elsewhere, late)
		ep, running := fx.runOrders(core.Config{PurgeOnStart: true, Instance: "one"}, h)
		fx.enqueue("m4")
		equal(fx, "handled", fmt.Sprint(handled.all()), "[m4]")
		fx.advance(time.Hour)
		equal(fx, "handled when the delayed one was due", fmt.Sprint(handled.all()), "[m4 m3]")
		fx.wantDepth("shipping", 1)
		lines := fx.logs.find("emptied")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["messages"]) != "1" {
			fx.Errorf("logged %v", lines)
		}
		equal(fx, "Config", ep.Config().PurgeOnStart, true)
		fx.noError(running.stop())

		fx.send(order("m5"))
		fx.runOrders(core.Config{Instance: "two"}, h)
		synctest.Wait()
		equal(fx, "handled without PurgeOnStart", fmt.Sprint(handled.all()), "[m4 m3 m5]")
	})
}

// unpurgeable is a transport that answers Purge with an error.
type unpurgeable struct {
	*faultyTransport
	err error
}

func (u unpurgeable) Purge(context.Context, string) (int, error) { return 0, u.err }

// An endpoint that cannot empty its queue does not start.
func TestPurgeOnStart_FailureEndsRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep, err := core.New("orders", unpurgeable{fx.broker, errBoom}, core.Config{PurgeOnStart: true})
		fx.noError(err)
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		fx.send(order("m1"))
		if err := ep.Run(fx.Context()); !errors.Is(err, errBoom) || !containsAll(err.Error(), `purge queue "orders"`) {
			fx.Errorf("Run returned %v", err)
		}
		fx.wantDepth("orders", 1)
	})
}
