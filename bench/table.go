package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is the output of a scenario: a head, rows with the same number of cells, and
// aims. The first column is text, the others are numbers.
type table struct {
	title  string
	head   []string
	rows   [][]string
	aims   []aim
	growth *growth // its picture, or nil; one table of a scenario at most has one
}

// aim is a figure that must be reached.
type aim struct {
	what    string
	want    float64
	got     float64
	ceiling bool // want is the most, not the least
}

func (a aim) met() bool {
	if a.ceiling {
		return a.got <= a.want
	}
	return a.got >= a.want
}

func (a aim) String() string {
	bound, verdict := "at least", "met"
	if a.ceiling {
		bound = "at most"
	}
	if !a.met() {
		verdict = "missed"
	}
	return fmt.Sprintf("%s: %s %s, measured %s: %s", a.what, bound, number(a.want), number(a.got), verdict)
}

// text returns the table in columns, for a terminal.
func (t table) text() string {
	widths := make([]int, len(t.head))
	for _, row := range t.all() {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", t.title)
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
	for _, a := range t.aims {
		fmt.Fprintf(&b, "  aim: %v\n", a)
	}
	return b.String()
}

// markdown returns the table for a document.
func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.title)
	for i, row := range t.all() {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|---:", len(row)-1) + "|\n")
		}
	}
	if len(t.aims) > 0 {
		b.WriteString("\n")
	}
	for _, a := range t.aims {
		fmt.Fprintf(&b, "- Aim: %v\n", a)
	}
	return b.String()
}

func (t table) all() [][]string { return append([][]string{t.head}, t.rows...) }
