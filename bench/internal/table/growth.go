package table

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
)

// Growth has the figures of a table that change with one quantity, for a plot: a line for
// each column of the table, a point for each row.
type Growth struct {
	Quantity string // grows by factors, so its axis is logarithmic
	Figure   string
	Factors  bool // the figures grow by factors too: their axis is logarithmic, and does not begin at 0
	Lines    []Line
}

// Line is one line of a plot.
type Line struct {
	Name   string
	Points plotter.XYs
}

// Add adds a point to the line of that name.
func (g *Growth) Add(name string, quantity, figure float64) {
	i := slices.IndexFunc(g.Lines, func(l Line) bool { return l.Name == name })
	if i < 0 {
		i = len(g.Lines)
		g.Lines = append(g.Lines, Line{Name: name})
	}
	g.Lines[i].Points = append(g.Lines[i].Points, plotter.XY{X: quantity, Y: figure})
}

// Description describes the picture in words, for readers who cannot see it.
func (g *Growth) Description() string {
	var b strings.Builder
	axes := "the horizontal axis is"
	if g.Factors {
		axes = "both axes are"
	}
	fmt.Fprintf(&b, "Plot of %s by %s, %s logarithmic. ", g.Figure, g.Quantity, axes)
	for i, l := range g.Lines {
		first, last := l.Points[0], l.Points[len(l.Points)-1]
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s at %s", l.Name, Number(first.Y), Number(first.X))
		if len(l.Points) > 1 {
			fmt.Fprintf(&b, " to %s at %s", Number(last.Y), Number(last.X))
		}
	}
	return b.String() + "."
}
