package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

func (t *caseT) complete(deliveries ...core.Delivery) {
	t.settle("Complete", deliveries, core.Delivery.Complete)
}

var errHandler = errors.New("the handler failed, as the case wants it")

func (t *caseT) abandon(deliveries ...core.Delivery) {
	t.settle("Abandon", deliveries, func(d core.Delivery, ctx context.Context) error { return d.Abandon(ctx, errHandler) })
}

func (t *caseT) release(deliveries ...core.Delivery) {
	t.settle("Release", deliveries, core.Delivery.Release)
}

const (
	settlesHeld   = " returns nil for a delivery that is held"
	completesHeld = "Complete" + settlesHeld
)

func (t *caseT) settle(name string, deliveries []core.Delivery, settle func(core.Delivery, context.Context) error) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	for _, d := range deliveries {
		if err := settle(d, ctx); err != nil {
			t.recordLateLock(d)
			t.stop(name+settlesHeld, "%v%s", err, lockEndedAgo(d))
		}
	}
}

// lockEndedAgo returns a text about the end of a delivery's lock if it is known to have
// ended.
func lockEndedAgo(d core.Delivery) string {
	if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() && time.Now().After(lockedUntil) {
		return fmt.Sprintf("; its LockedUntil was %v ago", time.Since(lockedUntil))
	}
	return ""
}

// wayToSettle is one of the methods that settle a delivery.
type wayToSettle struct {
	name     string
	consumes bool // the message is gone afterwards; else it is redelivered
	do       func(ctx context.Context, d core.Delivery) error
}

// waysToSettle returns the ways in which the case's deliveries can be settled. The
// message sent by CompleteWith or ReplaceWith goes to the queue out, and its body says
// which of them sent it, for which delivery.
func (t *caseT) waysToSettle(out string) []wayToSettle {
	ways := []wayToSettle{
		{"Complete", true, func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }},
		{"Abandon", false, func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errHandler) }},
		{"Release", false, func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }},
	}
	if t.mode == core.TransactionSendsAtomicWithReceive {
		with := func(name string, do func(d core.Delivery, ctx context.Context, out []core.Outgoing) error) wayToSettle {
			return wayToSettle{name, true, func(ctx context.Context, d core.Delivery) error {
				return do(d, ctx, []core.Outgoing{t.message(out, name+" for "+string(d.Incoming().Body))})
			}}
		}
		ways = append(ways,
			with("CompleteWith", core.Delivery.CompleteWith),
			with("ReplaceWith", core.Delivery.ReplaceWith))
	}
	if t.caps.DeadLetter && t.mode != core.TransactionNone {
		ways = append(ways, wayToSettle{"DeadLetter", true, func(ctx context.Context, d core.Delivery) error {
			return d.DeadLetter(ctx, core.DeadLetter{Reason: "tried", Description: "by the conformance suite"})
		}})
	}
	return ways
}

// trySettling returns the error of a settlement.
func (t *caseT) trySettling(way wayToSettle, d core.Delivery) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	return way.do(ctx, d)
}

// atOnce is the time limit for the redelivery of a message that was given back. A later
// redelivery has been caused by the end of its lock, or by a delay.
func (t *caseT) atOnce(d core.Delivery) time.Duration {
	limit := t.suite.h.DelayTolerance + t.quietPeriod()
	if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() {
		limit = min(limit, time.Until(lockedUntil))
	}
	return limit
}

// wantCount checks a DeliveryCount after failed deliveries only.
func (t *caseT) wantCount(when string, d core.Delivery, want int) {
	if got := d.Incoming().DeliveryCount; got != want {
		t.fail(fmt.Sprintf("DeliveryCount is %d %s", want, when), "it is %d", got)
	}
}

// countedBeside checks a DeliveryCount if there were other returns too, by Release, Close
// or the end of a lock; these count too with CountsReleases.
func (t *caseT) countedBeside(when string, d core.Delivery, want int) {
	if got := d.Incoming().DeliveryCount; !t.caps.CountsReleases || got < want {
		t.wantCount(when, d, want)
	}
}

// returnCounted reports whether the broker may have counted a return that was not a
// failure.
func (t *caseT) returnCounted(operation string, got, want int) bool {
	return t.caps.CountsReleases && operation != "Abandon" && got > want
}
