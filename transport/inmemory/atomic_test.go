package inmemory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// sendingSettlements are the two that send and consume.
var sendingSettlements = map[string]func(context.Context, core.Delivery, ...core.Outgoing) error{
	"CompleteWith": func(ctx context.Context, d core.Delivery, out ...core.Outgoing) error {
		return d.CompleteWith(ctx, out)
	},
	"ReplaceWith": func(ctx context.Context, d core.Delivery, out ...core.Outgoing) error {
		return d.ReplaceWith(ctx, out)
	},
}

// Rule C12.
func TestCompleteWith_SendsAndConsumesOrNeither(t *testing.T) {
	for name, settle := range sendingSettlements {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{}, "q", "out", "subscriber")
			succeed(t, transport.Subscribe(t.Context(), "subscriber", "topic"))
			send(t, transport, message("q", "a"))
			d := receive(t, receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1), "a")
			body := []byte("copied")
			out := core.Outgoing{ID: "x", Queue: "out", Body: body}
			succeed(t, settle(t.Context(), d, out, delayed(message("q", "own queue"), time.Hour, 0),
				core.Outgoing{ID: "y", Topic: "topic", Body: []byte("event")}, core.Outgoing{ID: "z", Topic: "nobody's"}))
			copy(body, "EVIL!!")
			depth(t, transport, "q", queues.Depth{Delayed: 1})
			receive(t, peekLock(t, transport, "out"), "copied")
			receive(t, peekLock(t, transport, "subscriber"), "event")
		})
	}
}

// Rule C12.
func TestCompleteWith_OneRefusedMessageStopsAll(t *testing.T) {
	var badHeader core.Headers
	badHeader.Set("", "")
	for verb, settle := range sendingSettlements {
		for name, c := range map[string]struct {
			bad  core.Outgoing
			want error
		}{
			"unknown queue": {message("missing", "bad"), core.ErrQueueNotFound},
			"bad header":    {core.Outgoing{ID: "bad", Queue: "out", Headers: badHeader}, core.ErrInvalidHeader},
			"too large":     {core.Outgoing{ID: "bad", Queue: "out", Body: make([]byte, 1001)}, core.ErrTooLarge},
			"unsupported":   {delayed(message("out", "bad"), 2*time.Hour, 0), errors.ErrUnsupported},
		} {
			inBubble(t, verb+", "+name, func(t *testing.T) {
				transport := open(t, inmemory.Config{Capabilities: able(func(caps *core.Capabilities) {
					caps.MaxMessageBytes, caps.MaxDelay = 1000, time.Hour
				})}, "q", "out")
				send(t, transport, message("q", "a"))
				d := receive(t, receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1), "a")
				err := settle(t.Context(), d, message("out", "good"), c.bad, message("out", "good"))
				failWith(t, err, c.want)
				var failed *core.SendError
				if !errors.As(err, &failed) || len(failed.Results) != 3 {
					t.Fatalf("no *SendError with three results: %v", err)
				}
				for _, result := range failed.Results {
					if result.State != core.SendRefused {
						t.Errorf("result %+v, want refused", result)
					}
				}
				if !strings.Contains(err.Error(), `"q"`) {
					t.Errorf("the error does not name the queue: %v", err)
				}
				depth(t, transport, "q", queues.Depth{Locked: 1})
				depth(t, transport, "out", queues.Depth{})
				succeed(t, settle(t.Context(), d, message("out", "good"))) // another may be tried
				depth(t, transport, "q", queues.Depth{})
				depth(t, transport, "out", queues.Depth{Ready: 1})
			})
		}
	}
}

// Rule C12.
func TestCompleteWith_LostDeliverySendsNothing(t *testing.T) {
	for verb, settle := range sendingSettlements {
		for name, lose := range map[string]func(*testing.T, core.Receiver, core.Delivery){
			"lock expired":    func(*testing.T, core.Receiver, core.Delivery) { time.Sleep(time.Minute) },
			"receiver closed": func(t *testing.T, r core.Receiver, _ core.Delivery) { succeed(t, r.Close(t.Context())) },
			"settled":         func(t *testing.T, _ core.Receiver, d core.Delivery) { succeed(t, d.Release(t.Context())) },
		} {
			inBubble(t, verb+", "+name, func(t *testing.T) {
				transport := open(t, inmemory.Config{LockDuration: time.Minute}, "q", "out")
				send(t, transport, message("q", "a"))
				r := receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1)
				d := receive(t, r, "a")
				lose(t, r, d)
				if err := settle(t.Context(), d, message("out", "x")); err == nil {
					t.Error("it was settled")
				}
				depth(t, transport, "out", queues.Depth{})
				depth(t, transport, "q", queues.Depth{Ready: 1})
			})
		}
	}
}

// Rule C12.
func TestReset_KeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		send(t, transport, message("q", "a"))
		d := receive(t, receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1), "a")
		if d.BindContext(t.Context()) != t.Context() {
			t.Error("BindContext returned another context")
		}
		succeed(t, d.Reset(t.Context()))
		succeed(t, d.Reset(t.Context()))
		depth(t, transport, "q", queues.Depth{Locked: 1})
		succeed(t, d.CompleteWith(t.Context(), nil))
		depth(t, transport, "q", queues.Depth{})
	})
}
