package core

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// resolveRecoverability checks the settings for failures and resolves them.
func (r *resolvedConfig) resolveRecoverability(errs *validationErrors, caps Capabilities) {
	c := &r.config.Recoverability
	const prefix = "Recoverability."
	before := len(errs.errs)
	orDefault(&c.ErrorQueue, defaultErrorQueue)
	r.checkLimit(errs)
	r.resolveRateLimit(errs)

	r.rules = rules{
		policy:            c.Policy,
		deadLetters:       c.DeadLetter,
		customErrorQueues: slices.Clone(c.CustomErrorQueues),
		mode:              r.mode,
		caps:              caps,
		address:           func(queue string) (string, error) { return queue, nil },
	}
	r.checkDeadLetters(errs)
	base := &r.rules.config
	base.Failed.ErrorQueue, base.deadLetterQueue, base.invalidQueue = c.ErrorQueue, c.DeadLetterQueue, c.InvalidQueue
	base.handlerTimeout = r.config.HandlerTimeout
	r.checkShared(errs, prefix, TypeRecoverability{
		MaxRetryAge: c.MaxRetryAge, RequeueDelay: c.RequeueDelay, RequeueLimit: c.RequeueLimit,
		Unrecoverable: c.Unrecoverable, UnrecoverableTypes: c.UnrecoverableTypes, UnrecoverableFunc: c.UnrecoverableFunc,
	}, base)
	orDefault(&base.requeueDelay, defaultRequeueDelay)
	r.setImmediate(errs, prefix+"Immediate", c.Immediate, base)
	beforeDelayed := len(errs.errs)
	if r.checkDelayedFields(errs, prefix+"Delayed", c.Delayed) {
		r.setDelayed(errs, prefix+"Delayed", c.Delayed, base)
	}
	delayedRight := len(errs.errs) == beforeDelayed

	r.rules.perType = map[string]RecoverabilityConfig{}
	for _, messageType := range slices.Sorted(maps.Keys(c.MessageTypes)) {
		own := c.MessageTypes[messageType]
		field := fmt.Sprintf("%sMessageTypes[%q]", prefix, messageType)
		if !isMessageType(messageType) || strings.TrimSpace(messageType) != messageType {
			errs.add("%s: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", prefix+"MessageTypes", messageType)
		}
		if reflect.ValueOf(own).IsZero() {
			errs.add("%s has no settings; set some, or remove it", field)
		}
		r.rules.perType[messageType] = r.resolveType(errs, field+".", own, delayedRight)
	}
	r.resolveMaxDeliveries(errs)
	r.resolveIsolation()
	if len(errs.errs) == before {
		r.checkMaxRetryAge(errs)
	}
}

// checkDeadLetters checks the queues for dead letters and invalid messages (R62, R63).
func (r *resolvedConfig) checkDeadLetters(errs *validationErrors) {
	c := &r.config.Recoverability
	const field = "Recoverability.DeadLetter"
	switch none := c.DeadLetter == DeadLettersNone; {
	case c.DeadLetter < DeadLettersNone || c.DeadLetter > DeadLettersAll:
		errs.add("%s is %d, which is none of DeadLettersNone, DeadLettersRejected, DeadLettersAll", field, int(c.DeadLetter))
	case none && c.DeadLetterQueue != "":
		errs.add("%sQueue is %q, but no message is dead-lettered; set %s to DeadLettersRejected or DeadLettersAll, or remove it", field, c.DeadLetterQueue, field)
	case !none && c.DeadLetterQueue == "" && !r.rules.caps.DeadLetter:
		errs.add("%s is %v, but the transport has no dead-letter queue of its own (Capabilities.DeadLetter); name a queue in Recoverability.DeadLetterQueue, or remove it", field, c.DeadLetter)
	}
	for _, messageType := range slices.Sorted(maps.Keys(c.MessageTypes)) {
		if queue := c.MessageTypes[messageType].DeadLetterQueue; queue != "" && c.DeadLetter == DeadLettersNone {
			errs.add("Recoverability.MessageTypes[%q].DeadLetterQueue is %q, but no message is dead-lettered; set %s, or remove it", messageType, queue, field)
		}
	}
}

