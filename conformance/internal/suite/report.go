package suite

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// Report is conformance.Report, which documents the fields, and the types below are its
// namesakes in that package.
type Report struct {
	Adapter      string
	Seed         uint64
	Capabilities core.Capabilities
	Results      []Result

	mu sync.Mutex
}

// Result is conformance.Result.
type Result struct {
	Case     string
	Rule     string
	Mode     core.TransactionMode
	Outcome  Outcome
	Reason   string
	Failures []Failure
	Notes    []string
	Measures map[string]float64
}

// Outcome is conformance.Outcome.
type Outcome string

// The outcomes of a case.
const (
	Passed   Outcome = "passed"
	Failed   Outcome = "failed"
	Deviates Outcome = "deviates"
	NotRun   Outcome = "not run"
)

// Failure is conformance.Failure.
type Failure struct {
	Rule     string
	Expected string
	Observed string
	At       string
	More     int
}

// String returns the text that an adapter's author reads.
func (f Failure) String() string {
	indented := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n              ") }
	more := ""
	if f.More > 0 {
		more = fmt.Sprintf("\n              (and %d times more)", f.More)
	}
	return fmt.Sprintf("%s: %s\n    expected: %s\n    observed: %s%s\n    guide:    %s\n    at:       %s",
		f.Rule, rules[f.Rule], indented(f.Expected), indented(f.Observed), more, guide(f.Rule), f.At)
}

// fail adds a failure, or counts it if there is one with the same expectation in the same
// place: a hundred messages may fail for one reason.
func (r *Result) fail(f Failure) {
	r.Outcome = Failed
	for i := range r.Failures {
		if known := &r.Failures[i]; known.Expected == f.Expected && known.At == f.At {
			known.More++
			return
		}
	}
	r.Failures = append(r.Failures, f)
}

func (r *Report) add(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Results = append(r.Results, result)
}

// sort sorts the results, which are added as cases end, in the order of the cases.
func (r *Report) sort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	position := map[string]int{}
	for i, c := range cases() {
		position[c.name()] = i
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(position[a.Case], position[b.Case]), cmp.Compare(a.Mode, b.Mode))
	})
}

// partial reports whether cases were left out.
func (r *Report) partial() bool {
	for _, c := range cases() {
		modes := 0
		for _, result := range r.Results {
			if result.Case == c.name() {
				modes++
				if result.Outcome == NotRun {
					modes = len(c.modes.choose(r.Capabilities))
				}
			}
		}
		if modes < len(c.modes.choose(r.Capabilities)) {
			return true
		}
	}
	return false
}

// Count returns the number of results with the outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// failedCases returns the names of failed cases, in the order of the cases.
func (r *Report) failedCases() (names []string) {
	for _, result := range r.Results {
		if result.Outcome == Failed && !slices.Contains(names, result.Case) {
			names = append(names, result.Case)
		}
	}
	return names
}

// summary is the line at the end of a run: how many cases ran, how they ended in all
// their modes, and how many were left out for which reason.
func (r *Report) summary() string {
	ran, leftOut, inapplicable := map[string]bool{}, map[string]int{}, 0
	for _, result := range r.Results {
		switch {
		case result.Outcome != NotRun:
			ran[result.Case] = true
		case strings.HasPrefix(result.Reason, "Harness."), strings.HasPrefix(result.Reason, "TestMain "), result.Reason == engineOnly, result.Reason == shortRun:
			leftOut[result.Reason]++
		default:
			inapplicable++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "conformance: %d of %d cases ran: %d passed, %d failed, %d deviations", len(ran), len(cases()), r.Count(Passed), r.Count(Failed), r.Count(Deviates))
	separator := "; left out: "
	count := func(n int, format string, args ...any) {
		if n > 0 {
			fmt.Fprintf(&b, "%s%d "+format, append([]any{separator, n}, args...)...)
			separator = ", "
		}
	}
	count(inapplicable, "for other capabilities")
	for _, reason := range slices.Sorted(maps.Keys(leftOut)) {
		count(leftOut[reason], "because %s", reason)
	}
	count(len(cases())-len(ran)-r.Count(NotRun), "by Harness.Rules, -run, -skip or -failfast")
	return b.String()
}

// details names the cases that failed, deviated or were left out, in lines of their own.
func (r *Report) details() string {
	var b strings.Builder
	if failed := r.failedCases(); len(failed) > 0 {
		fmt.Fprintf(&b, "\nfailed, in the order in which to fix them, since later failures may follow from earlier ones:\n\t%s", strings.Join(failed, "\n\t"))
	}
	byReason := map[string][]string{}
	for _, result := range r.Results {
		switch result.Outcome {
		case NotRun:
			byReason[result.Reason] = append(byReason[result.Reason], result.Case)
		case Deviates:
			fmt.Fprintf(&b, "\ndeviates: %s/%v: %s", result.Case, result.Mode, result.Reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(&b, "\nnot run, because %s:\n\t%s", reason, strings.Join(byReason[reason], "\n\t"))
	}
	return b.String()
}
