package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/reprise-go/reprise/conformance/internal/suite"
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
func (f Failure) String() string { return suite.Failure(f).String() }

// reportOf returns a report of internal/suite as this package documents it.
func reportOf(s *suite.Report) *Report {
	r := &Report{Adapter: s.Adapter, Seed: s.Seed, Capabilities: s.Capabilities}
	for _, result := range s.Results {
		r.Results = append(r.Results, resultOf(result))
	}
	return r
}

func resultOf(s suite.Result) Result {
	r := Result{
		Case: s.Case, Rule: s.Rule, Mode: s.Mode, Outcome: Outcome(s.Outcome),
		Reason: s.Reason, Notes: s.Notes, Measures: s.Measures,
	}
	for _, f := range s.Failures {
		r.Failures = append(r.Failures, Failure(f))
	}
	return r
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
