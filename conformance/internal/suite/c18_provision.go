package suite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// provisionCases are about queues; publishCases about subscriptions.
var provisionCases = []testCase{
	{rule: "C18", title: "a name that the broker does not accept is a core.NameError", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		_, err := transport.Address("")
		t.wantNameError("Address", err, "queue", "", 0)
		if limit := t.caps.MaxQueueName; limit > 0 {
			long := strings.Repeat("q", limit)
			if _, err := transport.Address(long); err != nil {
				t.fail(fmt.Sprintf("a queue may have a name of MaxQueueName, %d", limit), "%v", err)
			}
			_, err := transport.Address(long + "q")
			t.wantNameError("Address", err, "queue", long+"q", limit)
			t.wantNameError("Send", t.trySend(transport, t.message(long+"q", "lost")), "queue", long+"q", limit)
		}
		subscriber, ok := transport.(core.Subscriber)
		if !ok || !t.caps.PublishSubscribe {
			return
		}
		t.wantNameError("CheckTopic", subscriber.CheckTopic(""), "topic", "", 0)
		if limit := t.caps.MaxTopicName; limit > 0 {
			long := strings.Repeat("t", limit)
			if err := subscriber.CheckTopic(long); err != nil {
				t.fail(fmt.Sprintf("a topic may have a name of MaxTopicName, %d", limit), "%v", err)
			}
			t.wantNameError("CheckTopic", subscriber.CheckTopic(long+"t"), "topic", long+"t", limit)
			event := t.event("lost")
			event.Topic = long + "t"
			t.wantNameError("Send", t.trySend(transport, event), "topic", long+"t", limit)
			ctx, cancel := t.withTimeout()
			defer cancel()
			t.wantNameError("Subscribe", subscriber.Subscribe(ctx, queue, long+"t"), "topic", long+"t", limit)
		}
	}},
	{rule: "C18", title: "a queue that was created can be used at once, by every instance", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		t.provision(transport, queue)
		r := t.receiver(t.open(), queue, 1)
		m := t.message(queue, "first")
		t.send(t.open(), m)
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
	{rule: "C18", title: "Provision keeps queues that exist, and their messages", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		old, added := t.uniqueName(), t.uniqueName()
		t.provision(transport, old)
		t.send(transport, t.message(old, "kept"))
		t.provision(transport, old)
		t.provision(t.open(), old, added)
		t.wantLeft(old, "after it was provisioned again", "kept")
		t.wantLeft(added, "after it was provisioned together with one that existed")
	}},
	{rule: "C18", title: "Provision creates missing queues among queues that exist", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		old, first, last := t.uniqueName(), t.uniqueName(), t.uniqueName()
		t.provision(transport, old)
		t.provision(transport, first, old, last, first)
		for _, queue := range []string{first, last} {
			t.send(transport, t.message(queue, "any"))
			t.wantLeft(queue, "after it was created beside one that existed", "any")
		}
	}},
	{rule: "C18", title: "eight instances may create the same queues concurrently", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		names := []string{t.uniqueName(), t.uniqueName(), t.uniqueName(), t.uniqueName()}
		transports := make([]core.Transport, 8)
		for i := range transports {
			transports[i] = t.open()
		}
		start := make(chan struct{})
		var all sync.WaitGroup
		for _, transport := range transports {
			t.goInGroup(&all, func() {
				<-start
				ctx, cancel := t.withTimeout()
				defer cancel()
				if err := transport.(core.Provisioner).Provision(ctx, topologyOf(names...)); err != nil {
					t.fail("Provision returns nil to each of 8 instances that create the same queues at once", "%v", err)
				}
			})
		}
		close(start)
		all.Wait()
		for _, queue := range names {
			t.send(transports[0], t.message(queue, "any"))
			t.wantLeft(queue, "after 8 instances created it", "any")
		}
	}},
	{rule: "C18", title: "Provision has no effect on the flow of messages", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		const n = 50
		transport := t.open()
		queue := t.uniqueName()
		t.provision(transport, queue)
		r := t.receiver(transport, queue, 4)
		instance := t.open().(core.Provisioner)
		stop, second := make(chan struct{}), make(chan error, 1)
		first := make(chan struct{}) // closed when Provision has returned for the first time
		t.goGuarded(func() {
			started := sync.OnceFunc(func() { close(first) })
			defer started()
			defer close(second)
			for pause := time.Millisecond; ; pause = min(pause*9/8, t.quietPeriod()) {
				ctx, cancel := t.withTimeout()
				err := instance.Provision(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}})
				cancel()
				if err != nil {
					second <- err
					return
				}
				started()
				select {
				case <-stop:
					second <- nil
					return
				case <-t.ctx.Done():
					return
				case <-time.After(pause): // in a bubble, time passes only while all goroutines wait
				}
			}
		})
		arrived := map[string]int{}
		for i := range n {
			if i == n/2 {
				<-first
			}
			t.send(transport, t.message(queue, fmt.Sprintf("body %d", i)))
			d := r.next()
			arrived[string(d.Incoming().Body)]++
			t.complete(d)
		}
		close(stop)
		if err := <-second; err != nil {
			t.fail("Provision of a queue that is in use returns nil", "%v", err)
		}
		if len(arrived) != n {
			t.fail(fmt.Sprintf("%d messages arrive once each while their queue is provisioned again and again", n), "%d did: %s", len(arrived), listed(arrived))
		}
		r.close()
		t.wantLeft(queue, "after all were received")
	}},
	{rule: "C18", title: "an empty name is refused", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		ctx, cancel := t.withTimeout()
		defer cancel()
		err := t.open().(core.Provisioner).Provision(ctx, core.Topology{InputQueue: t.uniqueName(), Queues: []string{t.uniqueName(), ""}})
		if err == nil {
			t.fail("Provision refuses a queue without a name", "nil")
		}
		t.wantNoOutage("Provision of a queue without a name", err)
	}},
	{rule: "C18", title: "Provision of nothing is nil", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		t.provision(t.open())
	}},
	{rule: "C18", title: "Provision creates the given queues, and the transport creates none before", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := t.trySend(transport, t.message(queue, "too soon")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Send to a queue that was not provisioned returns core.ErrQueueNotFound", "%v", err)
		}
		if _, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1}); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("OpenReceiver of a queue that was not provisioned returns core.ErrQueueNotFound", "%v", err)
		}
		t.provision(transport, queue)
		t.send(transport, t.message(queue, "in time"))
		t.wantLeft(queue, "after it was provisioned and sent to", "in time")
	}},
	{rule: "C18", title: "Provision may be called with addresses", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		t.provision(transport, queue)
		t.send(transport, t.message(queue, "kept"))
		address, err := transport.Address(queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		t.provision(transport, address)
		t.wantLeft(queue, "after its address was provisioned", "kept")
	}},
	{rule: "C18", title: "names that differ are different queues", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		t.separateQueues(func(name string) []string {
			return []string{name, name + "a", "a." + name, name + ".a", name + " a", name + "'a", name + `"a`, name + "%61", name + "/a", name + "ä"}
		})
	}},
	{rule: "C18", title: "names that differ in case are different queues", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		t.separateQueues(func(name string) []string { return []string{name + "-case", name + "-Case", name + "-CASE"} })
	}},
	{rule: "C18", title: "a queue that expires is created, or is refused and nothing is created", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue, other := t.uniqueName(), t.uniqueName()
		topology := core.Topology{InputQueue: queue, Queues: []string{queue, other}, QueueExpiry: 24 * time.Hour}
		ctx, cancel := t.withTimeout()
		defer cancel()
		err := transport.(core.Provisioner).Provision(ctx, topology)
		if err == nil {
			if err := t.open().(core.Provisioner).Provision(ctx, topology); err != nil {
				t.fail("Provision of a topology that it has created, with a QueueExpiry, returns nil", "%v", err)
			}
			for _, name := range topology.Queues {
				t.send(transport, t.message(name, "any"))
				t.wantLeft(name, "after it was created with a QueueExpiry, or beside such a queue", "any")
			}
			return
		}
		t.wantNoOutage("Provision that refuses a QueueExpiry", err)
		if errors.Is(err, errors.ErrUnsupported) {
			t.fail("an error of Provision that refuses a QueueExpiry does not match errors.ErrUnsupported: the engine ignores that one", "%v", err)
		}
		if err := t.trySend(transport, t.message(other, "any")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Provision that refuses a QueueExpiry creates no queue", "Send to one returns %v", err)
		}
		checker, ok := transport.(core.Checker)
		if !ok {
			return
		}
		t.provision(transport, topology.Queues...)
		if err := checker.Check(ctx, topology); err == nil || errors.Is(err, errors.ErrUnsupported) {
			t.fail("Check refuses a QueueExpiry that Provision refuses, with an error that does not match errors.ErrUnsupported", "it returns %v", err)
		}
	}},
	{rule: "C18", title: "Provision names a queue that differs from its configuration, and does not change it", modes: inHighest, needs: []need{provisioning, mismatches}, run: func(t *caseT) {
		queue, values := t.suite.h.Mismatch(t)
		transport := t.open()
		t.send(transport, t.message(queue, "kept"))
		sound := t.uniqueName()
		for _, queues := range [][]string{{queue}, {sound, queue}, {queue}} { // the queue is not fixed in between
			ctx, cancel := t.withTimeout()
			err := transport.(core.Provisioner).Provision(ctx, topologyOf(queues...))
			cancel()
			if err == nil {
				t.stop(fmt.Sprintf("Provision returns an error for a queue that exists with %q where the adapter wants %q", values[0], values[1]), "nil")
			}
			for _, value := range values {
				if !strings.Contains(err.Error(), value) {
					t.fail(fmt.Sprintf("Provision's error names both values, that of the queue, %q, and that which is wanted, %q", values[0], values[1]), "%q", err)
				}
			}
			t.wantNoOutage("Provision of a queue that is not as it should be", err)
			if !strings.Contains(err.Error(), queue) {
				t.fail(fmt.Sprintf("Provision's error names the queue that is not as it should be, %q", queue), "%q", err)
			}
		}
		t.wantLeft(queue, "after Provision refused it", "kept")
	}},
	{rule: "C18", title: "Check reports the queues that do not exist", modes: inHighest, needs: []need{checking}, run: func(t *caseT) {
		transport := t.open()
		first, second := t.queue(transport), t.queue(transport)
		missing := t.uniqueName()
		t.send(transport, t.message(first, "kept"))
		for _, c := range []struct {
			queues []string
			ok     bool
		}{
			{nil, true},
			{[]string{first, second}, true},
			{[]string{missing}, false},
			{[]string{first, missing, second}, false},
		} {
			ctx, cancel := t.withTimeout()
			err := t.open().(core.Checker).Check(ctx, topologyOf(c.queues...))
			cancel()
			switch {
			case c.ok && err != nil:
				t.fail(fmt.Sprintf("Check of the queues %q, which exist, is nil", c.queues), "%v", err)
			case !c.ok && (!errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), missing)):
				t.fail(fmt.Sprintf("Check of the queues %q returns core.ErrQueueNotFound and names %q", c.queues, missing), "%v", err)
			}
			t.wantNoOutage("Check of a queue that does not exist", err)
		}
		t.wantLeft(first, "after Check", "kept")
		if err := t.trySend(transport, t.message(missing, "lost")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Check creates nothing: a Send to the missing queue returns core.ErrQueueNotFound", "%v", err)
		}
	}},
}

