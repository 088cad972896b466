// Package direct_test has the code of docs/using-a-transport-directly.md.
package direct_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: prepare
// prepare creates a queue and subscribes it to a topic.
func prepare(ctx context.Context, t core.Transport, queue, topic string) error {
	provisioner, ok := t.(core.Provisioner)
	if !ok {
		return errors.New("create the queue by the broker's own means")
	}
	if err := provisioner.Provision(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		return err
	}
	subscriber, ok := t.(core.Subscriber)
	if !ok || !t.Capabilities().PublishSubscribe {
		return errors.New("the broker has no topics")
	}
	if err := subscriber.Subscribe(ctx, queue, topic); err != nil {
		return err
	}
	select { // events reach the queue from now on; a test waits, a service need not
	case <-time.After(t.Capabilities().SubscriptionDelay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end

// snippet: send
// send sends messages, and repeats those that were not accepted while the broker is unavailable.
func send(ctx context.Context, t core.Transport, msgs ...core.Outgoing) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := t.Send(ctx, msgs...)
		if err == nil || core.IsPermanent(err) || ctx.Err() != nil {
			return err
		}
		if failed, ok := errors.AsType[*core.SendError](err); ok {
			var left []core.Outgoing
			for i, result := range failed.Results {
				if result.State != core.SendAccepted { // an unknown one may arrive twice
					left = append(left, msgs[i])
				}
			}
			msgs = left
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// end

// snippet: receive
// receive handles the messages of a queue, one after the other, until ctx ends.
func receive(ctx context.Context, t core.Transport, queue string, handle func(context.Context, *core.Incoming) error) error {
	r, err := t.OpenReceiver(ctx, core.ReceiverConfig{
		Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1,
		ConnectionChanged: func(c core.ConnectionChange) { log.Printf("connected: %t, error: %v", c.Connected, c.Err) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close(context.WithoutCancel(ctx)) }() // gives unsettled messages back
	dst := make([]core.Delivery, 1)
	for {
		if _, err := r.Receive(ctx, dst); err != nil { // an outage is not an error of Receive
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		switch err := handleOne(ctx, t, dst[0], handle); {
		case err == nil:
		case errors.Is(err, core.ErrLockLost), errors.Is(err, core.ErrUnavailable): // the message is redelivered
			log.Print(err)
		default:
			return err
		}
	}
}

// end

// snippet: settle
const maxDeliveries = 5

// handleOne handles a delivery and settles it.
func handleOne(ctx context.Context, t core.Transport, d core.Delivery, handle func(context.Context, *core.Incoming) error) error {
	work, cancel := context.WithCancelCause(ctx)
	go func() { cancel(transport.KeepLocked(work, d)) }() // ends the handling if the lock is lost
	failure := handle(work, d.Incoming())
	cancel(nil)

	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	in := d.Incoming()
	switch {
	case failure == nil:
		return d.Complete(limited)
	case in.DeliveryCount < maxDeliveries:
		return d.Abandon(limited, failure) // it is redelivered at once
	}
	moved := core.Outgoing{
		ID: in.ID, Queue: "error", Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native,
		Reason: core.ReasonMoveToError, // the broker accepted it once: no limit for applications applies
	}
	moved.Headers.Set(headers.ExceptionMessage, failure.Error())
	if err := t.Send(limited, moved); err != nil {
		return errors.Join(err, d.Release(limited))
	}
	return d.Complete(limited)
}

// end

// snippet: remove
// remove removes a queue and a topic of prepare.
func remove(ctx context.Context, t core.Transport, queue, topic string) error {
	remover, ok := t.(core.Remover)
	if !ok {
		return errors.New("remove the queue by the broker's own means")
	}
	return remover.Remove(ctx, []string{queue}, []string{topic})
}

// end

func TestDirectUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := inmemory.New(inmemory.Config{LockDuration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close(t.Context())
		for _, queue := range []string{"orders", "error"} {
			if err := prepare(t.Context(), memory, queue, queue+".happened"); err != nil {
				t.Fatal(err)
			}
		}
		err = send(t.Context(), memory,
			core.Outgoing{ID: "1", Queue: "orders", Body: []byte("command")},
			core.Outgoing{ID: "2", Topic: "orders.happened", Body: []byte("event")},
			core.Outgoing{ID: "3", Queue: "orders", Body: []byte("bad")})
		if err != nil {
			t.Fatal(err)
		}
		if err := send(t.Context(), memory, core.Outgoing{ID: "4", Queue: "nowhere"}); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("a send to a queue that does not exist: %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var handled []string
		err = receive(ctx, memory, "orders", func(_ context.Context, in *core.Incoming) error {
			time.Sleep(3 * time.Second) // longer than the lock
			handled = append(handled, string(in.Body))
			if string(in.Body) == "bad" {
				return errors.New("cannot be read")
			}
			return nil
		})
		if text := strings.Join(handled, " "); err != nil || text != "command event bad bad bad bad bad" {
			t.Errorf("handled %q, and receive returned %v", text, err)
		}
		page, err := memory.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
		if moved := page.Messages; err != nil || len(moved) != 1 || moved[0].ID != "3" || moved[0].Headers.Get(headers.ExceptionMessage) != "cannot be read" {
			t.Errorf("the error queue has %v, %v", moved, err)
		}
		if err := remove(t.Context(), memory, "orders", "orders.happened"); err != nil {
			t.Error(err)
		}
		if names, err := memory.ListQueues(t.Context()); err != nil || strings.Contains(fmt.Sprint(names), "orders") {
			t.Errorf("the queues are %s, %v", names, err)
		}
	})
}
