//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

// longestLock is longer than the patience of tests: a message that is not given back does not come a second time.
const longestLock = 5 * time.Minute

// stoppedClock is the configuration of a server whose clock stands still, so that it ends no lock and drops no message.
func stoppedClock() sbserver.Config {
	return sbserver.Config{Broker: broker.Config{Clock: clock.NewFake(time.Now())}}
}

// awaitTime waits until a time is past, by the clock that the adapter goes by.
func awaitTime(t testing.TB, end time.Time) {
	t.Helper()
	await(t, "it is "+end.String(), func() bool { return time.Now().After(end) })
}

func TestReceiver_AsksForNoMoreMessagesThanItHasPlaces(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	const messages = 60
	bodies := make([]string, messages)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	send(t, transport, "q", bodies...)
	r := openReceiver(t, transport, "q", 4)
	for range messages {
		if err := take(t, r, 1)[0].Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Count(sbserver.OpAbandon, "q"); n != 0 {
		t.Errorf("%d messages were given back, because there was no place for them", n)
	}
}

func TestReceiver_OpensFurtherLinksWhileRequestsComeBackFull(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	r := openReceiver(t, transport, "q", 300) // one request asks for 256 at most
	send(t, transport, "q", "opens the link by which locks are renewed")
	complete(t, take(t, r, 1)[0])
	before := s.Count(sbserver.OpAttachReceiver, "q")
	bodies := make([]string, 300)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	await(t, "it opens another link", func() bool {
		send(t, transport, "q", bodies...)
		for _, d := range take(t, r, len(bodies)) {
			complete(t, d)
		}
		return s.Count(sbserver.OpAttachReceiver, "q") > before
	})
}

// The service forgets messages that it sends in this mode: those that no call has asked for would be lost with the process.
func TestReceiver_InModeNoneAsksOnlyForMessagesThatReceiveWaitsFor(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "a", "b", "c", "d", "e")
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionNone, MaxInFlight: 5})
	if err != nil {
		t.Fatal(err)
	}
	take(t, r, 1)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(sbserver.OpSend, "q"); n != 1 {
		t.Errorf("messages were sent to the queue again in %d requests, because they were received and no Receive had asked for them", n-1)
	}
}

func TestReceive_CallsAtTheSameTimeShareMessages(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	r := openReceiver(t, transport, "q", 10)
	const calls = 4
	for range 10 {
		var receiving sync.WaitGroup
		for range calls {
			receiving.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				dst := make([]core.Delivery, 1)
				if _, err := r.Receive(ctx, dst); err != nil {
					t.Error(err)
				} else if err := dst[0].Complete(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		send(t, transport, "q", "a", "b", "c", "d")
		receiving.Wait()
	}
}

func TestReceiver_MessageThatExpiresWhileItWaitsLeavesItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deadLetters bool // the queue does, on expiration
		settlement  sbserver.Op
	}{
		"it is dropped":       {false, sbserver.OpComplete},
		"it is dead-lettered": {true, sbserver.OpDeadLetter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, stoppedClock())
			transport := s.provisioned(t, asb.Config{LockDuration: longestLock, CustomizeQueue: func(_ string, p *admin.QueueProperties) {
				p.DeadLetteringOnMessageExpiration = &c.deadLetters
			}}, "q")
			r := openReceiver(t, transport, "q", 1)
			const ttl = time.Second
			if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Body: []byte("expires"), TimeToBeReceived: ttl}); err != nil {
				t.Fatal(err)
			}
			await(t, "it arrives without a Receive", func() bool { return asb.Arrived(r) == 1 })
			awaitTime(t, time.Now().Add(ttl)) // the adapter takes the service's clock to be late by as long as the message took
			send(t, transport, "q", "after it")
			if body := take(t, r, 1)[0].Incoming().Body; string(body) != "after it" {
				t.Errorf("%q came", body)
			}
			await(t, "the expired one is consumed as the queue consumes it", func() bool {
				info, err := s.Broker().Queue("q")
				return err == nil && (info.Runtime.DeadLetter == 1) == c.deadLetters && s.Count(c.settlement, "q") == 1
			})
		})
	}
}

func TestReceiver_MessageWhoseLockEndsWhileItWaitsIsNotHandedOut(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{LockDuration: time.Second, MaxDeliveryCount: 2000}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{})
	r := openReceiver(t, transport, "q", 1)
	send(t, transport, "q", "first")
	await(t, "it arrives without a Receive", func() bool { return s.Count(sbserver.OpDeliver, "q") == 1 })
	await(t, "another receiver handles it when its lock has ended", func() bool {
		other := openReceiver(t, s.open(t, asb.Config{}), "q", 1)
		d := take(t, other, 1)[0]
		err := d.Complete(t.Context()) // within a second, unless the machine is slow
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return err == nil
	})
	send(t, transport, "q", "second")
	if body := take(t, r, 1)[0].Incoming().Body; string(body) != "second" {
		t.Errorf("%q came, which another receiver has handled", body)
	}
}

func TestReceiver_LostLockLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "message")
	r := openReceiver(t, transport, "q", 1)
	d := take(t, r, 1)[0]
	if n, err := s.ExpireLocks("q"); err != nil || n != 1 {
		t.Fatalf("%d locks ended, %v", n, err)
	}
	if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Complete returned %v", err)
	}
	if in := take(t, r, 1)[0].Incoming(); in.DeliveryCount != 2 {
		t.Errorf("it is delivery %d", in.DeliveryCount)
	}
}

func TestReceiver_WaitsWhileItsQueueIsDisabled(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	var told changes
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10, ConnectionChanged: told.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Broker().SetStatus("q", properties.StatusReceiveDisabled); err != nil {
		t.Fatal(err)
	}
	s.CutConnections()
	await(t, "the observer is told", func() bool { return len(told.outages()) >= 2 })
	if err := s.Broker().SetStatus("q", properties.StatusActive); err != nil {
		t.Fatal(err)
	}
	await(t, "a message is accepted", func() bool { return transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q"}) == nil })
	take(t, r, 1)
}
