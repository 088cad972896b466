//go:build darwin || linux

package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report writes results as Markdown, for docs/reliability.md.
func report(date string, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s/%s, %d cores, %s. %s.\n", date, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), versions(results))
	b.WriteString("\n" + runsTable(results) + "\n" + recoveryTable(results))
	return b.String()
}

// versions names the servers.
func versions(results []*result) string {
	var all []string
	for _, r := range results {
		if !slices.Contains(all, r.version) {
			all = append(all, r.version)
		}
	}
	return strings.Join(all, ", ")
}

// runsTable has a row for each run.
func runsTable(results []*result) string {
	rows := [][]string{{
		"run", "took", "orders", "handled", "worker kills", "faults", "lost: orders / commands and events",
		"handled again: orders / commands / events", "error queue: missing / more than once / healthy", "attempts of failing orders",
		"left in queues", "endpoints ended", "starts refused",
	}}
	for _, r := range results {
		c := r.counts
		lost := func(p promise) string { return strconv.Itoa(r.brokenBy(p)) }
		repeated := fmt.Sprintf("%d / %d / %d", c.repeated[orders], c.repeated[shipping], c.repeated[notices])
		if r.subject.isAtomic() {
			repeated = fmt.Sprintf("by rows %d, perhaps sent twice %d", r.brokenBy(promiseExact), c.doubtful)
		}
		struck := strconv.Itoa(len(r.outcomes))
		if idle := r.idle(); idle > 0 {
			struck += fmt.Sprintf(" (%d idle)", idle)
		}
		rows = append(rows, []string{
			r.subject.title, round(r.took), thousands(c.orders), thousands(c.handled), strconv.Itoa(r.kills), struck,
			lost(promiseHandled) + " / " + lost(promiseSends), repeated,
			fmt.Sprintf("%s / %d / %s", lost(promiseMoved), c.movedMore, lost(promiseHealthy)),
			fmt.Sprintf("%d for %d of %d; %d to %d", attempts, c.asOften, c.failing, c.fewest, c.max),
			lost(promiseNothing), lost(promiseRuns), strconv.Itoa(c.refused),
		})
	}
	return markdown(rows)
}

// idle returns the number of faults that ended when there was no work.
func (r *result) idle() (n int) {
	for _, o := range r.outcomes {
		if o.waiting == 0 {
			n++
		}
	}
	return n
}

// brokenBy returns the number of orders or texts that break a promise.
func (r *result) brokenBy(p promise) int {
	for _, f := range r.findings {
		if f.promise == p {
			return len(f.ids) + len(f.texts)
		}
	}
	return 0
}

// recoveryTable has a row for each fault, and a column for each run.
func recoveryTable(results []*result) string {
	head := []string{"fault"}
	var names []string
	for _, r := range results {
		head = append(head, r.subject.title)
		for _, o := range r.outcomes {
			if !slices.Contains(names, o.fault) {
				names = append(names, o.fault)
			}
		}
	}
	slices.Sort(names)
	rows := [][]string{head}
	for _, name := range names {
		row := []string{name}
		for _, r := range results {
			row = append(row, recovery(name, r.outcomes))
		}
		rows = append(rows, row)
	}
	return markdown(rows)
}

// recovery returns the cell of a fault: the time to the recovery, or the shortest and the
// longest time and how often the fault was struck, and the longest pause.
func recovery(name string, outcomes []outcome) string {
	var times []time.Duration
	var pause time.Duration
	for _, o := range outcomes {
		if o.fault == name {
			times = append(times, o.recovery)
			pause = max(pause, o.pause)
		}
	}
	if len(times) == 0 {
		return ""
	}
	shortest, longest := slices.Min(times), slices.Max(times)
	cell := seconds(longest)
	switch {
	case shortest < 0:
		return "never"
	case seconds(shortest) != cell:
		cell = fmt.Sprintf("%.2f to %s", shortest.Seconds(), cell)
	}
	if len(times) > 1 {
		cell += fmt.Sprintf(" (%d)", len(times))
	}
	return cell + ", pause " + seconds(pause)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func round(d time.Duration) string { return d.Round(time.Second).String() }

// markdown returns a table whose first row is the header.
func markdown(rows [][]string) string {
	var b strings.Builder
	for n, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if n == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// thousands formats 20000 as 20,000.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
