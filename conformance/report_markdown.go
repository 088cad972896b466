package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
)

// WriteMarkdown writes the report as a Markdown table, with a row for each case and a
// column for each of the transport's transaction modes. Deviations and cases that were
// not run follow, with their reasons.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	modes := slices.Sorted(slices.Values(r.Capabilities.Transactions))
	b.WriteString("| case |")
	for _, mode := range modes {
		fmt.Fprintf(&b, " %v |", mode)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(modes)))
	results := r.byCase()
	for _, ofCase := range results {
		fmt.Fprintf(&b, "| %s |", ofCase[0].Case)
		for _, mode := range modes {
			fmt.Fprintf(&b, " %s |", outcomeIn(mode, ofCase))
		}
		b.WriteString("\n")
	}
	for _, ofCase := range results {
		for _, result := range ofCase {
			if result.Outcome == Deviates || result.Outcome == NotRun {
				fmt.Fprintf(&b, "\n- %s, %s: %s", result.Case, result.Outcome, result.Reason)
				break // the reason is the same in all modes
			}
		}
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// byCase groups the results by case, in the order of each case's first result.
func (r *Report) byCase() (grouped [][]Result) {
	place := map[string]int{}
	for _, result := range r.Results {
		i, seen := place[result.Case]
		if !seen {
			i = len(grouped)
			place[result.Case] = i
			grouped = append(grouped, nil)
		}
		grouped[i] = append(grouped[i], result)
	}
	return grouped
}

// outcomeIn returns the outcome that a table shows for one case in one mode. A case that
// does not depend on the mode has the same outcome in all modes.
func outcomeIn(mode core.TransactionMode, ofCase []Result) Outcome {
	for _, result := range ofCase {
		if result.Mode == mode || result.Mode == core.TransactionDefault {
			return result.Outcome
		}
	}
	return "" // the case does not apply to this mode
}
