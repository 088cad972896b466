//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestRelease_CostsNoAttemptInAnyInstance(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	first := s.provisioned(t, asb.Config{}, "q")
	send(t, first, "q", "message")
	released := openReceiver(t, first, "q", 1)
	for range 3 {
		if err := take(t, released, 1)[0].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := openReceiver(t, s.open(t, asb.Config{}), "q", 1)
	d := take(t, r, 1)[0]
	if in := d.Incoming(); in.DeliveryCount != 1 || !in.Redelivered || in.Headers.Len() != 0 {
		t.Errorf("after three releases it is delivery %d, redelivered %v, with %v", in.DeliveryCount, in.Redelivered, in.Headers)
	}
	if err := d.Abandon(t.Context(), errors.New("failed")); err != nil {
		t.Fatal(err)
	}
	if in := take(t, r, 1)[0].Incoming(); in.DeliveryCount != 2 {
		t.Errorf("after a failure it is delivery %d", in.DeliveryCount)
	}
}

func TestOpenReceiver_RefusesQueuesThatCannotServe(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	for name, p := range map[string]properties.Queue{
		"few":      {MaxDeliveryCount: 12},
		"sessions": {MaxDeliveryCount: 2000, RequiresSession: true},
		"plain":    {MaxDeliveryCount: 2000},
		"ordered":  {MaxDeliveryCount: 2000},
	} {
		if err := s.Broker().CreateQueue(name, p); err != nil {
			t.Fatal(err)
		}
	}
	transport := s.open(t, asb.Config{SessionQueues: []string{"ordered"}})
	for queue, c := range map[string]struct {
		deliveries int
		says       string // "": it opens
	}{
		"few":      {12, "--name few --max-delivery-count 2000"},
		"sessions": {50, "Config.SessionQueues"},
		"plain":    {50, ""},
		"ordered":  {50, "RequiresSession"},
		"missing":  {50, core.ErrQueueNotFound.Error()},
	} {
		_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: c.deliveries})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is %v; it should say %q", queue, err, c.says)
		}
	}
	if _, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "few", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 11}); err != nil {
		t.Errorf("a queue that takes one delivery more than the endpoint is refused: %v", err)
	}
	if warnings := transport.Warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "MaxDeliveryCount 12, 1 above") || !strings.Contains(warnings[0], "--name few --max-delivery-count 2000") {
		t.Errorf("the warnings are %q, want one about releases", warnings)
	}
}

func TestOpenReceiver_WarnsWithoutTheRightManage(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{}, "q")
	cfg := s.configured(asb.Config{}, nil)
	// An entity's key has no rights on the administration of the namespace.
	cfg.Admin.PerCallPolicies = append(cfg.Admin.PerCallPolicies, unauthorized{})
	transport := openConfigured(t, cfg)
	openReceiver(t, transport, "q", 1)
	warnings := transport.Warnings()
	if len(warnings) != 1 || !strings.Contains(warnings[0], `"q"`) || !strings.Contains(warnings[0], "Config.NoAdmin") {
		t.Errorf("the warnings are %q", warnings)
	}
	cfg.NoAdmin = true
	transport = openConfigured(t, cfg)
	openReceiver(t, transport, "q", 1)
	if warnings := transport.Warnings(); len(warnings) != 0 {
		t.Errorf("with NoAdmin the warnings are %q", warnings)
	}
}

func TestReceiver_SettlesByTheLockAfterItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "completed", "abandoned", "renewed")
	r := openReceiver(t, transport, "q", 3)
	taken := map[string]core.Delivery{}
	for _, d := range take(t, r, 3) {
		taken[string(d.Incoming().Body)] = d
	}
	if s.CutConnections() == 0 {
		t.Fatal("there was no connection")
	}
	renewed := taken["renewed"]
	before := renewed.LockedUntil()
	for i, err := range []error{taken["completed"].Complete(t.Context()), taken["abandoned"].Abandon(t.Context(), nil), renewed.Renew(t.Context()), renewed.Complete(t.Context())} {
		if err != nil {
			t.Errorf("settlement %d: %v", i, err)
		}
	}
	if renewed.LockedUntil().Before(before) {
		t.Error("the lock was not renewed")
	}
	d := take(t, r, 1)[0]
	if in := d.Incoming(); string(in.Body) != "abandoned" || in.DeliveryCount != 2 {
		t.Errorf("%q came, delivery %d", in.Body, in.DeliveryCount)
	}
	// The SDK may replace the connection once more, and the answer is lost with it: a call that
	// is repeated then finds no lock.
	if err := d.Complete(t.Context()); err != nil && !errors.Is(err, core.ErrLockLost) {
		t.Error(err)
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Active != 0 {
		t.Errorf("the queue has %d messages, %v", info.Runtime.Active, err)
	}
}

