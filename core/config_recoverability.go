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

	"github.com/reprise-go/reprise/core/internal/delays"
)

// resolveRecoverability checks the settings for failures and resolves them.
func (r *resolvedConfig) resolveRecoverability(errs *validationErrors, caps Capabilities) {
	c := &r.config.Recoverability
	const prefix = "Recoverability."
	before := len(errs.errs)
	r.rules = rules{
		policy:            c.Policy,
		deadLetter:        c.DeadLetter,
		customErrorQueues: c.CustomErrorQueues,
		mode:              r.mode,
		caps:              caps,
		address:           func(queue string) (string, error) { return queue, nil },
		perType:           map[string]RecoverabilityConfig{},
	}
	base := r.config.shared()
	r.rules.config = base.inForce()
	r.setImmediate(errs, prefix+"Immediate", base.Immediate, &r.rules.config)
	beforeDelayed := len(errs.errs)
	r.setDelayed(errs, prefix+"Delayed", base.Delayed, &r.rules.config)
	if len(errs.errs) > beforeDelayed {
		r.wrong[prefix+"Delayed"] = true
	}
	types := slices.Sorted(maps.Keys(c.MessageTypes))
	for _, messageType := range types {
		own := c.MessageTypes[messageType]
		field := fmt.Sprintf("%sMessageTypes[%q]", prefix, messageType)
		if !isMessageType(messageType) || strings.TrimSpace(messageType) != messageType {
			errs.add("%s: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", prefix+"MessageTypes", messageType)
		}
		if reflect.ValueOf(own).IsZero() {
			errs.add("%s has no settings; set some, or remove it", field)
		}
		r.rules.perType[messageType] = r.resolveType(errs, field+".", own, base)
	}
	r.resolveMaxDeliveries(errs)
	r.resolveIsolation()
	if r.rules.caps.CountsReleases && r.mode != TransactionNone && r.maxDeliveries > 0 {
		r.isolation.newCopyAfter = r.isolation.firstCopyLimit(r.maxDeliveries)
		r.rules.newCopyAfter = r.isolation.newCopyAfter
	}

	if r.config.SendOnly {
		return
	}
	r.invalid = len(errs.errs) > before || len(r.wrong) > 0
	visitSettings(prefix, reflect.ValueOf(r.original.Recoverability), func(d declared) { d.checkUse(errs, r, "") })
	for _, messageType := range types {
		own := reflect.ValueOf(c.MessageTypes[messageType])
		visitSettings(fmt.Sprintf("%sMessageTypes[%q].", prefix, messageType), own, func(d declared) { d.checkUse(errs, r, messageType) })
	}
}

// resolveType merges the settings of a message type with those of the endpoint.
func (r *resolvedConfig) resolveType(errs *validationErrors, prefix string, own, base TypeRecoverability) RecoverabilityConfig {
	visitSettings(prefix, reflect.ValueOf(own), func(d declared) { r.checkValue(errs, d) })
	merged := own.over(base)
	visitSettings("", reflect.ValueOf(&merged).Elem(), declared.resolve)
	c := merged.inForce()
	c.setLevels(r.rules.config)
	if own.Immediate != (Immediate{}) {
		r.setImmediate(errs, prefix+"Immediate", merged.Immediate, &c)
	}
	if !own.Delayed.isZero() && !r.wrong["Recoverability.Delayed"] {
		before := len(errs.errs)
		r.setDelayed(errs, prefix+"Delayed", merged.Delayed, &c)
		if !base.Delayed.isZero() && own.Delayed.NumberOfRetries != Off {
			for i, err := range errs.errs[before:] {
				errs.errs[before+i] = fmt.Errorf("%w (the fields that it leaves 0 are those of Recoverability.Delayed)", err)
			}
		}
	}
	return c
}

// inForce returns the settings as a policy reads them, without the levels of retries.
func (c TypeRecoverability) inForce() (config RecoverabilityConfig) {
	c.Immediate, c.Delayed = Immediate{}, Delayed{}
	config.settings = &c
	config.Failed.ErrorQueue, config.Failed.Unrecoverable = c.ErrorQueue, c.Unrecoverable
	config.MaxRetryAge = c.MaxRetryAge
	return config
}

