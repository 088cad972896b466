package conformance

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

// endless is more attempts than any case allows a message. If a transport redelivered a
// message for ever to a handler that always fails, the clock of a bubble would stand
// still.
const endless = 60

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

func (a *attempts) of(body string) []attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[body])
}

// attempted checks the number of attempts of a message. A broker that may deliver twice
// can cause more attempts.
func (t *trial) attempted(a *attempts, body string, want int) {
	got := a.of(body)
	if len(got) != want && (!t.caps.MayDuplicate || len(got) < want) {
		t.fail(fmt.Sprintf("message %q is attempted %d times", body, want), "%d times: %v", len(got), got)
	}
}

const (
	arrivesInError = "what cannot be handled arrives in the error queue"
	movedAway      = "after the message went to the error queue"
)

// moved waits until n messages are in the error queue, and returns them by their bodies.
func (s *service) moved(n int) map[string]*core.Incoming {
	return s.t.arrive(s.errorQueue, arrivesInError, n)
}

// movedOne returns the only message in the error queue, stops the endpoint, and checks
// that its queue is empty. It stops the case if there is no such message.
func (s *service) movedOne() *core.Incoming {
	var moved *core.Incoming
	for _, moved = range s.moved(1) {
	}
	s.leftNothing(movedAway)
	if moved == nil {
		s.t.stop(arrivesInError, "nothing arrived")
	}
	return moved
}

// leftNothing stops the endpoint and checks that its queue is empty.
func (s *service) leftNothing(when string) {
	s.end()
	s.t.left(s.queue, when)
}

// receives checks that a signal arrives.
func (t *trial) receives(signal <-chan struct{}, what string) {
	timer := time.NewTimer(t.patience())
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
		t.stop(what, "not within %v%s", t.patience(), t.log.told())
	}
}

// original returns a failed message's headers without those added by the move to the
// error queue.
func original(h core.Headers) map[string]string {
	h.Del(
		core.HeaderFailedQ, core.HeaderFailureReason, core.HeaderTimeOfFailure, core.HeaderAttempts,
		core.HeaderExceptionType, core.HeaderExceptionMessage, core.HeaderExceptionStackTrace,
		core.HeaderExceptionSource, core.HeaderExceptionInnerType,
		core.HeaderHandlerType, core.HeaderHandlerStartTime, core.HeaderHandlerFailureTime, core.HeaderHandledMessageType,
		core.HeaderProcessingEndpoint, core.HeaderProcessingMachine, core.HeaderHostID, core.HeaderHostDisplayName,
	)
	return h.Map()
}

// shortDelay is the shortest sensible delay, for cases that do not measure it.
func (t *trial) shortDelay() time.Duration {
	return t.withinMaxDelay(max(20*time.Millisecond, t.caps.DelayPrecision/2))
}

func (t *trial) withinMaxDelay(d time.Duration) time.Duration {
	if t.caps.MaxDelay > 0 {
		return min(d, t.caps.MaxDelay)
	}
	return d
}

// canDelay reports whether delayed retries are possible in the case's mode.
func (t *trial) canDelay() bool {
	return t.caps.DelayedDelivery && t.mode != core.TransactionNone
}

// immediate returns n immediate retries, or none in mode None.
func (t *trial) immediate(n int) core.Immediate {
	if n == 0 || t.mode == core.TransactionNone {
		return core.Immediate{Off: true}
	}
	return core.Immediate{Retries: n}
}

// delayed returns n delayed retries, or none where they are not possible.
func (t *trial) delayed(n int) core.Delayed {
	if n == 0 || !t.canDelay() {
		return core.Delayed{Off: true}
	}
	return core.Delayed{Delays: slices.Repeat([]time.Duration{t.shortDelay()}, n)}
}
