package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var deadLetterCases = []testCase{
	{rule: "C22", title: "DeadLetter takes the message out of its queue", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "dead"), t.message(queue, "alive"))
		r := t.receiver(transport, queue, 2)
		for _, d := range r.take(2) {
			if string(d.Incoming().Body) == "dead" {
				t.deadLetter(d, "the reason", "the description")
			} else {
				t.release(d)
			}
		}
		r.close()
		t.wantLeft(queue, "after one of two messages was dead-lettered", "alive")
	}},
	{rule: "C22", title: "the message is in the dead-letter queue, with body, reason and description", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := "dead \x00\xff"
		t.send(transport, t.message(queue, body))
		r := t.receiver(transport, queue, 1)
		t.deadLetter(r.next(), "the reason", "the description")
		r.close()
		dead := t.wantDeadLetters(queue, 1)[0]
		if string(dead.Body) != body {
			t.fail(fmt.Sprintf("a dead letter has the message's body, %q", body), "%s", excerpt(dead.Body))
		}
		if dead.Reason != "the reason" || dead.Description != "the description" {
			t.fail(`a dead letter has the reason "the reason" and the description "the description"`, "%q and %q", dead.Reason, dead.Description)
		}
		t.wantLeft(queue, "after its message was dead-lettered")
	}},
	{rule: "C22", title: "a dead letter has the message's own headers", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "dead")
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		t.deadLetter(r.next(), "the reason", "the description")
		r.close()
		h := t.wantDeadLetters(queue, 1)[0].Headers
		if h.Len() == 0 {
			t.notRun("Harness.DeadLetters fills in no Headers")
		}
		for key, want := range m.Headers.All() {
			if got, has := h.Lookup(key); !has || got != want {
				t.fail(fmt.Sprintf("a dead letter has the message's own headers, among them %s: %q", key, want), "%q (there: %t)", got, has)
			}
		}
	}},
	{rule: "C22", title: "a dead letter has the headers that it is given", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "dead"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		h := d.Incoming().Headers
		h.Set(headers.FailedQ, queue)
		h.Set(headers.ExceptionMessage, "Grund: ünïcode ✓\r\nand a second line")
		h.Set(headers.ExceptionStackTrace, strings.Repeat("at one of many places\n", 100))
		h.Set(headers.FailureReason, string(headers.FailureRejected))
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := d.DeadLetter(ctx, core.DeadLetter{Reason: headers.FailureRejected, Description: "description", Headers: h}); err != nil {
			t.stop("DeadLetter with the headers of a failure moves a message that is held", "%v", err)
		}
		r.close()
		kept := t.wantDeadLetters(queue, 1)[0].Headers
		if kept.Len() == 0 {
			t.notRun("Harness.DeadLetters fills in no Headers")
		}
		for key, want := range h.All() {
			if got, has := kept.Lookup(key); !has || got != want {
				t.fail(fmt.Sprintf("a dead letter has the headers that DeadLetter is given, among them %s: %s", key, excerpt([]byte(want))), "%s (there: %t)", excerpt([]byte(got)), has)
			}
		}
	}},
	{rule: "C22", title: "a message that failed earlier may be dead-lettered", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "dead"))
		r := t.receiver(transport, queue, 1)
		t.abandon(r.next())
		t.release(r.next())
		t.deadLetter(r.next(), "reason", "description")
		r.wantSilence("a dead-lettered message is not delivered again")
		r.close()
		t.wantLeft(queue, "after its message was dead-lettered")
		t.wantDeadBodies(queue, "dead")
	}},
	{rule: "C22", title: "no settlement is possible after DeadLetter", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		ctx, cancel := t.withTimeout()
		defer cancel()
		t.send(transport, t.message(queue, "dead"), t.message(queue, "done"))
		r := t.receiver(transport, queue, 2)
		for _, d := range r.take(2) {
			if string(d.Incoming().Body) == "done" {
				t.complete(d)
				t.settledBefore("DeadLetter after Complete", t.tryDeadLetter(d, "reason", "description"))
				continue
			}
			t.deadLetter(d, "reason", "description")
			t.settledBefore("a second DeadLetter", t.tryDeadLetter(d, "reason", "description"))
			t.settledBefore("Complete after DeadLetter", d.Complete(ctx))
			t.settledBefore("Abandon after DeadLetter", d.Abandon(ctx, errHandler))
			t.settledBefore("Release after DeadLetter", d.Release(ctx))
		}
		r.close()
		t.wantLeft(queue, "after one message was dead-lettered and one completed")
		t.wantDeadBodies(queue, "dead")
	}},
	{rule: "C22", title: "DeadLetter after its receiver was closed does nothing", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "alive"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		r.close()
		if err := t.tryDeadLetter(d, "reason", "description"); !errors.Is(err, core.ErrLockLost) {
			t.fail("DeadLetter after Receiver.Close, which gave the message back, returns core.ErrLockLost", "%v", err)
		}
		t.wantLeft(queue, "after DeadLetter on a closed receiver", "alive")
		t.wantDeadBodies(queue)
	}},
	{rule: "C22", title: "DeadLetter after its lock has ended does nothing", modes: withRedelivery, needs: []need{deadLettering, locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "alive"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.sleepPastLocks(d)
		if err := t.tryDeadLetter(d, "reason", "description"); !errors.Is(err, core.ErrLockLost) {
			t.fail("DeadLetter after the lock ran out returns core.ErrLockLost", "%v", err)
		}
		r.close()
		t.wantLeft(queue, "after DeadLetter with a lost lock", "alive")
		t.wantDeadBodies(queue)
	}},
	{rule: "C22", title: "a reason and a description may be any text", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		long := strings.Repeat("0123456789abcde\n", 256) // 4 KiB
		for _, text := range []string{"", "Grund: ünïcode ✓ 🐇", "two\r\nlines\x00\t\x7f", "not UTF-8: \xff\xfe", long, strings.Repeat("✓", 4096)} {
			body := "dead because of " + excerpt([]byte(text))
			t.send(transport, t.message(queue, body))
			t.deadLetter(r.next(), text, text)
			if t.suite.h.DeadLetters == nil {
				continue
			}
			dead := t.wantDeadLetters(queue, 1)[0]
			if string(dead.Body) != body {
				t.fail(fmt.Sprintf("a dead letter has the message's body, %q", body), "%s", excerpt(dead.Body))
			}
			for _, kept := range []string{dead.Reason, dead.Description} {
				if !utf8.ValidString(kept) {
					t.fail("the reason and the description of a dead letter are UTF-8, also if those for DeadLetter were not", "%s", excerpt([]byte(kept)))
				}
			}
		}
		m := t.message(queue, "later")
		t.send(transport, m)
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after its messages were dead-lettered")
	}},
	{rule: "C22", title: "a reason in Unicode arrives unchanged", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		const reason, description = "Grund: ünïcode ✓ 🐇", "“so” war's"
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "dead"))
		r := t.receiver(transport, queue, 1)
		t.deadLetter(r.next(), reason, description)
		r.close()
		if dead := t.wantDeadLetters(queue, 1)[0]; dead.Reason != reason || dead.Description != description {
			t.fail(fmt.Sprintf("a dead letter has the reason %q and the description %q", reason, description), "%q and %q", dead.Reason, dead.Description)
		}
	}},
	{rule: "C22", title: "a long reason is kept, at least its beginning", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "dead"))
		r := t.receiver(transport, queue, 1)
		reason, description := strings.Repeat("reason ✓ ", 400), strings.Repeat("description ✓ ", 300) // about 4 KiB each
		t.deadLetter(r.next(), reason, description)
		r.close()
		const limit = 128
		dead := t.wantDeadLetters(queue, 1)[0]
		if !utf8.ValidString(dead.Reason) || len(dead.Reason) < limit || !strings.HasPrefix(dead.Reason, reason[:limit]) {
			t.fail(fmt.Sprintf("of a reason of %d bytes the beginning is kept, as UTF-8", len(reason)), "%s", excerpt([]byte(dead.Reason)))
		}
		if !utf8.ValidString(dead.Description) || len(dead.Description) < limit || !strings.HasPrefix(dead.Description, description[:limit]) {
			t.fail(fmt.Sprintf("of a description of %d bytes the beginning is kept, as UTF-8", len(description)), "%s", excerpt([]byte(dead.Description)))
		}
	}},
	{rule: "C22", title: "ten messages are dead-lettered concurrently", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		const n = 10
		transport := t.open()
		queue := t.queue(transport)
		out := t.messages(queue, n)
		want := make([]string, n)
		for i := range out {
			want[i] = string(out[i].Body)
		}
		t.send(transport, out...)
		r := t.receiver(transport, queue, n)
		held := r.take(n)
		t.renew(held...)
		var all sync.WaitGroup
		for _, d := range held {
			t.goInGroup(&all, func() {
				if err := t.tryDeadLetter(d, string(d.Incoming().Body), "description"); err != nil {
					t.fail("DeadLetter returns nil for each of many deliveries at once", "%v", err)
				}
			})
		}
		all.Wait()
		r.close()
		t.wantLeft(queue, "after all its messages were dead-lettered")
		t.wantDeadBodies(queue, want...)
	}},
	{rule: "C22", title: "DeadLetter in an ended context happens completely or not at all", modes: withRedelivery, needs: []need{deadLettering}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "either"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		err := d.DeadLetter(ended, core.DeadLetter{Reason: "reason", Description: "description"})
		r.close()
		when := fmt.Sprintf("after DeadLetter in an ended context returned %v", err)
		if err == nil {
			t.wantLeft(queue, when)
			t.wantDeadBodies(queue, "either")
		} else {
			t.wantLeft(queue, when, "either")
			t.wantDeadBodies(queue)
		}
	}},
	{rule: "C22", title: "a malformed message may be dead-lettered", modes: withRedelivery, needs: []need{deadLettering, corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := t.suite.h.Corrupt(t, queue)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.wantMalformed(d, body)
		t.deadLetter(d, "malformed", d.Incoming().Malformed.Error())
		r.close()
		t.wantLeft(queue, "after a malformed message was dead-lettered")
		if t.suite.h.DeadLetters != nil {
			// The broker may keep more than the body that could be read.
			if dead := t.wantDeadLetters(queue, 1)[0]; !bytes.Contains(dead.Body, body) {
				t.fail(fmt.Sprintf("the dead letter of a malformed message has its raw body, %s", excerpt(body)), "%s", excerpt(dead.Body))
			}
		}
	}},
	{rule: "C22", title: "DeadLetter commits the handler's work since the last Reset", modes: inAtomic, needs: []need{deadLettering, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		undone := t.writeInTx(ctx)
		t.reset(f.delivery)
		kept := t.writeInTx(ctx)
		t.deadLetter(f.delivery, "reason", "description")
		t.wantCommitted(kept, "by DeadLetter, done after the last Reset")
		t.wantNotCommitted(undone, "by DeadLetter, done before the last Reset")
		t.wantQueues(f, "after DeadLetter", nil, nil)
		t.wantDeadBodies(f.from, forwardedBody)
	}},
	{rule: "C22", title: "a handler gives a message up to the broker's own dead-letter queue", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		s, seen := t.runVerdict(transport, core.GiveUpTo(errors.New("no good"), core.DeadLetterQueue), nil)
		var dead []DeadLetter
		t.await("the broker's dead-letter queue gets the rejected messages", func() bool {
			dead = append(dead, t.suite.h.DeadLetters(t, s.queue)...)
			return len(dead) > 0
		})
		s.end()
		dead = append(dead, t.suite.h.DeadLetters(t, s.queue)...)
		if d := dead[0]; len(dead) > 1 && !t.caps.MayDuplicate || string(d.Body) != "judged" || d.Reason != "Rejected" || !strings.Contains(d.Description, "no good") {
			t.fail(`the dead-letter queue has "judged" once, with the reason "Rejected" and the error "no good" as description`, "it has %s, the first with %q and %q", deadBodies(dead), d.Reason, d.Description)
		}
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.queue, "after a message was dead-lettered and another handled")
		t.wantLeft(s.errorQueue, "after a message was dead-lettered instead")
	}},
}

