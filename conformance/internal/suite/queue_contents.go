package suite

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
)

// Contents of a queue, read by a transport that is used for nothing else.

// drainQueue receives and completes the available messages of a queue: those that other
// receivers do not hold. A slow broker does not cause a wrong result: drainQueue waits
// until enough messages have arrived, and only then checks for a short time that there
// are no more.
func (t *caseT) drainQueue(queue string, complete func(found []*core.Incoming) bool) (found []*core.Incoming) {
	transport, done := t.readerTransport()
	r := t.receiverIn(t.caps.HighestTransaction(), transport, queue, 64)
	times, comesForEver := map[messageKey]int{}, false
	for !comesForEver {
		wait := t.timeout()
		if complete(found) && r.pending.isEmpty() {
			wait = t.quietPeriod()
		}
		ctx, cancel := context.WithTimeout(t.ctx, wait)
		got, err := r.batch(ctx, r.size)
		cancel()
		if err != nil {
			break
		}
		for _, d := range got {
			key := keyOf(d.Incoming())
			times[key]++
			comesForEver = comesForEver || times[key] > endless // redelivered although it is completed each time
		}
		found = append(found, r.consume(got)...)
	}
	if !comesForEver && !r.pending.isEmpty() {
		t.fail("a message is redelivered whose lock had ended before Complete, which returned core.ErrLockLost", "not after %v: %s", t.timeout(), sample(r.pending.bodies()))
	}
	r.close()
	done()
	return found
}

// contents returns the available messages of a queue whose contents are unknown, except
// that there are at least that many.
func (t *caseT) contents(queue string, minimum int) []*core.Incoming {
	return t.drainQueue(queue, func(found []*core.Incoming) bool { return len(found) >= minimum })
}

// wantLeft checks the messages left in a queue by their bodies, and returns them. It
// consumes them.
func (t *caseT) wantLeft(queue, subject string, want ...string) []*core.Incoming {
	found := t.drainQueue(queue, func(found []*core.Incoming) bool { return len(missingBodies(want, found)) == 0 })
	missing, unexpected := missingBodies(want, found), t.unexpected(want, found)
	if len(missing)+len(unexpected) > 0 {
		observed := fmt.Sprintf("it holds %s", sample(bodiesIn(found)))
		if len(missing) > 0 {
			observed += fmt.Sprintf(" after %v; missing are %s", t.timeout(), sample(missing))
		}
		if len(unexpected) > 0 {
			observed += "; too many are " + sample(unexpected)
		}
		t.fail(fmt.Sprintf("%s: the queue holds %s", subject, sample(want)), "%s%s", observed, t.log.told())
	}
	return found
}

// wantContents checks the messages left in a queue: each of must, perhaps some of may,
// and no others, once each. refused are messages that Send reported as not sent.
func (t *caseT) wantContents(queue, subject string, must, may []string, refused ...string) {
	found := t.drainQueue(queue, func(found []*core.Incoming) bool { return len(missingBodies(must, found)) == 0 })
	if missing := missingBodies(must, found); len(missing) > 0 {
		t.fail(subject+" is in the queue", "missing after %v: %s", t.timeout(), sample(missing))
	}
	unexpected := t.unexpected(slices.Concat(must, may), found)
	var denied []string
	unexpected = slices.DeleteFunc(unexpected, func(body string) bool {
		if !slices.Contains(refused, body) {
			return false
		}
		denied = append(denied, body)
		return true
	})
	if len(denied) > 0 {
		t.fail(refusedStays, "%s arrived%s", sample(denied), sayUnknown)
	}
	if len(unexpected) > 0 {
		t.fail("nothing is in the queue but "+subject+", once each", "too many are %s", sample(unexpected))
	}
}

// wantArrivals receives n messages with different bodies from a queue and returns them
// by their bodies. It records failures, and does not stop the case.
func (t *caseT) wantArrivals(queue, subject string, n int) map[string]*core.Incoming {
	arrived := map[string]*core.Incoming{}
	var bodies []string
	for _, in := range t.drainQueue(queue, func(found []*core.Incoming) bool { return len(found) >= n && len(distinct(found)) >= n }) {
		arrived[string(in.Body)] = in
		bodies = append(bodies, string(in.Body))
	}
	switch {
	case len(arrived) != n:
		t.fail(fmt.Sprintf("%s: %d messages", subject, n), "%d: %s%s", len(arrived), sample(bodies), t.log.told())
	case len(bodies) > n && !t.caps.MayDuplicate:
		t.fail(fmt.Sprintf("%s: %d messages, once each", subject, n), "%d: %s", len(bodies), sample(bodies))
	}
	return arrived
}

const (
	refusedStays = "a message that Send called refused does not arrive"
	sayUnknown   = "; say core.SendUnknown once the request may have left"
)

func bodiesIn(messages []*core.Incoming) []string {
	list := make([]string, len(messages))
	for i, in := range messages {
		list[i] = string(in.Body)
	}
	return list
}

func distinct(messages []*core.Incoming) []string {
	return slices.Compact(slices.Sorted(slices.Values(bodiesIn(messages))))
}

// ofAnother returns a text if a body that differs from the expected one is the body of
// another message.
func ofAnother(body []byte, sent []core.Outgoing) string {
	if len(body) == 0 || !slices.ContainsFunc(sent, func(m core.Outgoing) bool { return bytes.Equal(m.Body, body) }) {
		return ""
	}
	return "; this is the body of another message: was a buffer used again? (C11)"
}

// missingBodies returns the wanted bodies that are not found as often as they are wanted.
func missingBodies(want []string, found []*core.Incoming) []string {
	have := map[string]int{}
	for _, in := range found {
		have[string(in.Body)]++
	}
	var missing []string
	for _, body := range want {
		if have[body]--; have[body] < 0 {
			missing = append(missing, body)
		}
	}
	return missing
}

// unexpected returns the bodies of the messages beyond the wanted ones. A broker that may
// deliver twice may deliver wanted messages twice.
func (t *caseT) unexpected(want []string, found []*core.Incoming) []string {
	room, known := map[string]int{}, map[string]bool{}
	for _, body := range want {
		room[body]++
		known[body] = true
	}
	var unexpected []string
	for _, body := range bodiesIn(found) {
		if room[body]--; room[body] < 0 && !(known[body] && t.caps.MayDuplicate) {
			unexpected = append(unexpected, body)
		}
	}
	return unexpected
}
