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
	inModes(t, everyMode, func(b *bed) {
		var handled record[string]
		h := func(_ context.Context, m *core.Message) error { handled.add(m.ID); return nil }
		elsewhere, late := order("m2"), order("m3")
		elsewhere.Queue = "shipping"
		late.Delay = time.Minute
		b.send(order("m1"), elsewhere, late)
		ep, running := b.orders(core.Config{PurgeOnStart: true, Instance: "one"}, h)
		b.put("m4")
		equal(b, "handled", fmt.Sprint(handled.all()), "[m4]")
		b.pass(time.Hour)
		equal(b, "handled when the delayed one was due", fmt.Sprint(handled.all()), "[m4 m3]")
		b.holds("shipping", 1)
		lines := b.logs.about("emptied")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["messages"]) != "1" {
			b.Errorf("logged %v", lines)
		}
		equal(b, "Config", ep.Config().PurgeOnStart, true)
		b.must(running.stop())

		b.send(order("m5"))
		b.orders(core.Config{Instance: "two"}, h)
		synctest.Wait()
		equal(b, "handled without PurgeOnStart", fmt.Sprint(handled.all()), "[m4 m3 m5]")
	})
}

// unpurgeable is a transport that answers Purge with an error.
type unpurgeable struct {
	*faulty
	err error
}

func (u unpurgeable) Purge(context.Context, string) (int, error) { return 0, u.err }

// An endpoint that cannot empty its queue does not start.
func TestPurgeOnStart_FailureEndsRun(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, err := core.New("orders", unpurgeable{b.broker, errBoom}, core.Config{PurgeOnStart: true})
		b.must(err)
		b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		b.send(order("m1"))
		if err := ep.Run(b.Context()); !errors.Is(err, errBoom) || !containsAll(err.Error(), `purge queue "orders"`) {
			b.Errorf("Run returned %v", err)
		}
		b.holds("orders", 1)
	})
}