func (t *caseT) tryDeadLetter(d core.Delivery, reason, description string) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	return d.DeadLetter(ctx, core.DeadLetter{Reason: headers.Failure(reason), Description: description})
}

func (t *caseT) deadLetter(d core.Delivery, reason, description string) {
	if err := t.tryDeadLetter(d, reason, description); err != nil {
		t.stop(fmt.Sprintf("DeadLetter with the reason %s moves a message that is held", excerpt([]byte(reason))), "%v", err)
	}
}

func (t *caseT) settledBefore(subject string, err error) {
	if !errors.Is(err, core.ErrSettled) {
		t.fail(subject+" returns core.ErrSettled", "%v", err)
	}
}

// wantDeadLetters waits for n dead letters of a queue, and checks that there are no more.
func (t *caseT) wantDeadLetters(queue string, n int) []DeadLetter {
	var all []DeadLetter
	collect := func() { all = append(all, t.suite.h.DeadLetters(t, queue)...) }
	t.await(fmt.Sprintf("there are %d dead letters of the queue", n), func() bool {
		collect()
		return len(all) >= n
	})
	collect()
	if len(all) > n && (n == 0 || !t.caps.MayDuplicate) {
		t.stop(fmt.Sprintf("there are %d dead letters of the queue (Harness.DeadLetters removes the messages that it returns)", n), "%d: %s", len(all), deadBodies(all))
	}
	return all
}

func deadBodies(dead []DeadLetter) string {
	var list []string
	for _, d := range dead {
		list = append(list, string(d.Body))
	}
	return sample(list)
}

// wantDeadBodies checks the bodies of the dead letters, if the harness can read them.
func (t *caseT) wantDeadBodies(queue string, want ...string) {
	if t.suite.h.DeadLetters == nil {
		return
	}
	got := map[string]int{}
	for _, dead := range t.wantDeadLetters(queue, len(want)) {
		got[string(dead.Body)]++
	}
	for _, body := range want {
		if n := got[body]; n == 0 || n > 1 && !t.caps.MayDuplicate {
			t.fail(fmt.Sprintf("the dead-letter queue holds one message with the body %s", excerpt([]byte(body))), "it holds %d, and altogether %s", n, listed(got))
		}
	}
}