// resolveType merges the settings of a message type with the endpoint's, of
// which the delayed retries may be wrong.
func (r *resolvedConfig) resolveType(errs *validationErrors, prefix string, own TypeRecoverability, delayedRight bool) RecoverabilityConfig {
	base, c := r.config.Recoverability, r.rules.config
	if own.ErrorQueue != "" {
		c.Failed.ErrorQueue = own.ErrorQueue
	}
	c.deadLetterQueue, c.invalidQueue = cmp.Or(own.DeadLetterQueue, c.deadLetterQueue), cmp.Or(own.InvalidQueue, c.invalidQueue)
	checkNotNegativeOrOff(errs, prefix+"HandlerTimeout", own.HandlerTimeout)
	if own.HandlerTimeout != 0 {
		c.handlerTimeout = offAsZero(own.HandlerTimeout)
	}
	r.checkShared(errs, prefix, own, &c)
	if own.Immediate != (Immediate{}) {
		r.setImmediate(errs, prefix+"Immediate", own.Immediate.over(base.Immediate), &c)
	}
	if !own.Delayed.isZero() && r.checkDelayedFields(errs, prefix+"Delayed", own.Delayed) && delayedRight {
		before := len(errs.errs)
		r.setDelayed(errs, prefix+"Delayed", own.Delayed.over(base.Delayed), &c)
		if !base.Delayed.isZero() && !own.Delayed.Off {
			for i, err := range errs.errs[before:] {
				errs.errs[before+i] = fmt.Errorf("%w (the fields that it leaves 0 are those of Recoverability.Delayed)", err)
			}
		}
	}
	return c
}

// checkShared checks the settings that both the endpoint and message types have, and
// applies those that are set.
func (r *resolvedConfig) checkShared(errs *validationErrors, prefix string, own TypeRecoverability, c *RecoverabilityConfig) {
	caps := r.rules.caps
	checkNotNegativeOrOff(errs, prefix+"MaxRetryAge", own.MaxRetryAge)
	checkNotNegativeOrOff(errs, prefix+"RequeueLimit", own.RequeueLimit)
	checkNotNegative(errs, prefix+"RequeueDelay", own.RequeueDelay)
	for i, err := range own.Unrecoverable {
		if err == nil {
			errs.add(prefix+"Unrecoverable[%d] is nil; remove it", i)
		}
	}
	for i, name := range own.UnrecoverableTypes {
		if name == "" || strings.ContainsFunc(name, unicode.IsSpace) || !strings.Contains(name, ".") {
			errs.add("%sUnrecoverableTypes[%d] is %q, which is no type of errors; write its name with the package, such as \"*fs.PathError\"", prefix, i, name)
		}
	}
	undeferred := r.mode == TransactionNone || !caps.DelayedDelivery
	const why = "nothing can be deferred in transaction mode None or without Capabilities.DelayedDelivery; remove it"
	switch {
	case own.RequeueDelay <= 0:
	case undeferred:
		errs.add("%sRequeueDelay is %v, but %s", prefix, own.RequeueDelay, why)
	case caps.MaxDelay > 0 && own.RequeueDelay > caps.MaxDelay:
		errs.add("%sRequeueDelay is %v, but the transport's Capabilities.MaxDelay is %v; use no more", prefix, own.RequeueDelay, caps.MaxDelay)
	}
	if own.RequeueLimit > 0 && undeferred {
		errs.add("%sRequeueLimit is %d, but %s", prefix, own.RequeueLimit, why)
	}
	if own.MaxRetryAge != 0 {
		c.MaxRetryAge = offAsZero(own.MaxRetryAge)
	}
	if own.RequeueLimit != 0 {
		c.requeueLimit = offAsZero(own.RequeueLimit)
	}
	if own.RequeueDelay != 0 {
		c.requeueDelay = own.RequeueDelay
	}
	c.Failed.Unrecoverable = slices.Concat(c.Failed.Unrecoverable, own.Unrecoverable)
	c.Failed.UnrecoverableTypes = slices.Concat(c.Failed.UnrecoverableTypes, own.UnrecoverableTypes)
	if own.UnrecoverableFunc != nil {
		c.unrecoverableFuncs = append(slices.Clone(c.unrecoverableFuncs), own.UnrecoverableFunc)
	}
}

