// Package scenariotest runs scenarios in the tests of their packages.
package scenariotest

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// Run runs each scenario with a few messages, in a subtest. Every scenario checks that no message was lost, and its
// tables must have rows; the figures mean nothing.
func Run(t *testing.T, scenarios []scenario.Scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) { checkScenario(t, s) })
	}
}

// checkScenario runs a scenario and checks its tables.
func checkScenario(t *testing.T, s scenario.Scenario) {
	t.Helper()
	tables, err := s.Run(t.Context(), scenario.Load{Messages: 30, Repetitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) == 0 {
		t.Fatal("there is no table")
	}
	pictures := 0
	for _, each := range tables {
		if each.Title == "" || len(each.Rows) == 0 {
			t.Errorf("table %q has %d rows", each.Title, len(each.Rows))
		}
		for _, row := range each.Rows {
			if len(row) != len(each.Head) {
				t.Errorf("table %q: the row %q does not fit the head %q", each.Title, row, each.Head)
			}
		}
		if each.Growth != nil {
			pictures++
			checkPlot(t, each)
		}
	}
	if pictures > 1 || s.Plotted != (pictures == 1) {
		t.Errorf("there are %d plots; it is %v that it is plotted", pictures, s.Plotted)
	}
}

// checkPlot checks that each line of a table's plot has a point for each row, at
// the figures of the row.
func checkPlot(t *testing.T, drawn table.Table) {
	t.Helper()
	for _, line := range drawn.Growth.Lines {
		column := slices.Index(drawn.Head, line.Name)
		if column < 0 || len(line.Points) != len(drawn.Rows) {
			t.Errorf("the line %q has %d points; the table has %d rows under %q", line.Name, len(line.Points), len(drawn.Rows), drawn.Head)
			continue
		}
		for i, row := range drawn.Rows {
			if at := line.Points[i]; table.Number(at.X) != row[0] || table.Number(at.Y) != row[column] {
				t.Errorf("the line %q goes through %v in the row %q", line.Name, at, row)
			}
		}
	}
	columns := 0 // that are plotted; the others are ratios
	for _, head := range drawn.Head[1:] {
		if !strings.HasPrefix(head, "× ") {
			columns++
		}
	}
	if len(drawn.Growth.Lines) != columns {
		t.Errorf("there are %d lines for %d columns", len(drawn.Growth.Lines), columns)
	}
	if _, err := drawn.Growth.SVG(drawn.Title); err != nil {
		t.Error(err)
	}
}