// The SDK would close the new connection for each link of the lost one that it finds closed.
func TestReceiver_OpensOneConnectionAfterItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	messages := make([]string, 1000) // more than the receiver may hold, so that its pollers do not see the loss before they have room
	for i := range messages {
		messages[i] = strconv.Itoa(i)
	}
	send(t, transport, "q", messages...)
	r := openReceiver(t, transport, "q", 700)
	taken := take(t, r, 700) // on several links
	before := s.Count(sbserver.OpConnect, "")
	s.CutConnections()
	for _, d := range taken {
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, d := range take(t, r, 300) {
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if opened := s.Count(sbserver.OpConnect, "") - before; opened != 1 {
		t.Errorf("%d connections were opened; want 1", opened)
	}
}

// The SDK recovers a link in the second attempt of a call; the adapter lets it make only one.
func TestReceiver_OpensAnotherLinkWhereTheConnectionEndsBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	r := openReceiver(t, transport, "q", 1)
	asked := s.Count(sbserver.OpPeek, "q")
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpPeek}, Entity: "q", Action: sbserver.Cut})
	s.CutConnections()
	await(t, "the first request on the link cuts the connection", func() bool { return s.Count(sbserver.OpPeek, "q") > asked })
	await(t, "a message is accepted", func() bool { // its connection is lost too
		return transport.Send(t.Context(), core.Outgoing{ID: "after it", Queue: "q"}) == nil
	})
	if err := take(t, r, 1)[0].Complete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReceiver_RefusedRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		times int
		ends  bool
	}{"by chance": {3, false}, "for good": {-1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q")
			r := openReceiver(t, transport, "q", 1)
			send(t, transport, "q", "message")
			if err := take(t, r, 1)[0].Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
			refuse := func() {
				s.Inject(sbserver.Fault{
					Ops: []sbserver.Op{sbserver.OpAttachReceiver}, Entity: "q", Times: c.times, Action: sbserver.Refuse,
					Error: &amqp10.Error{Condition: "amqp:unauthorized-access", Description: "Unauthorized access. 'Listen' claim(s) are required."},
				})
				s.CutConnections()
			}
			refuse()
			if !c.ends {
				for range 4 { // each time from the beginning
					await(t, "a message is accepted", func() bool { // the sender's links are refused too
						return transport.Send(t.Context(), core.Outgoing{ID: "after it", Queue: "q"}) == nil
					})
					if err := take(t, r, 1)[0].Complete(t.Context()); err != nil {
						t.Error(err)
					}
					refuse()
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := r.Receive(ctx, make([]core.Delivery, 1)); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "to fix: give the identity") {
				t.Errorf("Receive returned %v", err)
			}
		})
	}
}

func TestReceiver_PausesWhereItsLinksAreClosedRepeatedly(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	r := openReceiver(t, transport, "q", 1)
	before := s.Count(sbserver.OpAttachReceiver, "q")
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpDeliver}, Times: -1, Action: sbserver.Detach})
	many := make([]string, 1000) // each link takes one with it
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	send(t, transport, "q", many...)
	opened := func() int { return s.Count(sbserver.OpAttachReceiver, "q") - before }
	await(t, "it opens another link", func() bool { return opened() >= 2 })
	began, from := time.Now(), opened()
	await(t, "it has opened eight further ones", func() bool { return opened() >= from+8 })
	if took := time.Since(began); took < 100*time.Millisecond { // pauses of 25 ms at least
		t.Errorf("it opened eight links in %v", took)
	}
	remove()
	take(t, r, 1)
}

