package core

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// This file logs at start-up how often, and for how long, a message may be tried.

// nestReport is the report at start-up about the messages of some types.
type nestReport struct {
	nest string

	tries, immediate, delayed int // of one failing message: tries in each attempt, attempts in each round, rounds
	runs                      int // their product

	attempt time.Duration // the longest time of an attempt; 0 means no limit
	message time.Duration // of all attempts and the delays between them; 0 means no limit
	decides bool          // a Policy decides, so that the numbers may be others
}

// reports computes the reports for the handlers of a message type: one for all together,
// or one for each that has its own middleware.
func (ep *Endpoint) reports(messageType string) (all []nestReport) {
	around := ep.steps.filter(messageType)
	set := ep.registry.handlersOf(messageType)
	for i, inner := range set.around {
		if len(inner) > 0 {
			all = append(all, ep.report(messageType, slices.Concat(around, inner), set.names[i]))
		}
	}
	if len(all) == 0 && len(ep.steps) > 0 {
		all = append(all, ep.report(messageType, around, "handlers"))
	}
	return all
}

// report computes the report for handlers of a message type inside these steps.
func (ep *Endpoint) report(messageType string, around steps, handlers string) nestReport {
	config := ep.rules.configFor(messageType)
	r := nestReport{nest: around.nest(handlers), tries: 1, decides: ep.rules.policy != nil}
	var longest time.Duration // 0 is without limit
	for _, s := range slices.Backward(around) {
		n := max(s.Tries, 1)
		r.tries = times(r.tries, n)
		if longest = shorter(longest, s.Limit); longest > 0 {
			longest = addDuration(timesDuration(longest, n), s.Wait)
		}
	}
	r.attempt = shorter(longest, config.handlerTimeout)
	r.immediate = plusOne(config.Immediate.MaxNumberOfRetries)
	r.delayed = plusOne(config.Delayed.MaxNumberOfRetries)
	attempts := times(r.immediate, r.delayed)
	r.runs = times(r.tries, attempts)
	if r.attempt > 0 && !r.decides {
		r.message = addDuration(timesDuration(r.attempt, attempts), config.delays())
	}
	return r
}

// delays returns the longest time that a message waits for its retries, all together.
func (c RecoverabilityConfig) delays() time.Duration {
	sum := c.schedule.sum(c.Delayed.MaxNumberOfRetries)
	if c.Immediate.Pause == 0 || c.Immediate.MaxNumberOfRetries == 0 {
		return sum
	}
	pauses := c.pauses().sum(c.Immediate.MaxNumberOfRetries)
	return addDuration(sum, timesDuration(pauses, plusOne(c.Delayed.MaxNumberOfRetries)))
}

// sum returns the longest total wait of this number of retries.
func (s schedule) sum(retries int) (sum time.Duration) {
	if retries > 1_000_000 { // in effect without end
		return maxDuration
	}
	for round := range retries {
		d := s.base(round)
		sum = addDuration(sum, addDuration(d, time.Duration(float64(d)*s.jitter)))
		if sum == maxDuration {
			break
		}
	}
	return sum
}

// retrySpan returns the longest time that retries can keep a message.
func (r *rules) retrySpan() (longest time.Duration) {
	for _, c := range r.configs() {
		longest = max(longest, c.delays())
	}
	return longest
}

// logNest logs the reports for the message types of the endpoint, if there is middleware
// that describes itself: one line for all types with equal reports.
func (ep *Endpoint) logNest() {
	alike := map[nestReport][]string{}
	for _, messageType := range ep.registry.types() {
		for _, r := range ep.reports(messageType) {
			alike[r] = append(alike[r], shownType(messageType))
		}
	}
	for _, types := range alike {
		slices.Sort(types)
	}
	reports := slices.SortedFunc(maps.Keys(alike), func(a, b nestReport) int { return strings.Compare(alike[a][0], alike[b][0]) })
	for _, r := range reports {
		attrs := []any{
			slog.String("message_types", strings.Join(alike[r], ", ")), slog.String("nest", r.nest),
			slog.Int("tries_per_attempt", r.tries), slog.Int("attempts_per_round", r.immediate), slog.Int("rounds", r.delayed), slog.Int("tries", r.runs),
			slog.String("longest_attempt", limitText(r.attempt)), slog.String("longest_message", limitText(r.message)),
		}
		text := "how often a message that always fails is tried: tries_per_attempt x attempts_per_round x rounds = tries"
		if r.decides {
			text += ", unless the Policy decides otherwise"
		}
		ep.log.endpoint.Info(text, attrs...)
	}
}

func shownType(messageType string) string {
	if messageType == anyType {
		return "(others)"
	}
	return messageType
}

func limitText(d time.Duration) string {
	if d == 0 || d == maxDuration {
		return "no limit"
	}
	return d.String()
}

// shorter returns the shorter of two limits; 0 means no limit.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// times and timesDuration multiply numbers above 0, plusOne adds 1 to one. On overflow
// the result is the largest number.
func times(a, b int) int {
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

func timesDuration(d time.Duration, n int) time.Duration {
	if int64(n) > int64(maxDuration/d) {
		return maxDuration
	}
	return d * time.Duration(n)
}

func plusOne(n int) int {
	if n == math.MaxInt {
		return n
	}
	return n + 1
}
