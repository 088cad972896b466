package core

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/lru"
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
// order is not always kept. If all queues keep groups there are no such reasons: the
// application may not use groups.
func (r *resolvedConfig) resolveGroups(t Transport) {
	if !r.rules.caps.GroupOrder {
		return
	}
	describer, own := describerOf(t), r.rules.ownAddress
	keeps, choosesQueues := own != "" && describer.KeepsGroups(own), !describer.KeepsGroups("")
	r.rules.keepsGroups = keeps && r.mode != TransactionNone
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
				r.groupOrderWarnings = append(r.groupOrderWarnings, fmt.Sprintf("a delayed retry%s may be due after %v, but %s; a failed message with that delay goes to the error queue, and its group continues", ofTypeText(messageType), longest, reason))
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
func (r *rules) retriesInPlace(in *Incoming) bool {
	return r.keepsGroups && in.GroupKey != ""
}

// receiverMaxDeliveries returns the receiver's limit of deliveries of one copy of a message; 0
// means no limit.
func (r *rules) receiverMaxDeliveries() int {
	if r.keepsGroups {
		return r.groupDeliveries()
	}
	return r.maxDeliveries
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

// postpone gives the message back for a new round, or for a later attempt of this one, and
// its group waits for it. The failed handler's work is undone.
func (c *carrier) postpone(w *work) error {
	in, f, d := w.attempt.delivery.Incoming(), w.failure, &w.decision
	cause, counted, delay := f.Err, 1, d.action.Delay
	if d.as == asDeferral || d.as == asRefusal {
		cause = nil
		if !c.ep.caps.CountsReleases {
			counted = 0
		}
	}
	e := in.roundsAfter(counted)
	switch {
	case d.action.Kind == ActionImmediateRetry:
	case d.as == asRefusal: // the round continues
		e.deliveries += counted
		if d.action.Kind == ActionPutBack {
			delay = c.ep.rules.putBackDelay(w.pause, *f)
		}
	default:
		e.deliveries = e.expected - 1
		switch d.as {
		case asDeferral:
			e.deferrals++
		case asRetry:
			e.retries++
		}
		if e.firstFailure.IsZero() {
			e.firstFailure = f.FailedAt
		}
	}
	c.ep.rounds.remember(in.NativeID, e) // before it can be redelivered
	c.ep.suspects.recordSurvived(in)
	err := w.attempt.delivery.Postpone(c.run.settleCtx, delay, cause)
	if err != nil { // this round continues
		c.ep.rounds.remember(in.NativeID, in.roundsAfter(1))
	}
	return err
}

// earlierRounds has an instance's knowledge of the rounds of a message before the current
// one.
type earlierRounds struct {
	retries      int // delayed retries
	deferrals    int
	firstFailure time.Time // for the first time, or the zero time
	deliveries   int       // in these rounds
	expected     int       // the broker's count for the next delivery, if no other instance gets one before
}

// roundsAfter returns the rounds to remember when the message is given back, and its
// count rises.
func (in *Incoming) roundsAfter(counted int) earlierRounds {
	e := in.earlier
	e.expected = e.deliveries + in.DeliveryCount + counted
	return e
}

// groupRounds counts the rounds of messages of groups, which their deliveries do not have (R61): it
// remembers those of this instance, and estimates those of others. The Endpoint owns it: it
// survives Run, because messages do. It is bounded. The goroutines that fetch use it, and each
// that settles a delivery.
type groupRounds struct {
	rules  *rules
	typeOf func(in *Incoming) (messageType string) // that the message will be handled as

	mu   sync.Mutex
	byID *lru.Cache[string, earlierRounds] // by NativeID
}

func newGroupRounds(r *rules, typeOf func(in *Incoming) string) *groupRounds {
	return &groupRounds{rules: r, typeOf: typeOf, byID: lru.New[string, earlierRounds](maxRememberedMessages)}
}

// adjust returns the delivery with the count of its round.
func (r *groupRounds) adjust(d Delivery) Delivery {
	in := d.Incoming()
	if in.DeliveryCount <= 1 && !in.Redelivered || !r.rules.retriesInPlace(in) {
		return d
	}
	e := r.recall(in.NativeID)
	delivered := max(in.DeliveryCount, 1)
	e.deliveries = min(e.deliveries, delivered-1) // an adapter may have subtracted a deferral from the count
	count := delivered - e.deliveries
	if delivered > e.expected { // other instances had it, or this one has forgotten it
		config := r.rules.configFor(r.typeOf(in))
		if round := config.Immediate.MaxNumberOfRetries; round < math.MaxInt {
			round++
			others := min((count-1)/round, max(config.Delayed.MaxNumberOfRetries-e.retries, 0))
			e.retries += others
			e.deliveries += others * round
			count -= others * round
		}
	}
	if e.retries == 0 && e.deferrals == 0 && e.deliveries == 0 {
		return d
	}
	copied := *in
	copied.DeliveryCount, copied.Redelivered, copied.earlier = count, true, e
	return &adjustedDelivery{d, &copied}
}

// remember records the rounds of a message.
func (r *groupRounds) remember(nativeID string, e earlierRounds) {
	if nativeID == "" {
		return
	}
	r.mu.Lock()
	r.byID.Put(nativeKey(nativeID), e)
	r.mu.Unlock()
}

// recall returns the rounds that were recorded last.
func (r *groupRounds) recall(nativeID string) earlierRounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, _ := r.byID.Get(nativeKey(nativeID))
	return e
}
