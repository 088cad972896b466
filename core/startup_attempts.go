package core

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// This file logs at start-up how often, and for how long, a message may be tried.

// attemptsReport is the report at start-up about the messages of some types.
type attemptsReport struct {
	nesting string

	tries, immediate, delayed int // of one failing message: tries in each attempt, attempts in each round, rounds
	runs                      int // their product

	attempt       time.Duration // the longest time of an attempt; 0 means no limit
	message       time.Duration // of all attempts and the delays between them; 0 means no limit
	policyDecides bool          // a Policy decides, so that the numbers may be others
}

// attemptsReports computes the reports for the handlers of a message type: one for all
// together, or one for each that has its own middleware.
func (ep *Endpoint) attemptsReports(messageType string) (all []attemptsReport) {
	outer := ep.steps.filter(messageType)
	set := ep.registry.handlersOf(messageType)
	for i, inner := range set.steps {
		if len(inner) > 0 {
			all = append(all, ep.attemptsReport(messageType, slices.Concat(outer, inner), set.names[i]))
		}
	}
	if len(all) == 0 && len(ep.steps) > 0 {
		all = append(all, ep.attemptsReport(messageType, outer, "handlers"))
	}
	return all
}

// attemptsReport computes the report for handlers of a message type inside these steps.
func (ep *Endpoint) attemptsReport(messageType string, nested steps, handlers string) attemptsReport {
	config := ep.rules.configFor(messageType)
	r := attemptsReport{nesting: nested.describeNesting(handlers), tries: 1, policyDecides: ep.rules.policy != nil}
	var longest time.Duration // 0 is without limit
	for _, s := range slices.Backward(nested) {
		n := max(s.Tries, 1)
		r.tries = multiply(r.tries, n)
		if longest = shorter(longest, s.Limit); longest > 0 {
			longest = delays.Add(delays.Multiply(longest, n), s.Wait)
		}
	}
	r.attempt = shorter(longest, config.handlerTimeout)
	r.immediate = plusOne(config.Immediate.MaxNumberOfRetries)
	r.delayed = plusOne(config.Delayed.MaxNumberOfRetries)
	attempts := multiply(r.immediate, r.delayed)
	r.runs = multiply(r.tries, attempts)
	if r.attempt > 0 && !r.policyDecides {
		r.message = delays.Add(delays.Multiply(r.attempt, attempts), config.delays())
	}
	return r
}

// delays returns the longest time that a message waits for its retries, all together.
func (c RecoverabilityConfig) delays() time.Duration {
	sum := c.schedule.Total(c.Delayed.MaxNumberOfRetries)
	if c.Immediate.Pause == 0 || c.Immediate.MaxNumberOfRetries == 0 {
		return sum
	}
	pauses := c.pauses().Total(c.Immediate.MaxNumberOfRetries)
	return delays.Add(sum, delays.Multiply(pauses, plusOne(c.Delayed.MaxNumberOfRetries)))
}

// retrySpan returns the longest time that retries can keep a message.
func (r *rules) retrySpan() (longest time.Duration) {
	for _, c := range r.allConfigs() {
		longest = max(longest, c.delays())
	}
	return longest
}

// logAttemptsReports logs the reports for the message types of the endpoint, if there is
// middleware that describes itself: one line for all types with equal reports.
func (ep *Endpoint) logAttemptsReports() {
	alike := map[attemptsReport][]string{}
	for _, messageType := range ep.registry.types() {
		for _, r := range ep.attemptsReports(messageType) {
			alike[r] = append(alike[r], typeLabel(messageType))
		}
	}
	for _, types := range alike {
		slices.Sort(types)
	}
	reports := slices.SortedFunc(maps.Keys(alike), func(a, b attemptsReport) int { return strings.Compare(alike[a][0], alike[b][0]) })
	for _, r := range reports {
		attrs := []any{
			slog.String("message_types", strings.Join(alike[r], ", ")), slog.String("nest", r.nesting),
			slog.Int("tries_per_attempt", r.tries), slog.Int("attempts_per_round", r.immediate), slog.Int("rounds", r.delayed), slog.Int("tries", r.runs),
			slog.String("longest_attempt", limitText(r.attempt)), slog.String("longest_message", limitText(r.message)),
		}
		text := "how often a message that always fails is tried: tries_per_attempt x attempts_per_round x rounds = tries"
		if r.policyDecides {
			text += ", unless the Policy decides otherwise"
		}
		ep.log.endpoint.Info(text, attrs...)
	}
}

func typeLabel(messageType string) string {
	if messageType == anyType {
		return "(others)"
	}
	return messageType
}

func limitText(d time.Duration) string {
	if d == 0 || d == delays.Max {
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

// multiply multiplies numbers above 0, plusOne adds 1 to one. On overflow the result is
// the largest number.
func multiply(a, b int) int {
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

func plusOne(n int) int {
	if n == math.MaxInt {
		return n
	}
	return n + 1
}
