package core

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// This file is about queues that keep groups in order (Capabilities.GroupOrder). A message of
// a group that fails must stay before those that follow it: a delayed retry, and a
// deferral, postpone it where it is, instead of sending a copy to the end of the queue.
//
// So the message cannot carry what a copy would: its headers stay as they were sent, and
// the broker counts all its deliveries, over all rounds of retries. Which round one
// belongs to follows from the count and the configuration. What does not follow from these is in
// the memory of this process alone: when the message failed first, and its deferrals.

// postponement is what is known of the earlier rounds of a message that is postponed where
// it is; in copies the headers tell it.
type postponement struct {
	retries   int // delayed ones
	deferrals int
	failed    time.Time // for the first time, or the zero time
}

// resolveGroups finds out which of the endpoint's queues keep groups, and what of it cannot be
// kept. Where all queues do, the latter is about groups that the application may not have.
func (r *resolved) resolveGroups(t Transport) {
	if !r.rules.caps.GroupOrder {
		return
	}
	keeper, some := t.(GroupKeeper)
	for _, address := range []string{r.rules.ownAddress, r.rules.instanceAddress} {
		if address != "" && (!some || keeper.KeepsGroups(address)) {
			r.groupQueues = append(r.groupQueues, address)
		}
	}
	switch {
	case len(r.groupQueues) == 0:
	case r.mode == TransactionNone:
		r.groupQueues = nil
		if some && r.config.Concurrency != 1 {
			r.ungrouped = append(r.ungrouped, "in transaction mode None messages of a group do not wait for each other; use another mode, or a Concurrency of 1")
		}
	case some:
		for messageType, c := range r.rules.all() {
			if c.Delayed.MaxNumberOfRetries == 0 {
				continue
			}
			longest := c.schedule.longest(min(c.Delayed.MaxNumberOfRetries, math.MaxInt32))
			if reason := r.rules.cannotPostpone(longest); reason != "" {
				r.ungrouped = append(r.ungrouped, fmt.Sprintf("a delayed retry%s may be due after %v, but %s; after a failure with so long a delay it goes to the error queue, and its group goes on", ofType(messageType), longest, reason))
			}
		}
	}
}

// all are the settings in force: for all message types, as "", and for some.
func (r *rules) all() map[string]RecoverabilityConfig {
	all := maps.Clone(r.perType)
	if all == nil {
		all = map[string]RecoverabilityConfig{}
	}
	all[""] = r.config
	return all
}

func ofType(messageType string) string {
	if messageType == "" {
		return ""
	}
	return " of " + messageType
}

// isPostponed reports whether a message is retried with a delay where it is, because of its
// group.
func (ep *Endpoint) isPostponed(d Delivery) bool {
	queues := ep.groupQueues
	return len(queues) > 0 && d.Incoming().GroupKey != "" && slices.Contains(queues, ep.receivedFrom(d))
}

// delayedRetries is how many came before.
func (in *Incoming) delayedRetries() int {
	return intHeader(in.Headers, HeaderRetries) + in.postponed.retries
}

// deferrals is how many came before.
func (in *Incoming) deferrals() int {
	return intHeader(in.Headers, HeaderDeferrals) + in.postponed.deferrals
}

// firstFailure is when the message failed first, or the zero time.
func (in *Incoming) firstFailure() time.Time {
	if at := firstFailure(in.Headers); !at.IsZero() {
		return at
	}
	return in.postponed.failed
}

// inRound returns the delivery with the count of its round.
func (ep *Endpoint) inRound(d Delivery) Delivery {
	in := d.Incoming()
	if in.DeliveryCount <= 1 && !in.Redelivered || !ep.isPostponed(d) {
		return d
	}
	p := ep.memory.postponementOf(in.NativeID)
	config := ep.rules.configFor(ep.typeOf(in))
	count := max(in.DeliveryCount, 1)
	if round := config.Immediate.MaxNumberOfRetries; round < math.MaxInt {
		round++
		p.retries = min((count-1)/round, config.Delayed.MaxNumberOfRetries)
		count -= p.retries * round
	}
	if p == (postponement{}) {
		return d
	}
	copied := *in
	copied.DeliveryCount, copied.Redelivered, copied.postponed = count, true, p
	return &adjusted{d, &copied}
}

// typeOf returns the type that a message will be handled as, for the retries that are in
// force for it.
func (ep *Endpoint) typeOf(in *Incoming) (messageType string) {
	if len(ep.rules.perType) == 0 {
		return ""
	}
	if name := ep.config.MessageType; name != nil {
		defer func() {
			if recover() != nil { // it is called again for the attempt, which fails
				messageType = ""
			}
		}()
		if messageType = name(in); messageType != "" {
			return ep.handlingOf(messageType).messageType
		}
	}
	return ep.handlingOf(in.Headers.Get(HeaderMessageTypes)).messageType
}

// deliveriesFrom is how often one copy of a message from a queue is delivered at most; 0 is without limit.
func (ep *Endpoint) deliveriesFrom(address string) int {
	if slices.Contains(ep.groupQueues, address) {
		return ep.rules.groupDeliveries()
	}
	return ep.maxDeliveries
}

// groupDeliveries is how often a message of a group is, in all its rounds. MaxDeliveries bounds
// those of the last one.
func (r *rules) groupDeliveries() int {
	most := r.maxDeliveries
	if most == 0 || most == math.MaxInt {
		return most
	}
	total := most
	for _, c := range r.all() {
		round, delayed := c.Immediate.MaxNumberOfRetries, c.Delayed.MaxNumberOfRetries
		if round >= math.MaxInt32 || delayed >= math.MaxInt32 {
			return math.MaxInt
		}
		total = max(total, most+(round+1)*delayed)
	}
	return total
}

// postpone gives the message back for a later attempt, which those that follow it in its
// group wait for. The failed handler's work is undone.
func (r *runner) postpone(a *attempt, f *failure, d *decision) error {
	if r.lockLost(a) { // while policy ran
		return ErrLockLost
	}
	in := a.delivery.Incoming()
	p := in.postponed
	cause := f.Err
	if d.deferral {
		p.deferrals++
		cause = nil
	}
	if p.failed.IsZero() {
		p.failed = f.FailedAt
	}
	r.ep.memory.rememberPostponement(in.NativeID, p) // before it can come again
	r.ep.noteSurvived(in)
	err := a.delivery.Postpone(r.settle, d.action.Delay, cause)
	if err == nil {
		r.release(a)
	}
	return err
}

// cannotPostpone says why a message of a group cannot be retried after a delay, or "".
func (r *rules) cannotPostpone(delay time.Duration) string {
	if most := r.caps.MaxLockTime; most > 0 && delay > most {
		return fmt.Sprintf("the transport holds a message of a group for %v at most, and a copy of it would come after those that follow it", most)
	}
	return ""
}
