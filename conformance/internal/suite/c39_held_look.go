package suite

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// lookedAt is how many messages the cases of C39 look at.
const lookedAt = 20

// heldLookCases are about an operator's tool that looks at messages by receiving them, and gives
// them back by closing its receiver.
var heldLookCases = []testCase{
	{rule: "C39", title: "looks that end with the Close of their receiver lose nothing and count once", modes: withRedelivery, run: func(t *caseT) {
		sender := t.open()
		queue := t.queue(sender)
		n := lookedAt
		if limit := t.suite.h.MaxInFlight; limit > 0 {
			n = min(n, limit)
		}
		names := bodiesOf(t.messages(queue, n))
		t.sendEach(sender, queue, names...)
		var limit time.Duration // for the messages of the look before
		var closed time.Time
		for looks := range 4 {
			r := t.receiver(t.open(), queue, n)
			held := r.takeBodies("all messages are delivered after a look at them", names...)
			if took := time.Since(closed); looks > 0 && took > limit {
				t.recordLate("the messages came %v after a look", took)
				t.fail("messages are available at once when the receiver of a look is closed", "the last of them came after %v", took)
			}
			for _, d := range held {
				t.wantLooks(looks, d)
			}
			limit = t.atOnce(held[names[0]])
			for _, d := range held {
				limit = min(limit, t.atOnce(d))
			}
			closed = time.Now()
			r.close()
		}
		t.wantLeft(queue, "after looks at all of them", names...)
	}},
	{rule: "C39", title: "a look at a few messages gives back the prefetched ones too", modes: withRedelivery, run: func(t *caseT) {
		sender := t.open()
		queue := t.queue(sender)
		names := bodiesOf(t.messages(queue, lookedAt))
		t.sendEach(sender, queue, names...)
		for looks := range 3 {
			r := t.receiver(t.open(), queue, lookedAt)
			for _, d := range r.take(min(3, lookedAt)) {
				t.wantLooksAtMost(looks, d)
			}
			r.close()
		}
		r := t.receiver(t.open(), queue, lookedAt)
		for range names {
			d := r.next()
			t.wantLooksAtMost(3, d)
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after looks at a few of them, and all were completed")
	}},
	{rule: "C39", title: "a look keeps groups in order", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		sender := t.open()
		queue := t.groupQueue(sender)
		names := []string{"first", "second", "third"}
		t.sendGroup(sender, queue, "one", names...)
		for looks := range 2 {
			r := t.receiver(t.open(), queue, len(names))
			d := r.next()
			if body := string(d.Incoming().Body); body != names[0] {
				t.fail(fmt.Sprintf("the first message of a group is delivered first, also after a look: %q", names[0]), "%q", body)
			}
			t.wantLooks(looks, d)
			r.close()
		}
		r := t.receiver(t.open(), queue, len(names))
		for _, want := range names {
			d := r.next()
			if body := string(d.Incoming().Body); body != want {
				t.fail(fmt.Sprintf("a look keeps the order of a group: %q is next", want), "%q", body)
			}
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after the messages of a group were completed")
	}},
}

// wantLooks checks the count of a message after a number of looks at it, from another process than theirs.
func (t *caseT) wantLooks(looks int, d core.Delivery) {
	got, want := d.Incoming().DeliveryCount, 1
	if t.caps.CountsReleases {
		want += looks
	}
	if got != want {
		t.fail(fmt.Sprintf("DeliveryCount is %d after %d looks, of which each counts once with CountsReleases, and not at all without", want, looks), "it is %d", got)
	}
}

// wantLooksAtMost is wantLooks for a message that may have been in fewer looks.
func (t *caseT) wantLooksAtMost(looks int, d core.Delivery) {
	if got := d.Incoming().DeliveryCount; got < 1 || got > 1 && (!t.caps.CountsReleases || got > 1+looks) {
		t.fail(fmt.Sprintf("DeliveryCount rises by 1 with each of %d looks at most, and not at all without CountsReleases", looks), "it is %d", got)
	}
}
