package conformance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// ReportVariable is the environment variable that names the directory into
// which Run writes reports.
const ReportVariable = "REPRISE_CONFORMANCE_REPORT"

// Report is what came out of one run of the suite.
type Report struct {
	Adapter      string            `json:"adapter"`
	Seed         uint64            `json:"seed"`
	Capabilities core.Capabilities `json:"capabilities"`
	// Results are in the order of the cases and, for one case, of the modes.
	Results []Result `json:"results"`

	mu sync.Mutex
}

// Result is what came out of one case in one transaction mode.
type Result struct {
	Case string `json:"case"` // its name, which Harness.Deviations may list
	Rule string `json:"rule"`
	// Mode is TransactionDefault for a case to which it makes no difference, and
	// for one that was not run.
	Mode    core.TransactionMode `json:"mode"`
	Outcome Outcome              `json:"outcome"`
	// Reason says why it was not run, or why it deviates.
	Reason   string    `json:"reason,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	// Notes are what else was seen.
	Notes []string `json:"notes,omitempty"`
	// Measures are numbers by their name, such as the attempts of one message
	// with three instances.
	Measures map[string]float64 `json:"measures,omitempty"`
}

// Outcome is how a case ended.
type Outcome string

// The outcomes of a case.
const (
	Passed   Outcome = "passed"
	Failed   Outcome = "failed"
	Deviates Outcome = "deviates" // it failed, and Harness.Deviations says so
	NotRun   Outcome = "not run"
)

// Failure is one thing that was not as its rule wants it.
type Failure struct {
	Rule     string `json:"rule"`
	Expected string `json:"expected"`
	Observed string `json:"observed"`
	At       string `json:"at,omitempty"` // the line of the suite or of the harness
	// More is how often the same was expected in the same place and not seen,
	// beyond the one that is observed.
	More int `json:"more,omitempty"`
}

// String says what an adapter's author needs to know.
func (f Failure) String() string {
	indented := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n              ") }
	more := ""
	if f.More > 0 {
		more = fmt.Sprintf("\n              (and %d times more)", f.More)
	}
	return fmt.Sprintf("%s: %s\n    expected: %s\n    observed: %s%s\n    guide:    %s\n    at:       %s",
		f.Rule, rules[f.Rule], indented(f.Expected), indented(f.Observed), more, Guide(f.Rule), f.At)
}

// fail adds a failure, or counts it where the same was expected in the same
// place before: a hundred messages fail for one reason.
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

// sort brings the results, which come in as they end, into the order of the
// cases.
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

// partial reports whether cases are missing.
func (r *Report) partial() bool {
	for _, c := range cases() {
		modes := 0
		for _, result := range r.Results {
			if result.Case == c.name() {
				modes++
				if result.Outcome == NotRun {
					modes = len(c.in.of(r.Capabilities))
				}
			}
		}
		if modes < len(c.in.of(r.Capabilities)) {
			return true
		}
	}
	return false
}

// Failures returns every failure that is no declared deviation.
func (r *Report) Failures() (failures []Failure) {
	for _, result := range r.Results {
		if result.Outcome == Failed {
			failures = append(failures, result.Failures...)
		}
	}
	return failures
}

// Count returns how many results have the outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// failedCases returns their names, in the order of the cases.
func (r *Report) failedCases() (names []string) {
	for _, result := range r.Results {
		if result.Outcome == Failed && !slices.Contains(names, result.Case) {
			names = append(names, result.Case)
		}
	}
	return names
}

// summary is for the end of a run: the totals, what was not run and why, and
// what deviates.
func (r *Report) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "conformance: %d passed, %d failed, %d deviations, %d not run", r.Count(Passed), r.Count(Failed), r.Count(Deviates), r.Count(NotRun))
	if failed := r.failedCases(); len(failed) > 0 {
		fmt.Fprintf(&b, "\nfailed, in the order in which to mend them, since what comes later may follow from what comes first:\n\t%s", strings.Join(failed, "\n\t"))
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

// save writes the report where ReportVariable says, if it does.
func (r *Report) save() error {
	dir := os.Getenv(ReportVariable)
	if dir == "" || r.Adapter == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, url.PathEscape(r.Adapter)+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("conformance: the report of %q cannot be written; %s is %q: %w", r.Adapter, ReportVariable, dir, err)
	}
	return nil
}

// ReadReport reads what Run wrote.
func ReadReport(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("conformance: %s is no report: %w", file, err)
	}
	if r.Adapter == "" || len(r.Results) == 0 {
		return nil, errors.Join(fmt.Errorf("conformance: %s is no report: it has no adapter or no results", file))
	}
	return r, nil
}
