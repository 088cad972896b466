package core

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// This file is about queues that keep groups in order (Capabilities.GroupOrder). A failed
// message of a group must stay before its successors: a delayed retry, and a deferral,
// postpone it in its place, instead of sending a copy to the end of the queue.
//
// A copy has headers about earlier rounds, and a new delivery count. A postponed message
// has its original headers, and the broker counts its deliveries over all rounds. So the
// instance that postpones it remembers its rounds. Of deliveries to other instances it
// knows only the number: it counts them as rounds with the configured number of attempts.

// resolveGroups finds out whether the input queue keeps groups, and the reasons why their
// order is not always kept. Without a GroupKeeper there are no such reasons: the application
// may not use groups.
func (r *resolvedConfig) resolveGroups(t Transport) {
	if !r.rules.caps.GroupOrder {
		return
	}
	keeper, choosesQueues := t.(GroupKeeper)
	own := r.rules.ownAddress
	keeps := own != "" && (!choosesQueues || keeper.KeepsGroups(own))
	r.keepsGroups = keeps && r.mode != TransactionNone
	switch {
	case !keeps:
	case r.mode == TransactionNone:
		if choosesQueues && r.config.Concurrency != 1 {
			r.groupOrderWarnings = append(r.groupOrderWarnings, "in transaction mode None messages of a group do not wait for each other; use another mode, or a Concurrency of 1")
		}
	case choosesQueues:
		configs := r.rules.allConfigs()
		for _, messageType := range slices.Sorted(maps.Keys(configs)) {
			c := configs[messageType]
			if c.Delayed.MaxNumberOfRetries == 0 {
				continue
			}
			longest := c.schedule.Longest(min(c.Delayed.MaxNumberOfRetries, math.MaxInt32))
			if reason := r.rules.whyNotPostponable(longest); reason != "" {
				r.groupOrderWarnings = append(r.groupOrderWarnings, fmt.Sprintf("a delayed retry%s may be due after %v, but %s; after a failure with so long a delay it goes to the error queue, and its group goes on", ofTypeText(messageType), longest, reason))
			}
		}
	}
}

// allConfigs returns the settings of each message type that has its own, and those of all
// others under "".
func (r *rules) allConfigs() map[string]RecoverabilityConfig {
	configs := maps.Clone(r.perType)
	if configs == nil {
		configs = map[string]RecoverabilityConfig{}
	}
	configs[""] = r.config
	return configs
}

func ofTypeText(messageType string) string {
	if messageType == "" {
		return ""
	}
	return " of " + messageType
}

// retriesInPlace reports whether a delayed retry postpones a message, because of its group.
func (ep *Endpoint) retriesInPlace(d Delivery) bool {
	return ep.keepsGroups && d.Incoming().GroupKey != ""
}

// withRoundCount returns the delivery with the count of its round.
func (ep *Endpoint) withRoundCount(d Delivery) Delivery {
	in := d.Incoming()
	if in.DeliveryCount <= 1 && !in.Redelivered || !ep.retriesInPlace(d) {
		return d
	}
	e := ep.redeliveries.roundsOf(in.NativeID)
	delivered := max(in.DeliveryCount, 1)
	e.deliveries = min(e.deliveries, delivered-1) // an adapter may have subtracted a deferral from the count
	count := delivered - e.deliveries
	if delivered > e.expected { // other instances had it, or this one has forgotten it
		config := ep.rules.configFor(ep.typeOf(in))
		if round := config.Immediate.MaxNumberOfRetries; round < math.MaxInt {
			round++
			rounds := min((count-1)/round, max(config.Delayed.MaxNumberOfRetries-e.retries, 0))
			e.retries += rounds
			e.deliveries += rounds * round
			count -= rounds * round
		}
	}
	if e.retries == 0 && e.deferrals == 0 && e.deliveries == 0 {
		return d
	}
	copied := *in
	copied.DeliveryCount, copied.Redelivered, copied.earlier = count, true, e
	return &adjustedDelivery{d, &copied}
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

// groupDeliveries returns the limit of deliveries of a message of a group, in all its
// rounds. MaxDeliveries limits those of the last round.
func (r *rules) groupDeliveries() int {
	last := r.maxDeliveries
	if last == 0 || last == math.MaxInt {
		return last
	}
	total := last
	for _, c := range r.allConfigs() {
		round, delayed := c.Immediate.MaxNumberOfRetries, c.Delayed.MaxNumberOfRetries
		if round >= math.MaxInt32 || delayed >= math.MaxInt32 {
			return math.MaxInt
		}
		total = max(total, last+(round+1)*delayed)
	}
	return total
}

// postpone gives the message back for a new round, and its group waits for it. The failed
// handler's work is undone.
func (r *runner) postpone(a *attempt, f *failure, d *decision) error {
	if r.lockLost(a) { // while policy ran
		return ErrLockLost
	}
	in := a.delivery.Incoming()
	cause, counted := f.Err, 1
	if d.deferral {
		cause = nil
		if !r.ep.rules.caps.CountsReleases {
			counted = 0
		}
	}
	e := in.roundsAfter(counted)
	before := e.deliveries
	e.deliveries = e.expected - 1
	switch {
	case d.uncounted: // the round continues
		e.deliveries = before + counted
	case d.deferral:
		e.deferrals++
	default:
		e.retries++
	}
	if e.firstFailure.IsZero() && !d.uncounted {
		e.firstFailure = f.FailedAt
	}
	r.ep.redeliveries.rememberRounds(in.NativeID, e) // before it can be redelivered
	r.ep.recordSurvived(in)
	err := a.delivery.Postpone(r.settleCtx, d.action.Delay, cause)
	if err != nil { // this round continues
		r.ep.redeliveries.rememberRounds(in.NativeID, in.roundsAfter(1))
		return err
	}
	r.endAttempt(a)
	return nil
}

// receiverMaxDeliveries returns the receiver's limit of deliveries of one copy of a
// message; 0 means no limit.
func (ep *Endpoint) receiverMaxDeliveries() int {
	if ep.keepsGroups {
		return ep.rules.groupDeliveries()
	}
	return ep.maxDeliveries
}
