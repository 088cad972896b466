package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// redeliver settles a delivery, and returns the redelivered message, which has to arrive
// at the receiver at once.
func (t *caseT) redeliver(way wayToSettle, d core.Delivery, to *receiver) core.Delivery {
	limit, began := t.atOnce(d), time.Now()
	if err := t.trySettling(way, d); err != nil {
		t.stop(way.name+" returns nil for a delivery that is held", "%v%s", err, lockEndedAgo(d))
	}
	body := string(d.Incoming().Body)
	redelivered := to.takeBodies("a message that was settled by "+way.name+" is redelivered", body)[body]
	if took := time.Since(began); took > limit {
		t.fail("a message that was given back by "+way.name+" is available at once", "it came after %v", took)
	}
	return redelivered
}

// abandonWith returns Abandon with a cause.
func abandonWith(cause error) wayToSettle {
	return wayToSettle{"Abandon", false, func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, cause) }}
}

var giveBackCases = []testCase{
	{rule: "C8", title: "an abandoned message is redelivered at once, and its delivery is counted", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "abandoned")
		r := t.receiver(transport, queue, 1)
		d := t.redeliver(abandonWith(errHandler), r.next(), r)
		if got := d.Incoming().DeliveryCount; got != 2 {
			t.fail("DeliveryCount is 2 when a message is redelivered after one Abandon", "it is %d", got)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C8", title: "a released message is redelivered at once, and its delivery is not counted", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "released")
		r := t.receiver(transport, queue, 1)
		release := t.waysToSettle("")[2]
		d := t.redeliver(release, r.next(), r)
		t.countedBeside("when a message is redelivered after Release", d, 1)
		d = t.redeliver(abandonWith(errHandler), d, r)
		t.countedBeside("after one Release and one Abandon", d, 2)
		d = t.redeliver(release, d, r)
		t.countedBeside("after one Abandon and two Releases", d, 2)
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C8", title: "an abandoned or released message is available to another instance at once", modes: withRedelivery, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		for _, way := range t.waysToSettle("")[1:3] {
			t.sendEach(first, queue, "given back by "+way.name)
			r := t.receiver(first, queue, 1)
			d := r.next()
			r.SetMaxInFlight(0) // this receiver must not fetch the message again
			other := t.receiver(second, queue, 1)
			t.complete(t.redeliver(way, d, other))
			r.close()
			other.close()
		}
		t.wantLeft(queue, "after they were completed by another instance")
	}},
	{rule: "C8", title: "an abandoned or released message is not lost when its receiver closes", modes: withRedelivery, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		for _, way := range t.waysToSettle("")[1:3] {
			t.sendEach(first, queue, "given back by "+way.name)
			r := t.receiver(first, queue, 1)
			if err := t.trySettling(way, r.next()); err != nil {
				t.stop(way.name+" returns nil for a delivery that is held", "%v", err)
			}
			r.close()
			other := t.receiver(second, queue, 1)
			t.complete(other.next())
			other.close()
		}
		t.wantLeft(queue, "after they were completed by another instance")
	}},
	{rule: "C8", title: "a message can be abandoned without a cause", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "abandoned without a cause")
		r := t.receiver(transport, queue, 1)
		d := t.redeliver(abandonWith(nil), r.next(), r)
		t.wantCount("after one Abandon without a cause", d, 2)
		if got := d.Incoming().LastError; got != "" {
			t.fail("LastError is empty after an Abandon without a cause", "it is %q", got)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C8", title: "LastError is empty or has the text of the message's last cause", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		names := []string{"apple", "pear", "plum"}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, 4)
		held := r.takeBodies("three messages are delivered", names...)
		for name, d := range held {
			if got := d.Incoming().LastError; got != "" {
				t.fail("LastError is empty on the first delivery", "that of %s is %q", name, got)
			}
		}
		for _, round := range []string{"peel", "core"} {
			for _, name := range names {
				if err := t.trySettling(abandonWith(fmt.Errorf("the %s of the %s", round, name)), held[name]); err != nil {
					t.stop("Abandon returns nil for a delivery that is held", "%v%s", err, lockEndedAgo(held[name]))
				}
			}
			held = r.takeBodies("abandoned messages are redelivered", names...)
			for name, d := range held {
				want := fmt.Sprintf("the %s of the %s", round, name)
				if got := d.Incoming().LastError; got != "" && !strings.Contains(got, want) {
					t.fail(fmt.Sprintf("LastError is empty or contains the text of the last cause, %q", want), "it is %q", got)
				}
			}
		}
		for _, d := range held {
			t.complete(d)
		}
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C8", title: "a cause may have any text", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.message(queue, "abandoned with strange causes")
		t.send(transport, sent)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		for i, cause := range []error{
			errors.New(strings.Repeat("a long story, ", 75<<10)), // 1 MiB
			errors.New("no UTF-8: \xff\xfe\xc3"),
			errors.New("a zero byte\x00, a line\r\nbreak: and a header"),
			errors.New("'; quotes \" \\ and 50% of $1 {{.}}"),
			errors.New(""),
		} {
			d = t.redeliver(abandonWith(cause), d, r)
			t.wantCount(fmt.Sprintf("after %d times Abandon", i+1), d, i+2)
			t.wantSame(d.Incoming(), sent)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C8", title: "a message can be abandoned twenty times", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.message(queue, "abandoned often")
		t.send(transport, sent)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		for n := range 20 {
			t.wantCount(fmt.Sprintf("after %d times Abandon", n), d, n+1)
			d = t.redeliver(abandonWith(errHandler), d, r)
		}
		t.wantCount("after 20 times Abandon", d, 21)
		t.wantSame(d.Incoming(), sent)
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C8", title: "an abandoned message does not delay other messages", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "failing")
		r := t.receiver(transport, queue, 2)
		failing := r.next()
		names := []string{"a", "b", "c", "d", "e", "f"}
		t.sendEach(transport, queue, names...)
		for completed := 0; completed < len(names); {
			// While the failing message is locked there is room for one of the others.
			d := r.next()
			switch {
			case string(d.Incoming().Body) != "failing":
				t.complete(d)
				completed++
				if failing != nil {
					t.abandon(failing)
					failing = nil
				}
			case failing != nil:
				t.stop("a message that is held is not delivered again", "%q was", d.Incoming().Body)
			default:
				failing = d
			}
		}
		if failing == nil {
			failing = r.next()
		}
		t.complete(failing)
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C8", title: "an abandoned or released message is redelivered as quickly as a new message is delivered", modes: withRedelivery, run: func(t *caseT) {
		// The times are compared with those of new messages sent in between, so that a
		// busy machine does not fail the case; and medians are compared, so that one
		// pause of the machine does not either.
		const rounds, margin = 7, 300 * time.Millisecond
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		t.sendEach(transport, queue, "given back")
		d := r.next()
		ways := t.waysToSettle("")[1:3] // Abandon and Release
		var fresh []time.Duration
		redelivered := map[string][]time.Duration{}
		for range rounds {
			began := time.Now()
			t.sendEach(transport, queue, "new")
			other := r.takeBodies("a new message is delivered", "new")["new"]
			fresh = append(fresh, time.Since(began))
			t.complete(other)
			for _, way := range ways {
				began := time.Now()
				d = t.redeliver(way, d, r)
				redelivered[way.name] = append(redelivered[way.name], time.Since(began))
			}
		}
		t.complete(d)
		limit := margin + 3*median(fresh)
		for _, way := range ways {
			if took := median(redelivered[way.name]); took > limit {
				t.fail("a message that was settled by "+way.name+" is redelivered at once, without a back-off of the broker or the adapter: about as soon as a new message",
					"%v later (median of %d), while a new message took %v", took, rounds, median(fresh))
			}
		}
	}},
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}
