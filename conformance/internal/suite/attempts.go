package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// attempts records the calls of handlers, by the body of the message.
type attempts struct {
	mu   sync.Mutex
	seen map[string][]attempt
}

// attempt is one call of a handler.
type attempt struct {
	number, delayedRetries int
	nativeID               string
	at                     time.Time
	headers                core.Headers
}

func (a attempt) String() string {
	return fmt.Sprintf("attempt %d after %d delayed retries", a.number, a.delayedRetries)
}

// add records an attempt, and returns the number of attempts for the same body.
func (a *attempts) add(m *core.Message) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string][]attempt{}
	}
	body := string(m.RawBody())
	a.seen[body] = append(a.seen[body], attempt{m.Attempt, m.DelayedRetries, m.NativeID(), time.Now(), m.Headers})
	return len(a.seen[body])
}

// fail is a handler that always fails.
func (a *attempts) fail(_ context.Context, m *core.Message) error { return a.failWith(m, errHandler) }

// failWith fails with the error.
func (a *attempts) failWith(m *core.Message, err error) error {
	if a.add(m) > endless {
		return nil
	}
	return err
}

func (a *attempts) forBody(body string) []attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[body])
}

// wantAttempts checks the number of attempts of a message. A broker that may deliver
// twice can cause more attempts.
func (t *caseT) wantAttempts(a *attempts, body string, want int) {
	got := a.forBody(body)
	if len(got) != want && (!t.caps.MayDuplicate || len(got) < want) {
		t.fail(fmt.Sprintf("message %q is attempted %d times", body, want), "%d times: %v", len(got), got)
	}
}

// wantDrained stops the endpoint and checks that its queue is empty.
func (s *service) wantDrained(when string) {
	s.end()
	s.t.wantLeft(s.queue, when)
}

// awaitSignal checks that a signal arrives.
func (t *caseT) awaitSignal(signal <-chan struct{}, subject string) {
	timer := time.NewTimer(t.timeout())
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
		t.stop(subject, "not within %v%s", t.timeout(), t.log.told())
	}
}

// immediate returns n immediate retries, or none in mode None.
func (t *caseT) immediate(n int) core.Immediate {
	if n == 0 || t.mode == core.TransactionNone {
		return core.Immediate{NumberOfRetries: core.Off}
	}
	return core.Immediate{NumberOfRetries: n}
}

// delayed returns n delayed retries, or none where they are not possible.
func (t *caseT) delayed(n int) core.Delayed {
	if n == 0 || !t.canDelay() {
		return core.Delayed{NumberOfRetries: core.Off}
	}
	return core.Delayed{Delays: slices.Repeat([]time.Duration{t.shortDelay()}, n)}
}

// manyFailures is more than 1,000, the number of messages that a transport.DeliveryLog of
// a small receiver remembers.
const manyFailures = 1250

// many returns the number of messages of a case: in a bubble, where time costs nothing,
// or on a broker.
func (t *caseT) many(inBubble, onBroker int) int {
	if t.suite.h.Synctest {
		return inBubble
	}
	return onBroker
}

// triesToCount returns how often the count may be tried. A broker that counts every
// delivery may count a delivery that is in transit when its consumer ends, and consumers
// end when an endpoint pauses or lowers its limit. That seldom happens; a transport that
// loses attempts for another reason loses them each time.
func (t *caseT) triesToCount() int {
	if t.caps.CountsReleases {
		return 10
	}
	return 1
}

// attemptsFit reports whether a message was attempted as often as planned. A broker that
// may deliver twice can cause more attempts.
func (t *caseT) attemptsFit(n, want int) bool {
	switch {
	case n < 1:
		return false
	case t.caps.MayDuplicate && n > want:
	case n != want:
		return false
	}
	return true
}
