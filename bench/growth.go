package main

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
)

// growth has the figures of a table that change with one quantity, for a plot: a line for
// each column of the table, a point for each row.
type growth struct {
	quantity string // grows by factors, so its axis is logarithmic
	figure   string
	factors  bool // the figures grow by factors too: their axis is logarithmic, and does not begin at 0
	lines    []line
}

type line struct {
	name   string
	points plotter.XYs
}

// add adds a point to the line of that name.
func (g *growth) add(name string, quantity, figure float64) {
	i := slices.IndexFunc(g.lines, func(l line) bool { return l.name == name })
	if i < 0 {
		i = len(g.lines)
		g.lines = append(g.lines, line{name: name})
	}
	g.lines[i].points = append(g.lines[i].points, plotter.XY{X: quantity, Y: figure})
}

// description describes the picture in words, for readers who cannot see it.
func (g *growth) description() string {
	var b strings.Builder
	axes := "the horizontal axis is"
	if g.factors {
		axes = "both axes are"
	}
	fmt.Fprintf(&b, "Plot of %s by %s, %s logarithmic. ", g.figure, g.quantity, axes)
	for i, l := range g.lines {
		first, last := l.points[0], l.points[len(l.points)-1]
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s at %s", l.name, number(first.Y), number(first.X))
		if len(l.points) > 1 {
			fmt.Fprintf(&b, " to %s at %s", number(last.Y), number(last.X))
		}
	}
	return b.String() + "."
}
