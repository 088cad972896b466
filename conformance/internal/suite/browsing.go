package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// Operations of cases on the optional interfaces of package queues.

var (
	browsing   = claimed("Browse", func(c core.Capabilities) bool { return c.Browse })
	taking     = claimed("Take", func(c core.Capabilities) bool { return c.Take })
	depths     = need{"the transport is no queues.DepthReader", func(s *suite) bool { return s.depths }}
	queueLists = need{"the transport is no queues.Lister", func(s *suite) bool { return s.lister }}
)

// probeQueues determines which interfaces of package queues the transport has. A wrapper has all, and
// returns errors.ErrUnsupported for those that the wrapped transport lacks.
func (s *suite) probeQueues(t *caseT, transport core.Transport) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if reader, ok := transport.(queues.DepthReader); ok {
		_, err := reader.Depth(ctx, t.queue(transport))
		s.depths = !errors.Is(err, errors.ErrUnsupported)
	}
	if lister, ok := transport.(queues.Lister); ok {
		_, err := lister.ListQueues(ctx)
		s.lister = !errors.Is(err, errors.ErrUnsupported)
	}
}

// tryPage returns a page or the error of Browse.
func (t *caseT) tryPage(transport core.Transport, r queues.Request) (queues.Page, error) {
	browser, ok := transport.(queues.Browser)
	if !ok {
		t.stop("a transport that claims Browse is a queues.Browser", "%T is none", transport)
	}
	ctx, cancel := t.withTimeout()
	defer cancel()
	return browser.Browse(ctx, r)
}

// page returns a page, after checking that it is well formed.
func (t *caseT) page(transport core.Transport, r queues.Request) queues.Page {
	page, err := t.tryPage(transport, r)
	if err != nil {
		t.stop("Browse returns a page", "%v", err)
	}
	switch n := len(page.Messages); {
	case n > r.Limit:
		t.stop(fmt.Sprintf("a page has at most Limit messages, %d (C32)", r.Limit), "it has %d", n)
	case n == 0 && page.Next != "":
		t.stop("a page is empty only if nothing follows: Next is empty too (C32)", "it is %q", page.Next)
	case len(r.Keys) > 0 && page.Next != "":
		t.fail("a page of keys has no Next (C32)", "it is %q", page.Next)
	}
	for _, m := range page.Messages {
		if m.Key == "" {
			t.fail("every message has a Key", "that of %s is empty", excerpt(m.Body))
		}
		switch {
		case r.WithoutBody && m.Body != nil:
			t.fail("WithoutBody leaves Body nil", "it has %d bytes", len(m.Body))
		case !r.WithoutBody && m.BodyBytes != len(m.Body):
			t.fail(fmt.Sprintf("BodyBytes is the size of the body, %d", len(m.Body)), "%d", m.BodyBytes)
		}
	}
	return page
}

// maxPages is more than the pages of any look.
const maxPages = 2000

// look returns all messages of a queue, in pages of a size.
func (t *caseT) look(transport core.Transport, queue string, limit int) []queues.Message {
	return t.lookOn(transport, queues.Request{Queue: queue, Limit: limit})
}

// lookOn returns all messages from a request's After on.
func (t *caseT) lookOn(transport core.Transport, r queues.Request) (all []queues.Message) {
	for range maxPages {
		page := t.page(transport, r)
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all
		}
		r.After = page.Next
	}
	t.stop("a look ends: Next of the last page is empty (C32)", "page %d has one", maxPages)
	return nil
}

// lookFor looks until these bodies are in a queue, which a broker may show a little later, and
// returns all messages.
func (t *caseT) lookFor(transport core.Transport, queue string, bodies ...string) (all []queues.Message) {
	if !t.awaitTrue(func() bool {
		all = t.look(transport, queue, 100)
		return len(missingBodies(bodies, incomingOf(all))) == 0
	}) {
		t.stop("a look shows all messages of the queue, waiting, delayed and locked ones", "missing after %v: %s", t.timeout(), sample(missingBodies(bodies, incomingOf(all))))
	}
	return all
}