func (r *resolvedConfig) resolveRateLimit(errs *validationErrors) {
	c := &r.config.Recoverability.RateLimit
	const prefix = "Recoverability.RateLimit"
	checkNotNegative(errs, prefix+".ConsecutiveFailures", c.ConsecutiveFailures)
	checkNotNegative(errs, prefix+".TimeToWait", c.TimeToWait)
	if c.TimeToWait > maxTimeToWait {
		errs.add("%s.TimeToWait is %v, for which the endpoint would stand still after the outage has ended; use at most %v", prefix, c.TimeToWait, maxTimeToWait)
	}
	if c.ConsecutiveFailures == 0 && (c.TimeToWait != 0 || c.Filter != nil || c.OnStarted != nil || c.OnEnded != nil) {
		errs.add("%s is configured without ConsecutiveFailures, which would leave it off; set ConsecutiveFailures to 1 or more", prefix)
	}
	orDefault(&c.TimeToWait, defaultTimeToWait)
}

// resolveMaxDeliveries sets a limit of deliveries above the number of retries in force
// (R34).
func (r *resolvedConfig) resolveMaxDeliveries(errs *validationErrors) {
	c, most := r.config.Recoverability.MaxDeliveries, r.maxImmediateRetries()
	const field = "Recoverability.MaxDeliveries"
	checkNotNegative(errs, field+".Count", c.Count)
	switch {
	case c.Off && c.Count > 0:
		errs.add("%s has Count %d and Off; remove one of the two", field, c.Count)
	case c.Off:
		return
	case c.Count > 0 && r.mode == TransactionNone:
		errs.add("%s.Count is %d, but in transaction mode None a message is delivered once; remove it", field, c.Count)
	case c.Count > 0 && c.Count <= most:
		errs.add("%s.Count is %d, which a round of %d immediate retries would exceed; use more than that", field, c.Count, most)
	case c.Count > 0:
		r.maxDeliveries = c.Count
	case most < math.MaxInt/4:
		r.maxDeliveries = max(defaultMaxDeliveries, 4*(most+1))
	default: // retries without end
		r.maxDeliveries = math.MaxInt
	}
	r.rules.maxDeliveries = r.maxDeliveries
}

// checkMaxRetryAge refuses a limit for delayed retries if there are none and no policy
// could make some.
func (r *resolvedConfig) checkMaxRetryAge(errs *validationErrors) {
	c := r.config.Recoverability
	if c.Policy != nil {
		return
	}
	const why = "but there are no delayed retries to limit; remove it, or set Delayed.Retries"
	inherited := c.MaxRetryAge > 0
	used := r.rules.config.Delayed.MaxNumberOfRetries > 0
	for _, messageType := range slices.Sorted(maps.Keys(c.MessageTypes)) {
		retries := r.rules.perType[messageType].Delayed.MaxNumberOfRetries > 0
		switch age := c.MessageTypes[messageType].MaxRetryAge; {
		case age == 0:
			used = used || retries
		case age > 0 && !retries:
			errs.add("Recoverability.MessageTypes[%q].MaxRetryAge is %v, %s", messageType, age, why)
		}
	}
	if inherited && !used {
		errs.add("Recoverability.MaxRetryAge is %v, %s", c.MaxRetryAge, why)
	}
}

// maxImmediateRetries returns the largest number of immediate retries in force.
func (r *resolvedConfig) maxImmediateRetries() int {
	retries := r.rules.config.Immediate.MaxNumberOfRetries
	for _, own := range r.rules.perType {
		retries = max(retries, own.Immediate.MaxNumberOfRetries)
	}
	return retries
}

// setImmediate and setDelayed resolve a level of retries. An explicit setting that the
// transport cannot provide is refused; a default that it cannot provide becomes 0 (R10).
func (r *resolvedConfig) setImmediate(errs *validationErrors, field string, c Immediate, inForce *RecoverabilityConfig) {
	before := len(errs.errs)
	inForce.Immediate.MaxNumberOfRetries = r.immediateRetries(errs, field, c)
	checkNotNegativeOrOff(errs, field+".Pause", c.Pause)
	checkNotNegative(errs, field+".MaxPause", c.MaxPause)
	pause := offAsZero(c.Pause)
	switch longest := max(pause, c.MaxPause); {
	case len(errs.errs) > before:
	case c.Off && longest > 0:
		errs.add("%s has a Pause or MaxPause and Off; remove one of the two", field)
	case inForce.Immediate.MaxNumberOfRetries == 0 && longest > 0 && !r.config.SendOnly:
		errs.add("%s has a Pause or MaxPause, but the transaction mode is None, in which there are no immediate retries; remove it", field)
	case longest > maxImmediatePause:
		errs.add("%s has a pause of %v, for which this instance would keep the message; use at most %v, and Delayed for longer ones", field, longest, maxImmediatePause)
	case pause == 0 && c.MaxPause > 0:
		errs.add("%s.MaxPause is %v, but there is no pause to limit; set Pause, or remove it", field, c.MaxPause)
	case c.MaxPause > 0 && c.MaxPause < pause:
		errs.add("%s has MaxPause %v below its Pause of %v, which would never be used; raise MaxPause or lower Pause", field, c.MaxPause, pause)
	}
	inForce.Immediate.Pause, inForce.Immediate.MaxPause = pause, c.MaxPause
	if pause == 0 {
		inForce.Immediate.MaxPause = 0
	} else if c.MaxPause == 0 {
		inForce.Immediate.MaxPause = max(pause, defaultMaxPause)
	}
}

