package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
)

// WriteMarkdown writes the report as a Markdown table, a line for each case and
// a column for each of the transport's transaction modes. What deviates and what
// was not run follow with their reasons.
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
				break // the reason is that of the case, whatever the mode
			}
		}
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// byCase returns the results of each case together, in the order in which the
// cases came first.
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

// outcomeIn returns what a table shows for one case in one mode. A case to which
// the mode makes no difference has the same outcome in all.
func outcomeIn(mode core.TransactionMode, ofCase []Result) Outcome {
	for _, result := range ofCase {
		if result.Mode == mode || result.Mode == core.TransactionDefault {
			return result.Outcome
		}
	}
	return "" // it has no meaning in this mode
}