// setLevels copies the levels of retries of another message type.
func (c *RecoverabilityConfig) setLevels(from RecoverabilityConfig) {
	c.Immediate, c.Delayed, c.schedule = from.Immediate, from.Delayed, from.schedule
}

// hasDelayedRetries reports whether MaxRetryAge, of the endpoint or of a message type, has delayed
// retries to limit.
func (r *resolvedConfig) hasDelayedRetries(messageType string) bool {
	c := r.config.Recoverability
	retries := func(c RecoverabilityConfig) bool { return c.Delayed.MaxNumberOfRetries > 0 }
	switch {
	case c.Policy != nil, r.invalid: // a policy may read it, and another error may be why
		return true
	case messageType != "":
		return retries(r.rules.perType[messageType])
	}
	inherited := retries(r.rules.config)
	for messageType, own := range c.MessageTypes {
		inherited = inherited || own.MaxRetryAge == 0 && retries(r.rules.perType[messageType])
	}
	return inherited
}

// resolveMaxDeliveries sets a limit of deliveries above the number of retries in force
// (R34).
func (r *resolvedConfig) resolveMaxDeliveries(errs *validationErrors) {
	c, limit := r.config.Recoverability.MaxDeliveries, r.maxImmediateRetries()
	const field = "Recoverability.MaxDeliveries"
	switch {
	case c < 0: // Off, or refused
	case c > 0 && c <= limit:
		errs.add("%s is %d, which a round of %d immediate retries would exceed; use more than that", field, c, limit)
	case c > 0:
		r.maxDeliveries = c
	case limit < math.MaxInt/4:
		r.maxDeliveries = max(defaultMaxDeliveries, 4*(limit+1))
	default: // retries without end
		r.maxDeliveries = math.MaxInt
	}
	r.rules.maxDeliveries = r.maxDeliveries
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
	if r.wrong[field] {
		return
	}
	before := len(errs.errs)
	c.Pause = offAsZero(c.Pause)
	inForce.Immediate.MaxNumberOfRetries = r.immediateRetries(errs, field, c)
	switch longest := max(c.Pause, c.MaxPause); {
	case len(errs.errs) > before:
	case c.NumberOfRetries == Off && longest > 0:
		errs.add("%s has a Pause or MaxPause, but NumberOfRetries is Off; remove one of the two", field)
	case inForce.Immediate.MaxNumberOfRetries == 0 && longest > 0 && !r.config.SendOnly:
		errs.add("%s has a Pause or MaxPause, but the transaction mode is None, in which there are no immediate retries; remove it", field)
	case longest > maxImmediatePause:
		errs.add("%s has a pause of %v, for which this instance would keep the message; use at most %v, and Delayed for longer ones", field, longest, maxImmediatePause)
	case c.Pause == 0 && c.MaxPause > 0:
		errs.add("%s.MaxPause is %v, but there is no pause to limit; set Pause, or remove it", field, c.MaxPause)
	case c.MaxPause > 0 && c.MaxPause < c.Pause:
		errs.add("%s has MaxPause %v below its Pause of %v, which would never be used; raise MaxPause or lower Pause", field, c.MaxPause, c.Pause)
	}
	inForce.Immediate.Pause, inForce.Immediate.MaxPause = c.Pause, c.MaxPause
	if c.Pause == 0 {
		inForce.Immediate.MaxPause = 0
	} else if c.MaxPause == 0 {
		inForce.Immediate.MaxPause = max(c.Pause, defaultMaxPause)
	}
}

func (r *resolvedConfig) immediateRetries(errs *validationErrors, field string, c Immediate) int {
	switch {
	case c.NumberOfRetries == Off || r.config.SendOnly:
		return 0
	case r.mode == TransactionNone && c.NumberOfRetries > 0:
		errs.add("%s.NumberOfRetries is %d, but the transaction mode is None, in which a message cannot be given back; set it to core.Off, or use a transaction mode above None", field, c.NumberOfRetries)
		return 0
	case r.mode == TransactionNone:
		r.reducedDefaults = append(r.reducedDefaults, field+": transaction mode None allows no retries")
		return 0
	case c.NumberOfRetries == 0:
		return defaultImmediate
	}
	return c.NumberOfRetries
}