// The SDK keeps using a link that the service closed because it is busy.
func TestReceiver_OpensAnotherLinkAfterABusyServiceClosedIt(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q")
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: mode, MaxInFlight: 10, MaxDeliveries: 1000})
			if err != nil {
				t.Fatal(err)
			}
			send(t, transport, "q", "before")
			take(t, r, 1)
			s.DetachLinks("q", sbserver.ServerBusy)
			send(t, s.open(t, asb.Config{}), "q", "after")
			take(t, r, 1)
		})
	}
}

func TestReceiver_RenewsTheLockOfAMessageThatHasWaited(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half of a lock, which is long since a slow machine must not wait for all of it: not in short runs")
	}
	t.Parallel()
	clock := clock.NewFake(time.Now())
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	transport := s.provisioned(t, asb.Config{LockDuration: 30 * time.Second}, "q")
	r := openReceiver(t, transport, "q", 1)
	send(t, transport, "q", "message")
	await(t, "the message arrives without a Receive", func() bool { return s.Count(sbserver.OpDeliver, "q") == 1 })
	awaitTime(t, time.Now().Add(16*time.Second)) // half of its lock is past, by the clock of the process, which the server's does not follow
	take(t, r, 1)
	if n := s.Count(sbserver.OpRenewLock, "q"); n != 1 {
		t.Errorf("its lock was renewed %d times", n)
	}
}

func TestReceiver_ResendsMessagesThatWereNotTaken(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{MaxDeliveryCount: math.MaxInt32, RequiresDuplicateDetection: true}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{})
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionNone, MaxInFlight: 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, _ = r.Receive(ctx, make([]core.Delivery, 10))
	}()
	await(t, "the receiver asks for messages", func() bool { return s.Count(sbserver.OpAttachReceiver, "q") >= 2 })
	cancel()
	<-received
	send(t, transport, "q", "a", "b", "c")
	await(t, "they are on their way", func() bool { return s.Count(sbserver.OpDeliver, "q") >= 1 || s.Count(sbserver.OpSend, "q") >= 1 })
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := openReceiver(t, transport, "q", 10)
	for _, d := range take(t, other, 3) {
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestReceiver_CloseAwaitsMessagesThatAreOnTheirWay(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Latency: 50 * time.Millisecond})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	other := s.open(t, asb.Config{})
	const tries = 10 // on a slow machine a message may come when Close has waited long enough
	for n := 1; ; n++ {
		r := openReceiver(t, transport, "q", 10)
		before := s.Count(sbserver.OpDeliver, "q")
		sent := make(chan error, 1)
		go func() { sent <- other.Send(t.Context(), core.Outgoing{ID: "message", Queue: "q"}) }()
		await(t, "the message is on its way", func() bool { return s.Count(sbserver.OpDeliver, "q") > before })
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		locked, err := s.ExpireLocks("q")
		if err != nil {
			t.Fatal(err)
		}
		next := openReceiver(t, other, "q", 1)
		d := take(t, next, 1)[0]
		switch in := d.Incoming(); {
		case locked == 0 && in.DeliveryCount != 1:
			t.Errorf("it is delivery %d", in.DeliveryCount)
		case locked > 0 && n == tries:
			t.Errorf("in each of %d tries the message stayed locked", tries)
		case locked > 0:
			complete(t, d)
			if err := next.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		return
	}
}

func TestReceiver_LinksThatWereIdleForLongAreNoOutage(t *testing.T) {
	t.Parallel()
	const short, idle = time.Second, 10 * time.Minute
	for i, err := range asb.Losses(idle, idle, idle) {
		if err != nil {
			t.Errorf("loss %d after ten idle minutes: %v", i+1, err)
		}
	}
	if errs := asb.Losses(idle, short, short); errs[0] != nil || errs[1] == nil || errs[2] == nil {
		t.Errorf("links that are lost soon after they were opened: %v", errs)
	}
}