// filled sends n messages, and returns their bodies when a look shows them.
func (t *caseT) filled(transport core.Transport, queue string, n int) []string {
	bodies := bodiesOf(t.messages(queue, n))
	t.sendEach(transport, queue, bodies...)
	t.lookFor(transport, queue, bodies...)
	return bodies
}

func incomingOf(messages []queues.Message) []*core.Incoming {
	list := make([]*core.Incoming, len(messages))
	for i := range messages {
		list[i] = &messages[i].Incoming
	}
	return list
}

// byBody returns messages by their bodies, which differ.
func byBody(messages []queues.Message) map[string]queues.Message {
	all := map[string]queues.Message{}
	for _, m := range messages {
		all[string(m.Body)] = m
	}
	return all
}

// keysOf returns the keys of messages by their bodies, after checking that they differ.
func (t *caseT) keysOf(messages []queues.Message) map[string]string {
	keys, bodies := map[string]string{}, map[string]string{}
	for _, m := range messages {
		body := string(m.Body)
		if other, has := bodies[m.Key]; has {
			t.fail("no other copy has the Key of a message", "%s and %s have %q", excerpt([]byte(other)), excerpt(m.Body), m.Key)
		}
		keys[body], bodies[m.Key] = m.Key, body
	}
	return keys
}

// wantSeen checks that a look showed each message that stayed in the queue exactly once, and each other one
// at most once.
func (t *caseT) wantSeen(when string, seen []queues.Message, stayed []string, others ...string) {
	times := map[string]int{}
	for _, m := range seen {
		times[string(m.Body)]++
	}
	var missing, repeated []string
	for _, body := range stayed {
		if times[body] == 0 {
			missing = append(missing, body)
		}
	}
	for _, body := range slices.Sorted(maps.Keys(times)) {
		if times[body] > 1 {
			repeated = append(repeated, body)
		}
	}
	if len(missing) > 0 {
		t.fail("a message that is in the queue from the first page of a look to the last is shown: "+when, "missing: %s", sample(missing))
	}
	if len(repeated) > 0 {
		t.fail("a look shows no message twice: "+when, "shown more than once: %s", sample(repeated))
	}
	for _, body := range slices.Sorted(maps.Keys(times)) {
		if !slices.Contains(stayed, body) && !slices.Contains(others, body) {
			t.fail("a look shows the messages of its queue: "+when, "it shows %s", excerpt([]byte(body)))
		}
	}
}

// tryTaking returns the results and the error of Take.
func (t *caseT) tryTaking(transport core.Transport, queue string, takes ...queues.Take) ([]queues.TakeResult, error) {
	taker, ok := transport.(queues.Taker)
	if !ok {
		t.stop("a transport that claims Take is a queues.Taker", "%T is none", transport)
	}
	ctx, cancel := t.withTimeout()
	defer cancel()
	return taker.Take(ctx, queue, takes)
}

// take takes messages, and checks that there is a well-formed result for each.
func (t *caseT) take(transport core.Transport, queue string, takes ...queues.Take) []queues.TakeResult {
	results, err := t.tryTaking(transport, queue, takes...)
	if err != nil {
		t.stop("Take returns a result for each message, and waits for no receiver", "%v", err)
	}
	t.checkTakeResults(results, takes)
	return results
}

func (t *caseT) checkTakeResults(results []queues.TakeResult, takes []queues.Take) {
	if len(results) != len(takes) {
		t.stop(fmt.Sprintf("Take without an error returns a result for each of %d messages", len(takes)), "%d", len(results))
	}
	for i, r := range results {
		if (r.State == queues.TakeRefused) != (r.Err != nil) {
			t.fail("a TakeResult has an Err exactly when it is refused", "result %d is %v with %v", i, r.State, r.Err)
		}
	}
}