func (r *resolvedConfig) setDelayed(errs *validationErrors, field string, c Delayed, inForce *RecoverabilityConfig) {
	if r.wrong[field] {
		return
	}
	s := delays.Schedule{
		Increase: cmp.Or(c.TimeIncrease, defaultIncrease), Factor: offAsZero(c.Factor), Ceiling: offAsZero(c.MaxDelay),
		List: slices.Clone(c.Delays), Jitter: offAsZero(c.Jitter),
	}
	inForce.schedule = s
	inForce.Delayed.TimeIncrease = s.Increase
	inForce.Delayed.MaxNumberOfRetries = r.delayedRetries(errs, field, c, s)
}

// delayedRetries returns the number of delayed retries.
func (r *resolvedConfig) delayedRetries(errs *validationErrors, field string, c Delayed, s delays.Schedule) (retries int) {
	before := len(errs.errs)
	switch set := c.set(); {
	case c.Delays != nil && len(c.Delays) == 0:
		errs.add("%s.Delays is empty; list delays, or set %s.NumberOfRetries to core.Off for no retries", field, field)
	case c.NumberOfRetries == Off && len(set) > 1:
		errs.add("%s has %s, but NumberOfRetries is Off; remove one of the two", field, strings.Join(set[1:], ", "))
	case c.NumberOfRetries == Off || r.config.SendOnly:
		return 0
	case len(c.Delays) > 0:
		if c.NumberOfRetries > 0 && c.NumberOfRetries != len(c.Delays) {
			errs.add("%s.NumberOfRetries is %d, but Delays lists %d; remove NumberOfRetries", field, c.NumberOfRetries, len(c.Delays))
		}
		if c.TimeIncrease != 0 || c.Factor > 0 || c.MaxDelay > 0 {
			errs.add("%s has Delays, with which TimeIncrease, Factor and MaxDelay mean nothing; remove them", field)
		}
	case s.Ceiling > 0 && s.Ceiling < s.Increase:
		errs.add("%s has MaxDelay %v below its TimeIncrease of %v, which would never be used; raise MaxDelay or lower TimeIncrease", field, s.Ceiling, s.Increase)
	}
	if len(errs.errs) > before {
		return 0
	}

	retries = cmp.Or(c.NumberOfRetries, len(c.Delays), defaultDelayed)
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
		errs.add("%s asks for %d retries, but %s; set %s.NumberOfRetries to core.Off or choose retries that the transport can make", field, retries, obstacle, field)
		return 0
	case obstacle != "":
		r.reducedDefaults = append(r.reducedDefaults, field+": "+obstacle)
		return 0
	case longest >= maxRetryDelay && r.config.Recoverability.Policy == nil:
		errs.add("%s has a delay of %v; after 24 h or more no further retry is allowed (R5), so keep every delay below", field, longest)
		return 0
	}
	return retries
}

func (c Delayed) isZero() bool { return len(c.set()) == 0 }

// set returns the names of the set fields, NumberOfRetries first.
func (c Delayed) set() []string {
	var names []string
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// over returns base with the fields that c has.
func (c Immediate) over(base Immediate) Immediate {
	if c.NumberOfRetries == Off {
		return c
	}
	merged := base
	overrideIfSet(&merged.NumberOfRetries, c.NumberOfRetries)
	if c.Pause != 0 {
		merged.Pause, merged.MaxPause = c.Pause, 0
	}
	overrideIfSet(&merged.MaxPause, c.MaxPause)
	return merged
}

// over returns base with the set fields of c. A level that is switched off keeps nothing,
// NumberOfRetries or Delays switch a level on, and listed and growing delays replace each
// other.
func (c Delayed) over(base Delayed) Delayed {
	merged := base
	switch {
	case c.NumberOfRetries == Off:
		return c
	case c.Delays != nil:
		merged = Delayed{Delays: c.Delays, Jitter: base.Jitter}
	case c.NumberOfRetries != 0 && c.TimeIncrease != 0:
		merged.Delays = nil
	}
	overrideIfSet(&merged.NumberOfRetries, c.NumberOfRetries)
	overrideIfSet(&merged.TimeIncrease, c.TimeIncrease)
	overrideIfSet(&merged.Factor, c.Factor)
	overrideIfSet(&merged.MaxDelay, c.MaxDelay)
	overrideIfSet(&merged.Jitter, c.Jitter)
	return merged
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
