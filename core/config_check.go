package core

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// problems collects what is wrong, so that it can be reported together.
type problems struct{ list []error }

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Errorf(format, args...))
}

func (p *problems) addErr(err error) {
	if err != nil {
		p.list = append(p.list, err)
	}
}

func (p *problems) notNegative(field string, value int) {
	if value < 0 {
		p.add("%s is %d; it cannot be negative (0 is the default)", field, value)
	}
}

func (p *problems) notNegativeDuration(field string, value time.Duration) {
	if value < 0 {
		p.add("%s is %v; it cannot be negative (0 is the default)", field, value)
	}
}

// resolved is a Config with its defaults filled in and its promises checked
// against a transport.
type resolved struct {
	config        Config
	mode          TransactionMode
	rules         rules
	maxDeliveries int // 0 = without limit
	codecs        *codecs
	observers     *observers
	// reduced says which defaults the transport cannot do (R10).
	reduced []string
}

// resolve checks everything in c and returns all that is wrong with it.
func resolve(c Config, caps Capabilities) (*resolved, error) {
	var p problems
	r := &resolved{config: c}
	p.notNegative("Concurrency", c.Concurrency)
	p.notNegativeDuration("DrainTimeout", c.DrainTimeout)
	p.notNegativeDuration("HandlerTimeout", c.HandlerTimeout)
	if c.SlowHandler != Off {
		p.notNegativeDuration("SlowHandler", c.SlowHandler)
	}
	if c.LogFormat < LogNServiceBus || c.LogFormat > LogConstant {
		p.add("LogFormat is %d, which is none of LogNServiceBus, LogConstant", int(c.LogFormat))
	}
	if c.Provision < ProvisionAuto || c.Provision > ProvisionNever {
		p.add("Provision is %d, which is none of ProvisionAuto, ProvisionAlways, ProvisionNever", int(c.Provision))
	}
	if !utf8.ValidString(c.Instance) {
		p.add("Instance is %q, which is not UTF-8; use text", c.Instance)
	}
	if c.SendOnly && c.AuditQueue != "" {
		p.add("AuditQueue is %q on a send-only endpoint, which handles nothing; remove one of the two", c.AuditQueue)
	}
	for i, m := range c.Middleware {
		if m == nil {
			p.add("Middleware[%d] is nil; remove it", i)
		}
	}
	var err error
	r.codecs, err = newCodecs(c.Codec, c.Codecs)
	p.addErr(err)
	r.observers = sortObservers(&p, c.Observers)

	r.mode = c.Transactions
	switch {
	case c.SendOnly:
	case len(caps.Transactions) == 0:
		p.add("the transport lists no transaction mode in its Capabilities, so nothing can be received from it")
	case c.Transactions == TransactionDefault:
		r.mode = caps.HighestTransaction()
	case !caps.Supports(c.Transactions):
		p.add("Transactions is %v, which the transport does not have; it has %v", c.Transactions, caps.Transactions)
	}

	orDefault(&r.config.Concurrency, defaultConcurrency)
	orDefault(&r.config.DrainTimeout, defaultDrainTimeout)
	orDefault(&r.config.SlowHandler, defaultSlowHandler)
	if r.config.SlowHandler == Off {
		r.config.SlowHandler = 0
	}
	r.resolveRecoverability(&p, caps)
	return r, errors.Join(p.list...)
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (r *resolved) resolveRecoverability(p *problems, caps Capabilities) {
	c := &r.config.Recoverability
	const prefix = "Recoverability."
	orDefault(&c.ErrorQueue, defaultErrorQueue)
	p.notNegativeDuration(prefix+"MaxRetryAge", c.MaxRetryAge)
	p.notNegativeDuration(prefix+"RequeueDelay", c.RequeueDelay)
	p.notNegative(prefix+"RequeueLimit", c.RequeueLimit)
	p.notNegative(prefix+"UnacceptableMessageLimit", c.UnacceptableMessageLimit)
	p.notNegativeDuration(prefix+"UnacceptableMessageWindow", c.UnacceptableMessageWindow)
	p.notNegative(prefix+"MaxDeliveries.Count", c.MaxDeliveries.Count)
	if c.MaxDeliveries.Off && c.MaxDeliveries.Count > 0 {
		p.add(prefix+"MaxDeliveries has Count %d and Off; remove one of the two", c.MaxDeliveries.Count)
	}
	if c.UnacceptableMessageWindow > 0 && c.UnacceptableMessageLimit == 0 {
		p.add(prefix + "UnacceptableMessageWindow is set without UnacceptableMessageLimit; set the limit or remove the window")
	}
	if c.DeadLetter && !caps.DeadLetter {
		p.add(prefix + "DeadLetter is set, but the transport has no dead-letter queue of its own (Capabilities.DeadLetter); remove it")
	}
	for i, err := range c.Unrecoverable {
		if err == nil {
			p.add(prefix+"Unrecoverable[%d] is nil; remove it", i)
		}
	}
	r.resolveRateLimit(p)
	switch {
	case c.RequeueDelay <= 0:
	case r.mode == TransactionNone || !caps.DelayedDelivery:
		p.add(prefix+"RequeueDelay is %v, but nothing can be deferred in transaction mode None or without Capabilities.DelayedDelivery; remove it", c.RequeueDelay)
	case caps.MaxDelay > 0 && c.RequeueDelay > caps.MaxDelay:
		p.add(prefix+"RequeueDelay is %v, but the transport's Capabilities.MaxDelay is %v; use no more", c.RequeueDelay, caps.MaxDelay)
	}
	orDefault(&c.RequeueDelay, defaultRequeueDelay)

	r.rules = rules{
		policy:       c.Policy,
		requeueDelay: c.RequeueDelay,
		requeueLimit: c.RequeueLimit,
		deadLetter:   c.DeadLetter,
		mode:         r.mode,
		caps:         caps,
		address:      func(queue string) (string, error) { return queue, nil },
	}
	base := &r.rules.config
	base.Failed.ErrorQueue = c.ErrorQueue
	base.Failed.Unrecoverable = slices.Clone(c.Unrecoverable)
	base.unrecoverableFunc = c.UnrecoverableFunc
	base.maxRetryAge = c.MaxRetryAge
	r.setImmediate(p, prefix, c.Immediate, base)
	r.setDelayed(p, prefix, c.Delayed, base)
	base.handlerTimeout = r.config.HandlerTimeout
	r.rules.perType = map[string]RecoverabilityConfig{}
	for _, messageType := range slices.Sorted(maps.Keys(c.MessageTypes)) {
		own, inForce := c.MessageTypes[messageType], *base
		prefix := fmt.Sprintf("%sMessageTypes[%q].", prefix, messageType)
		if own.Immediate != (Immediate{}) {
			r.setImmediate(p, prefix, own.Immediate, &inForce)
		}
		if !isZeroDelayed(own.Delayed) {
			r.setDelayed(p, prefix, own.Delayed, &inForce)
		}
		switch {
		case own.HandlerTimeout == Off:
			inForce.handlerTimeout = 0
		case own.HandlerTimeout != 0:
			p.notNegativeDuration(prefix+"HandlerTimeout", own.HandlerTimeout)
			inForce.handlerTimeout = own.HandlerTimeout
		}
		r.rules.perType[messageType] = inForce
	}
	if !c.MaxDeliveries.Off {
		r.maxDeliveries = c.MaxDeliveries.Count
		if r.maxDeliveries == 0 {
			r.maxDeliveries = math.MaxInt // for retries without end
			if most := r.mostImmediate(); most < math.MaxInt/4 {
				r.maxDeliveries = max(defaultMaxDeliveries, 4*(most+1))
			}
		} else if most := r.mostImmediate(); r.maxDeliveries <= most {
			p.add(prefix+"MaxDeliveries.Count is %d, which a round of %d immediate retries would exceed; use more than that", r.maxDeliveries, most)
		}
	}
	r.rules.maxDeliveries = r.maxDeliveries
}

func (r *resolved) resolveRateLimit(p *problems) {
	c := &r.config.Recoverability.RateLimit
	p.notNegative("Recoverability.RateLimit.ConsecutiveFailures", c.ConsecutiveFailures)
	p.notNegativeDuration("Recoverability.RateLimit.TimeToWait", c.TimeToWait)
	if c.ConsecutiveFailures == 0 && (c.TimeToWait != 0 || c.Filter != nil || c.OnStarted != nil || c.OnEnded != nil) {
		p.add("Recoverability.RateLimit is configured without ConsecutiveFailures, which would leave it off; set ConsecutiveFailures to 1 or more")
	}
	orDefault(&c.TimeToWait, defaultTimeToWait)
}

// mostImmediate returns the largest number of immediate retries in force.
func (r *resolved) mostImmediate() int {
	most := r.rules.config.Immediate.MaxNumberOfRetries
	for _, own := range r.rules.perType {
		most = max(most, own.Immediate.MaxNumberOfRetries)
	}
	return most
}

func isZeroDelayed(d Delayed) bool {
	return d.Retries == 0 && !d.Off && d.Increase == 0 && d.Factor == 0 && d.MaxDelay == 0 && len(d.Delays) == 0 && d.Jitter == 0
}

// setImmediate and setDelayed resolve a level of retries. What was asked for
// explicitly and cannot be done is refused; a default that cannot be done
// becomes 0 (R10).
func (r *resolved) setImmediate(p *problems, prefix string, immediate Immediate, c *RecoverabilityConfig) {
	c.Immediate.MaxNumberOfRetries = r.immediateRetries(p, prefix+"Immediate", immediate)
}

func (r *resolved) setDelayed(p *problems, prefix string, delayed Delayed, c *RecoverabilityConfig) {
	c.schedule = schedule{
		increase: delayed.Increase, factor: delayed.Factor, ceiling: delayed.MaxDelay,
		list: slices.Clone(delayed.Delays), jitter: delayed.Jitter,
	}
	orDefault(&c.schedule.increase, defaultIncrease)
	c.Delayed.TimeIncrease = c.schedule.increase
	c.Delayed.MaxNumberOfRetries, c.delayedReduced = r.delayedRetries(p, prefix+"Delayed", delayed, c.schedule)
}

func (r *resolved) immediateRetries(p *problems, field string, c Immediate) int {
	p.notNegative(field+".Retries", c.Retries)
	switch {
	case c.Off && c.Retries > 0:
		p.add("%s has Retries %d and Off; remove one of the two", field, c.Retries)
		return 0
	case c.Off || r.config.SendOnly:
		return 0
	case r.mode == TransactionNone && c.Retries > 0:
		p.add("%s.Retries is %d, but the transaction mode is None, in which a message cannot be given back; set %s.Off, or use a transaction mode above None", field, c.Retries, field)
		return 0
	case r.mode == TransactionNone:
		r.reduced = append(r.reduced, field+": transaction mode None allows no retries")
		return 0
	case c.Retries == 0:
		return defaultImmediate
	}
	return c.Retries
}

// delayedRetries returns how many there are, and why a default that cannot be
// done became 0.
func (r *resolved) delayedRetries(p *problems, field string, c Delayed, s schedule) (retries int, reduced string) {
	before := len(p.list)
	p.notNegative(field+".Retries", c.Retries)
	p.notNegativeDuration(field+".Increase", c.Increase)
	p.notNegativeDuration(field+".MaxDelay", c.MaxDelay)
	for i, delay := range c.Delays {
		if delay < 0 {
			p.add("%s.Delays[%d] is %v; it cannot be negative", field, i, delay)
		}
	}
	if c.Factor != 0 && !(c.Factor >= 1 && c.Factor <= 1e6) {
		p.add("%s.Factor is %v; use 1 or more, or 0 for linear growth", field, c.Factor)
	}
	if !(c.Jitter >= 0 && c.Jitter <= 1) {
		p.add("%s.Jitter is %v; use a part between 0 and 1", field, c.Jitter)
	}
	if len(c.Delays) > 0 {
		if c.Retries > 0 && c.Retries != len(c.Delays) {
			p.add("%s.Retries is %d, but Delays lists %d; remove Retries", field, c.Retries, len(c.Delays))
		}
		if c.Increase != 0 || c.Factor != 0 || c.MaxDelay != 0 {
			p.add("%s has Delays, with which Increase, Factor and MaxDelay mean nothing; remove them", field)
		}
	}
	if c.Off && (c.Retries > 0 || len(c.Delays) > 0) {
		p.add("%s has Retries or Delays and Off; remove one of the two", field)
	}
	if len(p.list) > before || c.Off || r.config.SendOnly {
		return 0, ""
	}

	retries = c.Retries
	if retries == 0 {
		retries = len(c.Delays)
	}
	orDefault(&retries, defaultDelayed)
	longest := s.longest(retries)
	obstacle := ""
	switch caps := r.rules.caps; {
	case r.mode == TransactionNone:
		obstacle = "the transaction mode is None, in which a message cannot be given back"
	case !caps.DelayedDelivery:
		obstacle = "the transport has no delayed delivery (Capabilities.DelayedDelivery)"
	case caps.MaxDelay > 0 && longest > caps.MaxDelay:
		obstacle = fmt.Sprintf("the longest delay would be %v and the transport's Capabilities.MaxDelay is %v", longest, caps.MaxDelay)
	}
	switch {
	case obstacle != "" && !isZeroDelayed(c):
		p.add("%s asks for %d retries, but %s; set %s.Off or choose what the transport can do", field, retries, obstacle, field)
		return 0, ""
	case obstacle != "":
		r.reduced = append(r.reduced, field+": "+obstacle)
		return 0, "delayed retries are off: " + obstacle
	case longest >= longestDelay && r.config.Recoverability.Policy == nil:
		p.add("%s has a delay of %v; after 24 h or more no further retry is allowed (R5), so keep every delay below", field, longest)
		return 0, ""
	}
	return retries, ""
}

// warnings are what a user should know at start-up. handled are the message
// types that have handlers; anyType stands for default ones.
func (r *resolved) warnings(log *slog.Logger, caps Capabilities, handled []string) {
	for _, text := range r.reduced {
		log.Warn("default retries are off; " + text)
	}
	limit := r.config.Recoverability.RateLimit.ConsecutiveFailures
	if immediate := r.mostImmediate(); limit > 0 && limit <= immediate {
		log.Warn("rate limiting can be triggered by a single message: ConsecutiveFailures is not above the number of immediate retries",
			"consecutive_failures", limit, "immediate_retries", immediate)
	}
	if len(handled) == 0 {
		log.Warn("the endpoint has no handlers; every message that it receives will fail")
	}
	for _, messageType := range slices.Sorted(maps.Keys(r.config.Recoverability.MessageTypes)) {
		if !slices.Contains(handled, messageType) && !slices.Contains(handled, anyType) {
			log.Warn("Recoverability.MessageTypes has settings for a message type without a handler; check the spelling", "message_type", messageType)
		}
	}
	if !caps.NativeDeliveryCount && r.mode != TransactionNone && r.mostImmediate() > 0 {
		log.Info("the transport counts deliveries in the memory of this process: with several instances on one queue, attempts multiply by their number, and a restart begins to count again")
	}
}
