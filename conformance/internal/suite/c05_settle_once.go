package suite

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// settledTwice is a delivery that was settled twice.
type settledTwice struct {
	first, second wayToSettle
	err           error          // of the second settlement
	redelivered   *core.Incoming // the redelivered message, if the first settlement gave it back
}

// settleTwice settles a delivery twice for each ordered pair of ways to settle.
func (t *caseT) settleTwice(transport core.Transport, queue, out string) (all []settledTwice) {
	r := t.receiver(transport, queue, 8)
	ways := t.waysToSettle(out)
	for _, first := range ways {
		names := make([]string, len(ways))
		for i, second := range ways {
			names[i] = first.name + ", then " + second.name
		}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("messages that were settled before are not redelivered", names...)
		pairs := make([]settledTwice, len(ways))
		for i, second := range ways {
			if err := t.trySettling(first, held[names[i]]); err != nil {
				t.stop(first.name+" settles a delivery that is held", "%v", err)
			}
			pairs[i] = settledTwice{first: first, second: second, err: t.trySettling(second, held[names[i]])}
		}
		if !first.consumes && t.mode != core.TransactionNone {
			redelivered := r.takeBodies("a message that was settled by "+first.name+" is redelivered, after any second settlement", names...)
			for i := range pairs {
				pairs[i].redelivered = redelivered[names[i]].Incoming()
				t.complete(redelivered[names[i]])
			}
		}
		all = append(all, pairs...)
	}
	t.wantNoneDelivered("a second settlement brings nothing back", r)
	r.close()
	return all
}

var settleOnceCases = []testCase{
	{rule: "C5", title: "a second settlement is refused", run: func(t *caseT) {
		transport := t.open()
		for _, p := range t.settleTwice(transport, t.queue(transport), t.queue(transport)) {
			if !errors.Is(p.err, core.ErrSettled) {
				t.fail(fmt.Sprintf("%s after %s returns core.ErrSettled", p.second.name, p.first.name), "%v", p.err)
			}
		}
	}},
	{rule: "C5", title: "a second settlement changes nothing in the queue", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		for _, p := range t.settleTwice(transport, queue, t.queue(transport)) {
			if p.redelivered == nil {
				continue
			}
			want := 1
			if p.first.name == "Abandon" {
				want = 2
			}
			if got := p.redelivered.DeliveryCount; got != want && !t.returnCounted(p.first.name, got, want) {
				t.fail(fmt.Sprintf("after %s, and %s that was refused, DeliveryCount is %d", p.first.name, p.second.name, want), "it is %d", got)
			}
		}
		t.wantLeft(queue, "after everything was completed, each delivery settled twice")
	}},
	{rule: "C5", title: "a second settlement sends nothing", modes: inAtomic, run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		var sent []string
		for _, p := range t.settleTwice(transport, t.queue(transport), out) {
			if strings.HasSuffix(p.first.name, "With") {
				sent = append(sent, fmt.Sprintf("%s for %s, then %s", p.first.name, p.first.name, p.second.name))
			}
		}
		t.wantLeft(out, "the messages of the first settlements", sent...)
	}},
	{rule: "C5", title: "a settlement has no effect on other deliveries", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		names := []string{"a", "b", "c", "d", "e", "f"}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("six messages are delivered", names...)
		t.complete(held["d"])
		for _, name := range names {
			if name != "d" {
				t.complete(held[name]) // stops the case if it was settled together with d
			}
		}
		t.wantLeft(queue, "after all were completed, one of the middle first")
	}},
	{rule: "C5", title: "different deliveries are settled at the same time", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		for round := range 4 {
			names := make([]string, 8)
			for i := range names {
				names[i] = fmt.Sprintf("round %d, message %d", round, i)
			}
			t.sendEach(transport, queue, names...)
			held := r.takeBodies("eight messages are delivered", names...)
			ways := t.waysToSettle("")[:3]
			errs := make([]error, len(names))
			var settling sync.WaitGroup
			for i, name := range names {
				t.goInGroup(&settling, func() { errs[i] = t.trySettling(ways[i%3], held[name]) })
			}
			settling.Wait()
			var redelivered []string
			for i, err := range errs {
				if err != nil {
					t.stop(ways[i%3].name+" settles a delivery while others are settled", "%v", err)
				}
				if !ways[i%3].consumes && t.mode != core.TransactionNone {
					redelivered = append(redelivered, names[i])
				}
			}
			for _, d := range r.takeBodies("abandoned and released messages are redelivered, and no others", redelivered...) {
				t.complete(d)
			}
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C5", title: "the lock of a settled delivery cannot be renewed", modes: withRedelivery, needs: []need{locks}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		for _, way := range t.waysToSettle(t.queue(transport)) {
			t.sendEach(transport, queue, way.name)
			d := r.next()
			t.needLock(d)
			if err := t.trySettling(way, d); err != nil {
				t.stop(way.name+" settles a delivery that is held", "%v", err)
			}
			d.LockedUntil() // the result does not matter: the case calls it during a settlement
			ctx, cancel := t.withTimeout()
			if err := d.Renew(ctx); !errors.Is(err, core.ErrSettled) && !errors.Is(err, core.ErrLockLost) {
				t.fail("Renew after "+way.name+" returns core.ErrSettled or core.ErrLockLost", "%v", err)
			}
			cancel()
			if !way.consumes {
				t.complete(r.next())
			}
		}
		t.wantLeft(queue, "after everything was completed")
	}},
}
