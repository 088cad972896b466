package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
)

// Contents of a queue, read by a transport that is used for nothing else.

// look receives and completes the available messages of a queue: those that other
// receivers do not hold. A slow broker does not cause a wrong result: look waits with
// patience until enough messages have arrived, and only then checks for a short time that
// there are no more.
func (t *caseT) look(queue string, enough func(found []*core.Incoming) bool) (found []*core.Incoming) {
	transport, done := t.looking()
	r := t.receiverIn(t.caps.HighestTransaction(), transport, queue, 64)
	times, comesForEver := map[copies]int{}, false
	for !comesForEver {
		wait := t.patience()
		if enough(found) && r.redelivers.none() {
			wait = t.quiet()
		}
		ctx, cancel := context.WithTimeout(t.ctx, wait)
		got, err := r.batch(ctx, r.size)
		cancel()
		if err != nil {
			break
		}
		for _, d := range got {
			key := copiesOf(d.Incoming())
			times[key]++
			comesForEver = comesForEver || times[key] > endless // redelivered although it is completed each time
		}
		found = append(found, r.read(got)...)
	}
	if !comesForEver && !r.redelivers.none() {
		t.fail("a message is redelivered whose lock had ended before Complete, which returned core.ErrLockLost", "not after %v: %s", t.patience(), some(r.redelivers.bodies()))
	}
	r.shut()
	done()
	return found
}

// contents returns the available messages of a queue whose contents are unknown, except
// that there are at least that many.
func (t *caseT) contents(queue string, least int) []*core.Incoming {
	return t.look(queue, func(found []*core.Incoming) bool { return len(found) >= least })
}

// left checks the messages left in a queue by their bodies, and returns them. It consumes
// them.
func (t *caseT) left(queue, what string, want ...string) []*core.Incoming {
	found := t.look(queue, func(found []*core.Incoming) bool { return len(missing(want, found)) == 0 })
	lacking, surplus := missing(want, found), t.surplus(want, found)
	if len(lacking)+len(surplus) > 0 {
		observed := fmt.Sprintf("it holds %s", some(bodiesIn(found)))
		if len(lacking) > 0 {
			observed += fmt.Sprintf(" after %v; missing are %s", t.patience(), some(lacking))
		}
		if len(surplus) > 0 {
			observed += "; too many are " + some(surplus)
		}
		t.fail(fmt.Sprintf("%s: the queue holds %s", what, some(want)), "%s%s", observed, t.log.told())
	}
	return found
}

// holds checks the messages left in a queue: each of must, perhaps some of may, and no
// others, once each. refused are messages that Send reported as not sent.
func (t *caseT) holds(queue, what string, must, may []string, refused ...string) {
	found := t.look(queue, func(found []*core.Incoming) bool { return len(missing(must, found)) == 0 })
	if lacking := missing(must, found); len(lacking) > 0 {
		t.fail(what+" is in the queue", "missing after %v: %s", t.patience(), some(lacking))
	}
	surplus := t.surplus(slices.Concat(must, may), found)
	var denied []string
	surplus = slices.DeleteFunc(surplus, func(body string) bool {
		if !slices.Contains(refused, body) {
			return false
		}
		denied = append(denied, body)
		return true
	})
	if len(denied) > 0 {
		t.fail(refusedStays, "%s arrived%s", some(denied), sayUnknown)
	}
	if len(surplus) > 0 {
		t.fail("nothing is in the queue but "+what+", once each", "too many are %s", some(surplus))
	}
}

// arrive receives n messages with different bodies from a queue and returns them by their
// bodies. It records failures, and does not stop the case.
func (t *caseT) arrive(queue, what string, n int) map[string]*core.Incoming {
	arrived := map[string]*core.Incoming{}
	var bodies []string
	for _, in := range t.look(queue, func(found []*core.Incoming) bool { return len(found) >= n && len(distinct(found)) >= n }) {
		arrived[string(in.Body)] = in
		bodies = append(bodies, string(in.Body))
	}
	switch {
	case len(arrived) != n:
		t.fail(fmt.Sprintf("%s: %d messages", what, n), "%d: %s%s", len(arrived), some(bodies), t.log.told())
	case len(bodies) > n && !t.caps.MayDuplicate:
		t.fail(fmt.Sprintf("%s: %d messages, once each", what, n), "%d: %s", len(bodies), some(bodies))
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

// missing returns the wanted bodies that are not found as often as they are wanted.
func missing(want []string, found []*core.Incoming) []string {
	have := map[string]int{}
	for _, in := range found {
		have[string(in.Body)]++
	}
	var lacking []string
	for _, body := range want {
		if have[body]--; have[body] < 0 {
			lacking = append(lacking, body)
		}
	}
	return lacking
}

// surplus returns the bodies of the messages beyond the wanted ones. A broker that may
// deliver twice may deliver wanted messages twice.
func (t *caseT) surplus(want []string, found []*core.Incoming) []string {
	room, known := map[string]int{}, map[string]bool{}
	for _, body := range want {
		room[body]++
		known[body] = true
	}
	var surplus []string
	for _, body := range bodiesIn(found) {
		if room[body]--; room[body] < 0 && !(known[body] && t.caps.MayDuplicate) {
			surplus = append(surplus, body)
		}
	}
	return surplus
}
