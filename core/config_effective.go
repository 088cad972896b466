package core

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Config returns the configuration in force: the one that [New] got, with the defaults
// for this transport filled in. New accepts it again, with the same effect, and
// json.Marshal writes it without the fields that hold code.
//
// A message type in [Recoverability.MessageTypes] has all fields of a level of retries
// that it changes, not only those that differ.
func (ep *Endpoint) Config() Config { return ep.resolved.effective() }

func (r *resolvedConfig) effective() Config {
	c := r.original
	c.Codecs, c.Middleware, c.Observers = slices.Clone(c.Codecs), slices.Clone(c.Middleware), slices.Clone(c.Observers)
	c.SendMiddleware = slices.Clone(c.SendMiddleware)
	c.BaseTypes = cloneBaseTypes(c.BaseTypes)
	if c.SendOnly {
		return c
	}
	c.Concurrency, c.Transactions = r.config.Concurrency, r.mode
	c.SlowHandler, c.DrainTimeout = zeroAsOff(r.config.SlowHandler), zeroAsOff(r.config.DrainTimeout)
	c.LogRepeats = zeroAsOff(r.config.LogRepeats)
	c.OutageLimit, c.MaxPrefetchBytes = zeroAsOff(r.config.OutageLimit), zeroAsOff(r.config.MaxPrefetchBytes)

	f, base := &c.Recoverability, r.rules.config
	f.Unrecoverable, f.UnrecoverableTypes = slices.Clone(f.Unrecoverable), slices.Clone(f.UnrecoverableTypes)
	f.CustomErrorQueues = slices.Clone(f.CustomErrorQueues)
	f.ErrorQueue = base.Failed.ErrorQueue
	f.Immediate, f.Delayed = base.immediate(), base.delayed()
	if r.mode != TransactionNone {
		if r.rules.caps.DelayedDelivery && (r.rules.caps.MaxDelay == 0 || base.requeueDelay <= r.rules.caps.MaxDelay) {
			f.RequeueDelay = base.requeueDelay
		}
		if r.maxDeliveries < math.MaxInt { // else it follows from the retries
			f.MaxDeliveries = MaxDeliveries{Count: r.maxDeliveries, Off: r.maxDeliveries == 0}
		}
		if r.isolation.threshold > 0 {
			f.IsolateAfter = r.isolation.threshold
		}
	}
	if f.RateLimit.ConsecutiveFailures > 0 {
		f.RateLimit.TimeToWait = r.config.Recoverability.RateLimit.TimeToWait
	}
	f.MessageTypes = maps.Clone(f.MessageTypes)
	for messageType, own := range f.MessageTypes {
		own.Unrecoverable, own.UnrecoverableTypes = slices.Clone(own.Unrecoverable), slices.Clone(own.UnrecoverableTypes)
		inForce := r.rules.perType[messageType]
		if own.Immediate != (Immediate{}) {
			own.Immediate = inForce.immediate()
			if !own.Immediate.Off { // or it would inherit it
				own.Immediate.Pause = zeroAsOff(own.Immediate.Pause)
			}
		}
		if !own.Delayed.isZero() {
			own.Delayed = inForce.delayed()
			if !own.Delayed.Off { // or it would inherit them
				own.Delayed.Jitter = zeroAsOff(own.Delayed.Jitter)
				if own.Delayed.Delays == nil {
					own.Delayed.Factor, own.Delayed.MaxDelay = zeroAsOff(own.Delayed.Factor), zeroAsOff(own.Delayed.MaxDelay)
				}
			}
		}
		f.MessageTypes[messageType] = own
	}
	return c
}

// immediate returns the settings that are in force.
func (c RecoverabilityConfig) immediate() Immediate {
	n := c.Immediate.MaxNumberOfRetries
	return Immediate{Retries: n, Off: n == 0, Pause: c.Immediate.Pause, MaxPause: c.Immediate.MaxPause}
}

// delayed returns the settings that are in force.
func (c RecoverabilityConfig) delayed() Delayed {
	n, s := c.Delayed.MaxNumberOfRetries, c.schedule
	switch {
	case n == 0:
		return Delayed{Off: true}
	case len(s.List) > 0:
		return Delayed{Delays: slices.Clone(s.List), Jitter: s.Jitter}
	}
	return Delayed{Retries: n, Increase: s.Increase, Factor: s.Factor, MaxDelay: s.Ceiling, Jitter: s.Jitter}
}

// zeroAsOff is the reverse of offAsZero.
func zeroAsOff[T int | float64 | time.Duration](value T) T {
	if value == 0 {
		return Off
	}
	return value
}