// separateQueues provisions queues of similar names, sends one message to each, and
// another one with a delay if delays are possible, and checks that each message arrives
// in its queue and in no other. It leaves out names that Address or Provision refuses:
// brokers have different rules for names.
func (t *caseT) separateQueues(similar func(name string) []string) {
	transport := t.open()
	var queues []string
	var out []core.Outgoing
	known := map[string]string{} // by address
	for _, name := range similar(t.uniqueName()) {
		ctx, cancel := t.withTimeout()
		address, err := transport.Address(name)
		if same := known[address]; err == nil && same != "" {
			cancel()
			t.note("the names %q and %q are those of one queue: both have the address %q", same, name, address)
			continue
		}
		if err == nil {
			known[address] = name
			err = transport.(core.Provisioner).Provision(ctx, core.Topology{InputQueue: name, Queues: []string{name}})
		}
		cancel()
		if err != nil {
			t.note("the name %q is refused: %v", name, err)
			continue
		}
		queues = append(queues, name)
		out = append(out, t.message(name, "to "+name))
		if t.caps.DelayedDelivery {
			delayed := t.message(name, "late to "+name)
			delayed.Delay = t.briefDelay()
			out = append(out, delayed)
		}
	}
	if len(queues) < 2 {
		t.notRun("the transport refuses all but one of the names, or says that they have one address")
	}
	t.send(transport, out...)
	receivers := make([]*receiver, len(queues))
	for i, queue := range queues {
		want := []string{"to " + queue}
		if t.caps.DelayedDelivery {
			want = append(want, "late to "+queue)
		}
		receivers[i] = t.receiver(transport, queue, len(want))
		for _, d := range receivers[i].takeBodies(fmt.Sprintf("of the queues %q, each gets the messages that are sent to it", queues), want...) {
			t.complete(d)
		}
	}
	t.wantNoneDelivered(fmt.Sprintf("of the queues %q, none gets the messages that are sent to another", queues), receivers...)
}

// wantNameError checks the error of a method that was given a name which the broker does not
// accept.
func (t *caseT) wantNameError(method string, err error, kind, name string, limit int) {
	bad, ok := errors.AsType[*core.NameError](err)
	expected := fmt.Sprintf("%s of the %s %.60q returns a permanent *core.NameError that names it, with the Max %d", method, kind, name, limit)
	switch {
	case !ok || !core.IsPermanent(err):
		t.fail(expected, "%v", err)
	case bad.Kind != kind || bad.Name != name || bad.Max != limit || bad.Reason == "":
		t.fail(expected, "%+v", *bad)
	}
}