// wantTaken takes messages, and checks the states of the results.
func (t *caseT) wantTaken(when string, transport core.Transport, queue string, takes []queues.Take, want ...queues.TakeState) []queues.TakeResult {
	results := t.take(transport, queue, takes...)
	got := make([]queues.TakeState, len(results))
	for i, r := range results {
		got[i] = r.State
	}
	if !slices.Equal(got, want) {
		var reasons []error
		for _, r := range results {
			reasons = append(reasons, r.Err)
		}
		t.stop(fmt.Sprintf("Take %s returns %v", when, want), "%v (%v)", got, errors.Join(reasons...))
	}
	return results
}

// depth returns the numbers of a queue.
func (t *caseT) depth(transport core.Transport, queue string) queues.Depth {
	ctx, cancel := t.withTimeout()
	defer cancel()
	depth, err := transport.(queues.DepthReader).Depth(ctx, queue)
	if err != nil {
		t.stop("Depth returns the numbers of a queue", "%v", err)
	}
	return depth
}

// wantDepth waits until the numbers that the broker tells are right: at once if they
// are exact, and settlements are confirmed.
func (t *caseT) wantDepth(when string, transport core.Transport, queue string, right func(d queues.Depth) (problem string)) {
	deadline := time.Now().Add(t.timeout())
	for {
		depth := t.depth(transport, queue)
		problem := right(depth)
		if problem == "" {
			return
		}
		if depth.Exact && t.caps.ConfirmsSettlement || time.Now().After(deadline) {
			t.fail(fmt.Sprintf("%s, %s, or -1 where the broker does not tell it", when, problem), "%+v", depth)
			return
		}
		t.sleep(t.quietPeriod() / 3)
	}
}

// counts returns a check of Ready, Locked and Delayed.
func counts(ready, locked, delayed int) func(d queues.Depth) string {
	return func(d queues.Depth) string {
		for _, n := range []struct {
			name      string
			got, want int
		}{{"Ready", d.Ready, ready}, {"Locked", d.Locked, locked}, {"Delayed", d.Delayed, delayed}} {
			if n.got != n.want && n.got != -1 {
				return fmt.Sprintf("%s is %d", n.name, n.want)
			}
		}
		return ""
	}
}

// receivers returns a check of Receivers.
func receivers(n int) func(d queues.Depth) string {
	return func(d queues.Depth) string {
		if d.Receivers != n && d.Receivers != -1 {
			return fmt.Sprintf("Receivers is %d", n)
		}
		return ""
	}
}

// queueCall is a call of one of the interfaces that a transport has.
type queueCall struct {
	name string
	call func(ctx context.Context) error
}

func (t *caseT) queueCalls(transport core.Transport, queue string) (calls []queueCall) {
	add := func(has bool, name string, call func(ctx context.Context) error) {
		if has {
			calls = append(calls, queueCall{name, call})
		}
	}
	add(t.caps.Browse, "Browse", func(ctx context.Context) error {
		_, err := transport.(queues.Browser).Browse(ctx, queues.Request{Queue: queue, Limit: 1})
		return err
	})
	add(t.caps.Take, "Take", func(ctx context.Context) error {
		_, err := transport.(queues.Taker).Take(ctx, queue, []queues.Take{{Key: "1"}})
		return err
	})
	add(t.suite.depths, "Depth", func(ctx context.Context) error {
		_, err := transport.(queues.DepthReader).Depth(ctx, queue)
		return err
	})
	add(t.suite.lister, "ListQueues", func(ctx context.Context) error {
		_, err := transport.(queues.Lister).ListQueues(ctx)
		return err
	})
	return calls
}

func incomingOfDeliveries(deliveries []core.Delivery) []*core.Incoming {
	list := make([]*core.Incoming, len(deliveries))
	for i, d := range deliveries {
		list[i] = d.Incoming()
	}
	return list
}