func (r *resolvedConfig) immediateRetries(errs *validationErrors, field string, c Immediate) int {
	switch {
	case c.Retries < 0:
		errs.add("%s.Retries is %d; it cannot be negative (0 is the default; for none set Off)", field, c.Retries)
		return 0
	case c.Off && c.Retries > 0:
		errs.add("%s has Retries %d and Off; remove one of the two", field, c.Retries)
		return 0
	case c.Off || r.config.SendOnly:
		return 0
	case r.mode == TransactionNone && c.Retries > 0:
		errs.add("%s.Retries is %d, but the transaction mode is None, in which a message cannot be given back; set %s.Off, or use a transaction mode above None", field, c.Retries, field)
		return 0
	case r.mode == TransactionNone:
		r.reducedDefaults = append(r.reducedDefaults, field+": transaction mode None allows no retries")
		return 0
	case c.Retries == 0:
		return defaultImmediate
	}
	return c.Retries
}

// checkDelayedFields checks each field by itself, and reports whether all are valid.
func (r *resolvedConfig) checkDelayedFields(errs *validationErrors, field string, c Delayed) bool {
	before := len(errs.errs)
	if c.Retries < 0 {
		errs.add("%s.Retries is %d; it cannot be negative (0 is the default; for none set Off)", field, c.Retries)
	}
	checkNotNegative(errs, field+".Increase", c.Increase)
	checkNotNegativeOrOff(errs, field+".MaxDelay", c.MaxDelay)
	for i, delay := range c.Delays {
		if delay < 0 {
			errs.add("%s.Delays[%d] is %v; it cannot be negative", field, i, delay)
		}
	}
	if c.Delays != nil && len(c.Delays) == 0 {
		errs.add("%s.Delays is empty; list delays, or set %s.Off for no retries", field, field)
	}
	if c.Factor != 0 && c.Factor != Off && !(c.Factor >= 1 && c.Factor <= 1e6) {
		errs.add("%s.Factor is %v; use 1 or more, or 0 for linear growth", field, c.Factor)
	}
	if c.Jitter != Off && !(c.Jitter >= 0 && c.Jitter <= 1) {
		errs.add("%s.Jitter is %v; use a part between 0 and 1", field, c.Jitter)
	}
	return len(errs.errs) == before
}

// setDelayed checks fields of a level against each other and the transport, and
// puts the level in force.
func (r *resolvedConfig) setDelayed(errs *validationErrors, field string, c Delayed, inForce *RecoverabilityConfig) {
	s := delays.Schedule{
		Increase: c.Increase, Factor: offAsZero(c.Factor), Ceiling: offAsZero(c.MaxDelay),
		List: slices.Clone(c.Delays), Jitter: offAsZero(c.Jitter),
	}
	orDefault(&s.Increase, defaultIncrease)
	inForce.schedule = s
	inForce.Delayed.TimeIncrease = s.Increase
	inForce.Delayed.MaxNumberOfRetries, inForce.delayedReduced = r.delayedRetries(errs, field, c, s)
}

