// Package table has the tables of scenarios, as text and as Markdown, and plots of their figures.
package table

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Table is the output of a scenario: a head, rows with the same number of cells, and
// aims. The first column is text, the others are numbers.
type Table struct {
	Title  string
	Head   []string
	Rows   [][]string
	Aims   []Aim
	Growth *Growth // its picture, or nil; one table of a scenario at most has one
}

// Aim is a figure that must be reached.
type Aim struct {
	Figure  string
	Want    float64
	Got     float64
	Ceiling bool // Want is the most, not the least
}

func (a Aim) met() bool {
	if a.Ceiling {
		return a.Got <= a.Want
	}
	return a.Got >= a.Want
}

func (a Aim) String() string {
	bound, verdict := "at least", "met"
	if a.Ceiling {
		bound = "at most"
	}
	if !a.met() {
		verdict = "missed"
	}
	return fmt.Sprintf("%s: %s %s, measured %s: %s", a.Figure, bound, Number(a.Want), Number(a.Got), verdict)
}

// Text returns the table in columns, for a terminal.
func (t Table) Text() string {
	widths := make([]int, len(t.Head))
	for _, row := range t.all() {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", t.Title)
	for _, row := range t.all() {
		cells := make([]string, len(row))
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cells[i] = cell + gap
			} else {
				cells[i] = gap + cell
			}
		}
		b.WriteString("  " + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	}
	for _, a := range t.Aims {
		fmt.Fprintf(&b, "  aim: %v\n", a)
	}
	return b.String()
}

// Markdown returns the table for a document.
func (t Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.Title)
	for i, row := range t.all() {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|---:", len(row)-1) + "|\n")
		}
	}
	if len(t.Aims) > 0 {
		b.WriteString("\n")
	}
	for _, a := range t.Aims {
		fmt.Fprintf(&b, "- Aim: %v\n", a)
	}
	return b.String()
}

func (t Table) all() [][]string { return append([][]string{t.Head}, t.Rows...) }
