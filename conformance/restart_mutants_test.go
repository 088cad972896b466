package conformance

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var restartMutants = []mutant{
	{rule: "C7", name: "keeps what waits in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		s.takeAll(t)
	})},
	{rule: "C7", name: "completes a moment after Complete has returned nil", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, operation string, next func() error) error {
			if operation != "Complete" {
				return next()
			}
			time.AfterFunc(time.Millisecond, func() { _ = next() })
			return nil
		}}
	}},
	{rule: "C2", name: "says that a message was refused when there was no answer", onServer: true, breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if sent, ok := errors.AsType[*core.SendError](err); ok {
				for i := range sent.Results {
					if sent.Results[i].State == core.SendUnknown {
						sent.Results[i].State = core.SendRefused
					}
				}
			}
			return err
		}}
	}},
	{rule: "C2", name: "keeps what waits in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		s.takeAll(t)
	})},
	{rule: "C12", name: "sends although the receive can no longer be committed", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "CompleteWith" && errors.Is(err, core.ErrLockLost) {
				_ = d.receiver.transport.base.Send(ctxBackground, d.out...)
			}
			return err
		}}
	}},
	{rule: "R28", name: "gives a message another NativeID at each delivery", onServer: true, breaks: func() changes {
		var mu sync.Mutex
		deliveries := 0
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			deliveries++
			in.NativeID = strconv.Itoa(deliveries)
		}}
	}},
	{rule: "C13", name: "keeps delayed messages in memory, and claims to be durable", onServer: true, breaks: func() changes {
		return changes{send: func(t *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if out[0].Delay == 0 {
				return next(ctx, out...)
			}
			lost, delay := t.base.(*remote).lost(), out[0].Delay
			out[0].Delay = 0
			time.AfterFunc(delay, func() {
				select {
				case <-lost: // and all that the broker had in memory
				default:
					_ = next(ctxBackground, out...)
				}
			})
			return nil
		}}
	}},
	{rule: "C9", name: "keeps counts in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		for queue, all := range s.takeAll(t) {
			for _, in := range all {
				_ = t.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: queue, Headers: in.Headers, Body: in.Body})
			}
		}
	})},
	{rule: "C19", name: "keeps subscriptions in memory, and claims to be durable", onServer: true, breaks: func() changes {
		// The subscription is a copy that the subscriber's connection makes.
		return changes{subscribe: func(t *broken, queue string, topics []string, next func() error) error {
			err := next()
			lost := t.base.(*remote).lost()
			s := t.base.(*remote).server
			go func() {
				<-lost
				transport, err := inmemory.New(inmemory.Config{Broker: s.stage.broker})
				if err == nil {
					_ = transport.Unsubscribe(ctxBackground, queue, topics...)
				}
			}()
			return err
		}}
	}},
	{rule: "C7", name: "loses what it holds when the broker dies", onServer: true, breaks: consumesEarly},
}

// atDeath lets something happen to what the broker holds when it is killed, by a
// transport of its own.
func atDeath(do func(s *server, t *inmemory.Transport)) func(h *Harness) {
	return func(h *Harness) {
		h.Broker.(*server).faults.killed = func(s *server) {
			t, err := inmemory.New(inmemory.Config{Broker: s.stage.broker})
			if err != nil {
				panic(err)
			}
			do(s, t)
			_ = t.Close(ctxBackground)
		}
	}
}

// takeAll takes what waits in every queue.
func (s *server) takeAll(t *inmemory.Transport) map[string][]*core.Incoming {
	taken := map[string][]*core.Incoming{}
	for _, queue := range s.stage.broker.Queues() {
		depth, err := t.Depth(queue)
		if err != nil || depth.Ready == 0 {
			continue
		}
		r, err := t.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: queue, Mode: core.TransactionNone, MaxInFlight: 1})
		if err != nil {
			continue
		}
		got := make([]core.Delivery, depth.Ready)
		n, _ := r.Receive(ctxBackground, got)
		for _, d := range got[:n] {
			taken[queue] = append(taken[queue], d.Incoming())
		}
		_ = r.Close(ctxBackground)
	}
	return taken
}
