package suite

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// shortDelay is the shortest sensible delay, for cases that do not measure it.
func (t *caseT) shortDelay() time.Duration {
	return t.withinMaxDelay(max(20*time.Millisecond, t.caps.DelayPrecision/2))
}

func (t *caseT) withinMaxDelay(d time.Duration) time.Duration {
	if t.caps.MaxDelay > 0 {
		return min(d, t.caps.MaxDelay)
	}
	return d
}

// canDelay reports whether delayed retries are possible in the case's mode.
func (t *caseT) canDelay() bool {
	return t.caps.DelayedDelivery && t.mode != core.TransactionNone
}

// delay returns a delay that can be told from none despite the transport's precision.
func (t *caseT) delay() time.Duration { return max(2*t.caps.DelayPrecision, 300*time.Millisecond) }

// wantDue checks that a delayed message arrived neither too early nor too late.
func (t *caseT) wantDue(subject string, delay, after time.Duration) {
	switch latest := delay + t.caps.DelayPrecision + t.suite.h.DelayTolerance; {
	case after < delay:
		t.fail(fmt.Sprintf("%s with a delay of %v is not early", subject, delay), "it came after %v", after)
	case after > latest:
		t.fail(fmt.Sprintf("%s with a delay of %v arrives within %v, which includes DelayPrecision and Harness.DelayTolerance", subject, delay, latest), "it came after %v", after)
	}
}

// awaitTime returns the next time reported by a handler.
func (t *caseT) awaitTime(times <-chan time.Time, subject string) time.Time {
	timer := time.NewTimer(t.timeout())
	defer timer.Stop()
	select {
	case at := <-times:
		return at
	case <-timer.C:
		t.stop(subject, "it did not within %v", t.timeout())
		return time.Time{}
	}
}

// briefDelay returns a delay long enough to test and short enough to take little time.
func (t *caseT) briefDelay() time.Duration {
	delay := max(2*t.caps.DelayPrecision, 200*time.Millisecond)
	if t.caps.MaxDelay > 0 {
		delay = min(delay, t.caps.MaxDelay)
	}
	return delay
}

// wantOnTime checks that a message arrived after the earliest time at which it was due
// and not later than the latest such time plus the precision.
func (t *caseT) wantOnTime(subject string, delay time.Duration, earliest, last, arrived time.Time) {
	if remaining := earliest.Sub(arrived); remaining > 0 {
		t.fail(fmt.Sprintf("%s with a delay of %v is never early", subject, delay), "it arrived %v early", remaining)
	}
	allowed := t.caps.DelayPrecision + t.suite.h.DelayTolerance
	if lateness := arrived.Sub(last); lateness > allowed {
		t.fail(fmt.Sprintf("%s with a delay of %v is late by no more than DelayPrecision, %v, and Harness.DelayTolerance, %v", subject, delay, t.caps.DelayPrecision, t.suite.h.DelayTolerance), "it arrived %v late", lateness)
	}
}

// receivedInTime sends a message that is to be received within life; count shows whether
// it was. It sends the message again if it has expired before, as may happen on a busy
// machine.
func (t *caseT) receivedInTime(transport core.Transport, life time.Duration, m core.Outgoing, count func() int) {
	m.TimeToBeReceived = life
	before, began := count(), time.Now()
	for count() == before {
		if time.Since(began) > t.timeout() {
			t.stop(fmt.Sprintf("a message with a time to be received of %v is received", life), "none of those that were sent in %v was", t.timeout())
		}
		t.send(transport, m)
		for sent := time.Now(); count() == before && time.Since(sent) < life+t.suite.h.DelayTolerance; {
			time.Sleep(5 * time.Millisecond)
		}
	}
}
