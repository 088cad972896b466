package rabbitmq_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// alarm has a broker believe that its memory is full, and returns a function that ends that.
func (s *site) alarm(t testing.TB) (end func()) {
	t.Helper()
	set := func(share string) {
		if _, err := s.Eval(context.WithoutCancel(t.Context()), "vm_memory_monitor:set_vm_memory_high_watermark("+share+")."); err != nil {
			t.Error(err)
		}
	}
	set("0.00001")
	once := sync.OnceFunc(func() { set("0.4") })
	t.Cleanup(once)
	return once
}

// While the broker's memory is full, receivers continue, sends wait until their contexts
// end, and no message is sent twice afterwards.
func testAlarmDelaysSendsOnly(t *testing.T, _ *broker, s *site) {
	w := &watch{}
	transport := s.provisioned(t, rabbitmq.Config{}, "billing", "audit")
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged, MaxInFlight: 5})
	mustSend(t, transport, numbered("billing", 0, 100)...)
	mustSend(t, transport, numbered("audit", 0, 1)...)
	end := s.alarm(t)

	// The first are written before the broker says that it blocks, the others after.
	var senders sync.WaitGroup
	send := func(first int) {
		for i := range 20 {
			senders.Go(func() {
				if err := transport.Send(t.Context(), numbered("billing", first+50*i, 50)...); err != nil {
					t.Error(err)
				}
			})
		}
	}
	send(100)
	awaitTrue(t, "the observer is told of the alarm", func() bool { return w.said("blocks", "memory") })
	send(1100)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := transport.Send(ctx, numbered("audit", 1, 1)...)
	if counts := states(t, 1, err); counts[core.SendRefused] != 1 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the operations that wait for the end of the alarm are %v: %v", counts, err)
	}
	if err := errors.Join( // for an endpoint that starts now
		transport.Check(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}),
		transport.Provision(t.Context(), core.Topology{InputQueue: "late", Queues: []string{"late"}}),
		transport.Subscribe(t.Context(), "late", "orders.Placed"),
		receive(t, transport, "late", 50),
	); err != nil {
		t.Error(err)
	}
	came := map[string]int{}
	for len(came) < 100 {
		for _, d := range next(t, r, 5) {
			came[string(d.Incoming().Body)]++
			if err := d.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(6 * time.Second) // longer than a confirm may take, if there were no alarm
	if w.connected() {
		t.Errorf("the observer was told that the alarm has ended: %v", w.all())
	}
	end()
	senders.Wait()
	awaitTrue(t, "the observer is told of the end", w.connected)
	if t.Failed() {
		return
	}
	for len(came) < 2100 {
		for _, d := range next(t, r, 5) {
			came[string(d.Incoming().Body)]++
			if err := d.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for body, n := range came {
		if n != 1 {
			t.Errorf("message %s came %d times", body, n)
		}
	}
	awaitTrue(t, "all acknowledgements are written", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
	if got := s.take(t, "audit"); got["1"] != 0 {
		t.Errorf("refused messages were sent all the same: %v", got)
	}
}

// A broker that dies during an alarm is reported as connected only once it is.
func testAlarmKilledBroker(t *testing.T, b *broker, s *site) {
	transport := s.provisioned(t, rabbitmq.Config{}, "billing")
	var watches []*watch
	for range 20 { // which are told in any order
		w := &watch{}
		watches = append(watches, w)
		consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
	}
	s.alarm(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = transport.Send(ctx, numbered("billing", 0, 100)...) }()
	awaitTrue(t, "the observers are told of the alarm", func() bool { return watches[0].said("blocks") })
	b.Kill(t)
	for i, w := range watches {
		awaitTrue(t, "each observer is told of the outage", func() bool { return w.said("connect to") })
		all := w.all()
		if slices.ContainsFunc(all[2:], func(c core.ConnectionChange) bool { return c.Connected }) {
			t.Errorf("observer %d was told that there is a connection while there was none: %v", i, all)
		}
	}
	b.Start(t)
	for _, w := range watches {
		awaitTrue(t, "each observer is told of the end", w.connected)
	}
}
