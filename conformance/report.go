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

// reportVariable is the environment variable with the directory into which Run writes
// reports.
const reportVariable = "REPRISE_CONFORMANCE_REPORT"

// Report has the results of one run of the suite.
type Report struct {
	Adapter      string            `json:"adapter"`
	Seed         uint64            `json:"seed"`
	Capabilities core.Capabilities `json:"capabilities"`
	// Results are in the order of the cases, and for each case in the order of the modes.
	Results []Result `json:"results"`

	mu sync.Mutex
}

// Result is the result of one case in one transaction mode.
type Result struct {
	Case string `json:"case"` // its name, as in Harness.Deviations
	Rule string `json:"rule"`
	// Mode is TransactionDefault for a case that does not depend on the mode, and for a
	// case that was not run.
	Mode    core.TransactionMode `json:"mode"`
	Outcome Outcome              `json:"outcome"`
	// Reason is why the case was not run, or why it deviates.
	Reason   string    `json:"reason,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	// Notes are other observations.
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

// Failure is one violation of a rule.
type Failure struct {
	Rule     string `json:"rule"`
	Expected string `json:"expected"`
	Observed string `json:"observed"`
	At       string `json:"at,omitempty"` // the line of the suite or of the harness
	// More is the number of further failures with the same expectation in the same place.
	More int `json:"more,omitempty"`
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

// save writes the report into the directory named by reportVariable, if it is set.
func (r *Report) save() error {
	dir := os.Getenv(reportVariable)
	if dir == "" || r.Adapter == "" {
		return nil
	}
	text, err := json.MarshalIndent(inJSON(r), "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, url.PathEscape(r.Adapter)+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("conformance: the report of %q cannot be written; %s is %q: %w", r.Adapter, reportVariable, dir, err)
	}
	return nil
}

// ReadReport reads a report that Run has written.
func ReadReport(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	var read reportJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("conformance: %s is no report: %w", file, err)
	}
	r := read.report()
	if r.Adapter == "" || len(r.Results) == 0 {
		return nil, errors.Join(fmt.Errorf("conformance: %s is no report: it has no adapter or no results", file))
	}
	return r, nil
}

// reportJSON is a Report as it is written: transaction modes are names.
type reportJSON struct {
	Adapter      string           `json:"adapter"`
	Seed         uint64           `json:"seed"`
	Capabilities capabilitiesJSON `json:"capabilities"`
	Results      []resultJSON     `json:"results"`
}

type capabilitiesJSON struct {
	Transactions []modeName
	core.Capabilities
}

type resultJSON struct {
	Result
	Mode modeName `json:"mode"`
}

func inJSON(r *Report) reportJSON {
	written := reportJSON{Adapter: r.Adapter, Seed: r.Seed, Capabilities: capabilitiesJSON{Capabilities: r.Capabilities}}
	for _, mode := range r.Capabilities.Transactions {
		written.Capabilities.Transactions = append(written.Capabilities.Transactions, modeName(mode))
	}
	for _, result := range r.Results {
		written.Results = append(written.Results, resultJSON{result, modeName(result.Mode)})
	}
	return written
}

func (r reportJSON) report() *Report {
	read := &Report{Adapter: r.Adapter, Seed: r.Seed, Capabilities: r.Capabilities.Capabilities}
	for _, mode := range r.Capabilities.Transactions {
		read.Capabilities.Transactions = append(read.Capabilities.Transactions, core.TransactionMode(mode))
	}
	for _, result := range r.Results {
		result.Result.Mode = core.TransactionMode(result.Mode)
		read.Results = append(read.Results, result.Result)
	}
	return read
}

// modeName is a transaction mode that is written as its name.
type modeName core.TransactionMode

func (m modeName) MarshalText() ([]byte, error) { return []byte(core.TransactionMode(m).String()), nil }

func (m *modeName) UnmarshalText(text []byte) error {
	for mode := core.TransactionDefault; mode <= core.TransactionSendsAtomicWithReceive; mode++ {
		if mode.String() == string(text) {
			*m = modeName(mode)
			return nil
		}
	}
	return fmt.Errorf("there is no transaction mode %q", text)
}
