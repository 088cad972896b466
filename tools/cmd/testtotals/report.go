package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// report has the results of one or more runs of go test.
type report struct {
	Passed  int      `json:"passed"`
	Failed  []string `json:"failed"`  // names, in the order in which they failed
	Skipped []string `json:"skipped"` // names
	// LeftOut is the number of tests that are not part of short runs.
	LeftOut  int             `json:"leftOut"`
	Packages []packageResult `json:"packages"`
}

// packageResult is the result of one package in one part of a run.
type packageResult struct {
	Part    string  `json:"part"`
	Package string  `json:"package"`
	Result  string  `json:"result"` // pass, fail or skip, as of go test
	Seconds float64 `json:"seconds"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
}

// load begins with the results that an earlier run has saved.
func (r *report) load(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("-continue needs the report of an earlier run: %w", err)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return fmt.Errorf("%s is no report: %w", file, err)
	}
	return nil
}

func (r *report) save(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