// delayedRetries returns the number of delayed retries, and the reason if a default
// became 0.
func (r *resolvedConfig) delayedRetries(errs *validationErrors, field string, c Delayed, s delays.Schedule) (retries int, reduced string) {
	before := len(errs.errs)
	switch set := c.set(); {
	case c.Off && len(set) > 0:
		errs.add("%s has %s and Off; remove one of the two", field, strings.Join(set, ", "))
	case c.Off || r.config.SendOnly:
		return 0, ""
	case len(c.Delays) > 0:
		if c.Retries > 0 && c.Retries != len(c.Delays) {
			errs.add("%s.Retries is %d, but Delays lists %d; remove Retries", field, c.Retries, len(c.Delays))
		}
		if c.Increase != 0 || c.Factor > 0 || c.MaxDelay > 0 {
			errs.add("%s has Delays, with which Increase, Factor and MaxDelay mean nothing; remove them", field)
		}
	case s.Ceiling > 0 && s.Ceiling < s.Increase:
		errs.add("%s has MaxDelay %v below its Increase of %v, which would never be used; raise MaxDelay or lower Increase", field, s.Ceiling, s.Increase)
	}
	if len(errs.errs) > before {
		return 0, ""
	}

	retries = c.Retries
	if retries == 0 {
		retries = len(c.Delays)
	}
	orDefault(&retries, defaultDelayed)
	longest := s.Longest(retries)
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
	case obstacle != "" && !c.isZero():
		errs.add("%s asks for %d retries, but %s; set %s.Off or choose what the transport can do", field, retries, obstacle, field)
		return 0, ""
	case obstacle != "":
		r.reducedDefaults = append(r.reducedDefaults, field+": "+obstacle)
		return 0, "delayed retries are off: " + obstacle
	case longest >= maxRetryDelay && r.config.Recoverability.Policy == nil:
		errs.add("%s has a delay of %v; after 24 h or more no further retry is allowed (R5), so keep every delay below", field, longest)
		return 0, ""
	}
	return retries, ""
}

func (c Delayed) isZero() bool { return !c.Off && len(c.set()) == 0 }

// set returns the names of the set fields, without Off.
func (c Delayed) set() []string {
	var names []string
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Off" && !v.Field(i).IsZero() {
			names = append(names, name)
		}
	}
	return names
}

// over returns base with the fields that c has.
func (c Immediate) over(base Immediate) Immediate {
	if c.Off {
		return c
	}
	merged := base
	if c.Retries != 0 {
		merged.Off, merged.Retries = false, c.Retries
	}
	if c.Pause != 0 {
		merged.Pause, merged.MaxPause = c.Pause, 0
	}
	overrideIfSet(&merged.MaxPause, c.MaxPause)
	return merged
}

// over returns base with the set fields of c. A level that is switched off keeps nothing,
// Retries or Delays switch a level on, and listed and growing delays replace each other.
func (c Delayed) over(base Delayed) Delayed {
	merged := base
	switch {
	case c.Off:
		return c
	case c.Delays != nil:
		merged = Delayed{Delays: c.Delays, Jitter: base.Jitter}
	case c.Retries != 0 && c.Increase != 0:
		merged.Delays = nil
	}
	if c.Retries != 0 {
		merged.Off, merged.Retries = false, c.Retries
	}
	overrideIfSet(&merged.Increase, c.Increase)
	overrideIfSet(&merged.Factor, c.Factor)
	overrideIfSet(&merged.MaxDelay, c.MaxDelay)
	overrideIfSet(&merged.Jitter, c.Jitter)
	return merged
}

// over returns base with the fields that c has.
func (c MaxDeliveries) over(base MaxDeliveries) MaxDeliveries {
	if c == (MaxDeliveries{}) {
		return base
	}
	return c
}

// overrideIfSet replaces a value by one that is set.
func overrideIfSet[T int | float64 | time.Duration](field *T, own T) {
	if own != 0 {
		*field = own
	}
}

// resolveIsolation decides from when on messages are suspects. There is no isolation where
// the count of deliveries does not tell of processes that died, and without MaxDeliveries: a
// message that kills the process would keep all others waiting for ever.
func (r *resolvedConfig) resolveIsolation() {
	caps, maxDeliveries := r.rules.caps, r.maxDeliveries
	explained := r.maxImmediateRetries() + 1
	switch {
	case r.mode == TransactionNone, r.mode == TransactionSendsAtomicWithReceive && !caps.AtomicLeases,
		!caps.NativeDeliveryCount, maxDeliveries == 0,
		explained > maxDeliveries: // retries without end, or a mistake that is reported
		return
	}
	i := isolationRules{explainedDeliveries: explained}
	if caps.CountsReleases {
		i.reserved = max(min(max(minReserved, explained), maxDeliveries/2), 1)
	}
	i.threshold = max(explained, min(minIsolateAfter, i.firstCopyLimit(maxDeliveries)-1), 1)
	r.isolation = i
}
