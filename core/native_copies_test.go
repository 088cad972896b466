package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/messagekit"
)

// nativeMessage stands for the message of a client library.
type nativeMessage struct{ nativeID string }

// recordNative gives every received message a native one. It records the reason of each send
// with a native message, and reports those whose native message is not that of a delivery
// of their message.
func recordNative(fx *fixture, more faults) *recorder[string] {
	var copies recorder[string]
	var newest *nativeMessage
	onReceive, send := more.onReceive, more.send
	more.onReceive = func(in *core.Incoming) {
		newest = &nativeMessage{in.NativeID}
		in.Native = newest
		if onReceive != nil {
			onReceive(in)
		}
	}
	more.send = func(out []core.Outgoing) error {
		if send != nil {
			if err := send(out); err != nil {
				return err
			}
		}
		for _, o := range out {
			switch native, ok := o.Native.(*nativeMessage); {
			case ok && native != newest:
				fx.Errorf("the %v has the native message of delivery %q, want that of %q", o.Reason, native.nativeID, newest.nativeID)
			case ok:
				copies.add(o.Reason.String())
			default:
				copies.add(o.Reason.String() + " without it")
			}
		}
		return nil
	}
	fx.broker.setFaults(more)
	return &copies
}

// Each copy that the engine makes comes with the native message of the delivery, so that the
// adapter can send it as it was. After the first delivery, which
// the case handles, the handler fails.
func TestCopies_HaveTheNativeMessage(t *testing.T) {
	counts := withCapabilities(func(c *core.Capabilities) { c.CountsReleases = true })
	delayed := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}, RequeueDelay: time.Second}
	for name, c := range map[string]struct {
		handle func(context.Context, *core.Message) error // at the first delivery
		want   string
	}{
		"delayed retry": {
			handle: func(context.Context, *core.Message) error { return errBoom },
			want:   "delayed retry, move to the error queue",
		},
		"retry that the handler requested": {
			handle: func(context.Context, *core.Message) error { return core.RetryAfter(errBoom, time.Second) },
			want:   "delayed retry, delayed retry, move to the error queue",
		},
		"deferral": {
			handle: func(context.Context, *core.Message) error { return core.Defer(errBoom, time.Second) },
			want:   "deferral, delayed retry, move to the error queue",
		},
		"refusal": {
			handle: func(context.Context, *core.Message) error { return core.Refuse(errBoom, time.Second) },
			want:   "deferral, delayed retry, move to the error queue",
		},
		"put back": {
			handle: func(context.Context, *core.Message) error { return core.PutBack(errBoom, time.Second) },
			want:   "deferral, delayed retry, move to the error queue",
		},
		"audit copy": {
			handle: func(context.Context, *core.Message) error { return nil },
			want:   "audit copy",
		},
		"forwarded copy": {
			handle: func(_ context.Context, m *core.Message) error { return m.Forward("shipping") },
			want:   "forwarded copy, audit copy",
		},
		"forwarded copy that is sent at once": {
			handle: func(ctx context.Context, m *core.Message) error { return m.ForwardNow(ctx, "shipping") },
			want:   "forwarded copy, audit copy",
		},
		"forwarded copy from a store": {
			handle: func(_ context.Context, m *core.Message) error {
				stored := messagekit.Copy(m)
				stored.Queue, stored.Native = "shipping", nil
				return errors.Join(messagekit.Resend(m, stored), messagekit.Commit(m, []core.Outgoing{stored}, nil))
			},
			want: "forwarded copy, audit copy",
		},
		"message that handlers send": {
			handle: func(_ context.Context, m *core.Message) error { return m.Send("shipping", orderType.Of(nil)) },
			want:   "send without it, audit copy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, counts, retryModes, func(fx *fixture) {
				copies := recordNative(fx, faults{})
				runs := 0
				fx.runOrders(core.Config{Recoverability: delayed, AuditQueue: "audit"}, func(ctx context.Context, m *core.Message) error {
					if runs++; runs == 1 {
						return c.handle(ctx, m)
					}
					return errBoom
				})
				fx.enqueue("m1")
				fx.advance(time.Hour)
				equal(fx, "copies", strings.Join(copies.all(), ", "), c.want)
			})
		})
	}
}

// A message that was stored leaves with the native message of its newest delivery.
func TestCopies_StoredMessageHasTheNativeMessageOfTheNewestDelivery(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		copies := recordNative(fx, refuseWhile("error", since(time.Now())))
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.advance(3 * time.Hour)
		fx.wantDepth("error", 1)
		all := copies.all()
		for i, got := range all {
			want := "undelivered copy"
			if i == len(all)-1 {
				want = "move to the error queue"
			}
			equal(fx, fmt.Sprint("copy ", i), got, want)
		}
		if len(all) < 3 {
			fx.Errorf("the copies are %q", all)
		}
	})
}

// Any native property may be the part that the broker refuses.
func TestCopies_SmallestFormHasNoNativeMessage(t *testing.T) {
	inModesWith(t, ungrouped, retryModes, func(fx *fixture) {
		copies := recordNative(fx, faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.Native != nil {
					return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: fmt.Errorf("%w: bad", core.ErrInvalidHeader)}}}
				}
			}
			return nil
		}})
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.wantDepth("error", 1)
		equal(fx, "copies", fmt.Sprint(copies.all()), "[move to the error queue without it]")
		if lines := fx.logs.find("message was moved without headers of its sender"); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]), "the native properties") {
			fx.Errorf("logged %v", lines)
		}
	})
}
