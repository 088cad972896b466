package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
)

// row is one line of a table that has a column for each adapter.
type row struct {
	title string
	cell  func(r *conformance.Report) string
}

// table writes rows side by side.
func table(all []*conformance.Report, rows []row) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, r := range all {
		fmt.Fprintf(&b, " %s |", r.Adapter)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(all)))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.title)
		for _, r := range all {
			fmt.Fprintf(&b, " %s |", row.cell(r))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// abilities lists the capabilities that each adapter claims, and the suite has checked.
func abilities(all []*conformance.Report) string {
	return table(all, []row{
		{"transaction modes", func(r *conformance.Report) string {
			var modes []string
			for _, mode := range r.Capabilities.Transactions {
				modes = append(modes, mode.String())
			}
			return strings.Join(modes, ", ")
		}},
		{"messages survive a restart of the broker", claim(func(c core.Capabilities) bool { return c.Durable })},
		{"delayed delivery", claim(func(c core.Capabilities) bool { return c.DelayedDelivery })},
		{"delivery count, shared by all instances", claim(func(c core.Capabilities) bool { return c.NativeDeliveryCount })},
		{"attempts of a failing message with n instances", func(r *conformance.Report) string {
			if r.Capabilities.NativeDeliveryCount {
				return "as configured"
			}
			return "up to n times as configured"
		}},
		{"publish and subscribe", claim(func(c core.Capabilities) bool { return c.PublishSubscribe })},
		{"events reach the subscribers to base types", claim(func(c core.Capabilities) bool { return c.BaseTopics })},
		{"time to be received", claim(func(c core.Capabilities) bool { return c.TimeToBeReceived })},
		{"groups of messages in order", claim(func(c core.Capabilities) bool { return c.GroupOrder })},
		{"dead-letter queue of the broker's own", claim(func(c core.Capabilities) bool { return c.DeadLetter })},
		{"a part of an attempt can be undone alone (savepoints)", ofTransaction(func(c core.Capabilities) bool { return c.Savepoints })},
		{"messages are leased, and fetched before a handler is free", claim(func(c core.Capabilities) bool { return c.Prefetch })},
		{"the same in SendsAtomicWithReceive", ofTransaction(func(c core.Capabilities) bool { return c.AtomicLeases })},
		{"confirms settlements", claim(func(c core.Capabilities) bool { return c.ConfirmsSettlement })},
		{"the broker itself may deliver twice", claim(func(c core.Capabilities) bool { return c.MayDuplicate })},
		{"the count also rises without a failure", claim(func(c core.Capabilities) bool { return c.CountsReleases })},
		{"a tool can look into queues without effect (Browse)", claim(func(c core.Capabilities) bool { return c.Browse })},
		{"a tool can replace single messages in one step (Take)", claim(func(c core.Capabilities) bool { return c.Take })},
	})
}

// limits lists the limits that each adapter enforces.
func limits(all []*conformance.Report) string {
	return table(all, []row{
		{"longest delay", func(r *conformance.Report) string {
			if !r.Capabilities.DelayedDelivery {
				return "no delays"
			}
			return longest(r.Capabilities.MaxDelay)
		}},
		{"a delayed message is late by at most", func(r *conformance.Report) string {
			if !r.Capabilities.DelayedDelivery {
				return "no delays"
			}
			return duration(r.Capabilities.DelayPrecision, "0")
		}},
		{"a subscription is in force after", func(r *conformance.Report) string {
			if !r.Capabilities.PublishSubscribe {
				return "no subscriptions"
			}
			return duration(r.Capabilities.SubscriptionDelay, "at once")
		}},
		{"delivery counts that a broker forgets when it dies", func(r *conformance.Report) string {
			switch lag := r.Capabilities.DeliveryCountLag; {
			case !r.Capabilities.NativeDeliveryCount || !r.Capabilities.Durable:
				return "all"
			case lag > 0:
				return "of the last " + duration(lag, "")
			default:
				return "none"
			}
		}},
		{"longest lock of a delivery, renewals included", func(r *conformance.Report) string { return longest(r.Capabilities.MaxLockTime) }},
		{"longest name of a queue", func(r *conformance.Report) string { return number(r.Capabilities.MaxQueueName) }},
		{"longest name of a topic", func(r *conformance.Report) string {
			if !r.Capabilities.PublishSubscribe {
				return "no topics"
			}
			return number(r.Capabilities.MaxTopicName)
		}},
		{"largest message, headers included", func(r *conformance.Report) string { return size(r.Capabilities.MaxMessageBytes) }},
		{"all headers together", func(r *conformance.Report) string { return size(r.Capabilities.MaxHeaderBytes) }},
		{"a header's key", func(r *conformance.Report) string { return size(r.Capabilities.MaxHeaderKeyBytes) }},
		{"most messages in one receive", func(r *conformance.Report) string { return number(r.Capabilities.MaxReceiveBatch) }},
		{"most messages of a queue in flight at the same time", func(r *conformance.Report) string { return number(r.Capabilities.MaxUnsettled) }},
	})
}

// deviations lists the declared deviations of each adapter. The number of passed cases is omitted, since every new case
// would make the document wrong.
func deviations(all []*conformance.Report) string {
	return table(all, []row{{"cases in which it deviates", func(r *conformance.Report) string {
		reasons := map[string]string{}
		for _, result := range r.Results {
			if result.Outcome == conformance.Deviates {
				reasons[result.Case] = result.Reason
			}
		}
		if len(reasons) == 0 {
			return "none"
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(reasons)) {
			list = append(list, name+": "+reasons[name])
		}
		return strings.Join(list, "<br>")
	}}})
}

// notRun lists, for each adapter, the reasons of cases that did not run. Cases that do not apply to its capabilities
// are omitted: the tables above have the reason.
func notRun(all []*conformance.Report) string {
	var b strings.Builder
	for _, r := range all {
		var reasons []string
		for _, result := range r.Results {
			if result.Outcome == conformance.NotRun && lacking(result.Reason) {
				reasons = append(reasons, result.Reason)
			}
		}
		if len(reasons) == 0 {
			reasons = []string{"everything that applies to its capabilities was run"}
		}
		slices.Sort(reasons)
		fmt.Fprintf(&b, "- **%s**: %s\n", r.Adapter, strings.Join(slices.Compact(reasons), "; "))
	}
	return b.String()
}

// lacking reports whether a case did not run because the harness of an adapter lacks a field.
func lacking(reason string) bool {
	return strings.HasPrefix(reason, "Harness.") || strings.HasPrefix(reason, "TestMain ")
}

func claim(has func(core.Capabilities) bool) func(r *conformance.Report) string {
	return func(r *conformance.Report) string {
		if has(r.Capabilities) {
			return "yes"
		}
		return "no"
	}
}

// ofTransaction is claim for an ability in SendsAtomicWithReceive.
func ofTransaction(has func(core.Capabilities) bool) func(r *conformance.Report) string {
	return func(r *conformance.Report) string {
		if !r.Capabilities.Supports(core.TransactionSendsAtomicWithReceive) {
			return "no transaction"
		}
		return claim(has)(r)
	}
}

const (
	day  = 24 * time.Hour
	year = 8766 * time.Hour // 365.25 days
)

// longest writes a limit, from two days on in days, from two years on in years. It rounds down to a tenth, so that the
// adapter accepts the value in the table.
func longest(d time.Duration) string {
	unit, name := day, "days"
	switch {
	case d < 2*day:
		return duration(d, "no limit")
	case d >= 2*year:
		unit, name = year, "years"
	}
	tenths := d / (unit / 10)
	if tenths%10 == 0 {
		return fmt.Sprintf("%d %s", tenths/10, name)
	}
	return fmt.Sprintf("%d.%d %s", tenths/10, tenths%10, name)
}

func duration(d time.Duration, zero string) string {
	if d == 0 {
		return zero
	}
	text := d.String()
	for _, tail := range []string{"m0s", "h0m"} { // "15m0s" is 15m, "1h0m0s" is 1h
		if strings.HasSuffix(text, tail) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func number(n int) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

func size(bytes int) string {
	switch {
	case bytes == 0:
		return "no limit"
	case bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	default:
		return fmt.Sprintf("%d bytes", bytes)
	}
}
