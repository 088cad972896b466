package table

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The style of pictures. The colours are those of Okabe and Ito that are dark enough for
// a white background; no two lines differ only by their colour.
const (
	pictureWidth  = 600 * vg.Length(1) // points
	pictureHeight = 290 * vg.Length(1)
	pictureMargin = 10 * vg.Length(1)
	textSize      = 10
	textHeight    = 13 * vg.Length(1)
)

var (
	ink    = color.RGBA{0x24, 0x29, 0x2f, 0xff}
	faint  = color.RGBA{0xd8, 0xde, 0xe4, 0xff}
	sans   = font.Font{Typeface: "Liberation", Variant: "Sans"}
	styles = []struct {
		color  color.RGBA
		glyph  draw.GlyphDrawer
		dashes []vg.Length
	}{
		{color.RGBA{0x00, 0x72, 0xb2, 0xff}, draw.CircleGlyph{}, nil},
		{color.RGBA{0xd5, 0x5e, 0x00, 0xff}, draw.BoxGlyph{}, []vg.Length{5, 2}},
		{color.RGBA{0x00, 0x9e, 0x73, 0xff}, draw.PyramidGlyph{}, nil},
		{color.RGBA{0xcc, 0x79, 0xa7, 0xff}, draw.CircleGlyph{}, []vg.Length{5, 2}},
		{color.RGBA{0x00, 0x00, 0x00, 0xff}, draw.BoxGlyph{}, nil},
	}
)

// SVG draws the lines. The same points give the same bytes. A point outside an axis is
// omitted; the table still has it.
func (g *Growth) SVG(title string) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, g.Quantity, g.Figure
	p.Title.TextStyle.Font = font.From(sans, 12)
	p.Title.Padding = 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = font.From(sans, textSize)
		axis.Tick.Label.Font = font.From(sans, textSize)
		axis.Label.Padding = 4
		axis.Tick.Length = 4
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = ink, ink
		axis.Color, axis.Tick.Color = ink, ink
	}
	p.Title.TextStyle.Color = ink
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: faint, Width: 0.5}
	p.Add(grid)

	names := lineNames{style: draw.TextStyle{Color: ink, Font: font.From(sans, textSize), YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}}
	var all plotter.XYs
	for i, l := range g.Lines {
		points := slices.DeleteFunc(slices.Clone(l.Points), func(xy plotter.XY) bool { return !g.drawable(xy) })
		if len(points) == 0 {
			continue
		}
		all = append(all, points...)
		style := styles[i%len(styles)]
		path, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", l.Name, err)
		}
		path.LineStyle = draw.LineStyle{Color: style.color, Width: 1.5, Dashes: style.dashes}
		marks.GlyphStyle = draw.GlyphStyle{Color: style.color, Radius: 2.75, Shape: style.glyph}
		p.Add(path, marks)
		names.lines = append(names.lines, lineName{l.Name, points[len(points)-1], style.color})
	}
	if len(all) == 0 {
		return nil, errors.New("there is no point to draw")
	}
	p.Add(names)
	g.scale(p, all)

	canvas := vgsvg.New(pictureWidth, pictureHeight)
	area := draw.New(canvas)
	area.SetColor(color.White) // for readers with a dark page
	area.Fill(area.Path())
	p.Draw(draw.Crop(area, pictureMargin, -pictureMargin, pictureMargin, -pictureMargin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return accessible(b.Bytes(), title, g.Description()), nil
}

// WriteFile writes the picture to a file, and creates its folder.
func (g *Growth) WriteFile(file, title string) error {
	picture, err := g.SVG(title)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}

func (g *Growth) drawable(xy plotter.XY) bool {
	return xy.X > 0 && !math.IsInf(xy.Y, 0) && (xy.Y > 0 || xy.Y == 0 && !g.Factors)
}

// scale gives the axes their ends and ticks. The quantity has a tick where it was
// measured.
func (g *Growth) scale(p *plot.Plot, all plotter.XYs) {
	var measured plot.ConstantTicks
	for _, xy := range all {
		measured = append(measured, plot.Tick{Value: xy.X, Label: Number(xy.X)})
	}
	slices.SortFunc(measured, func(a, b plot.Tick) int { return cmp.Compare(a.Value, b.Value) })
	measured = slices.Compact(measured)
	p.X.Tick.Marker = measured
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = measured[0].Value, measured[len(measured)-1].Value
	if p.X.Min == p.X.Max { // a single point is in the middle
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}

	_, _, low, high := plotter.XYRange(all)
	ticks := evenTicks(high)
	if g.Factors {
		ticks = factorTicks(low, high)
		p.Y.Scale = plot.LogScale{}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = ticks[0].Value, ticks[len(ticks)-1].Value
}

// evenTicks go from 0 to the first tick that is not below high, by a round step.
func evenTicks(high float64) plot.ConstantTicks {
	const limit = 6
	if high <= 0 {
		high = 1
	}
	power := math.Pow(10, math.Floor(math.Log10(high/limit)))
	step := 10 * power
	for _, digit := range []float64{5, 2, 1} {
		if high <= limit*digit*power {
			step = digit * power
		}
	}
	var ticks plot.ConstantTicks
	for i := 0.0; ; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: Number(i * step)})
		if i*step >= high {
			return ticks
		}
	}
}

// factorTicks are 1, 2 and 5 times the powers of ten, from the last tick below low to the
// first one above high. Over a long range only the powers have a label.
func factorTicks(low, high float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for power := math.Floor(math.Log10(low)); ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			value := digit * math.Pow(10, power)
			if value <= low {
				ticks = nil // a later tick is nearer
			}
			label := ""
			if digit == 1 || high/low < 200 {
				label = Number(value)
			}
			ticks = append(ticks, plot.Tick{Value: value, Label: label})
			if value > high {
				return ticks
			}
		}
	}
}

// lineNames draws the lines' names after their ends, without overlap.
type lineNames struct {
	lines []lineName
	style draw.TextStyle
}

type lineName struct {
	text  string
	end   plotter.XY
	color color.RGBA
}

// The distance of a name from the end of its line, and the factor by which it may be
// wider in a substitute font.
const (
	nameDistance = 20 * vg.Length(1)
	standIn      = 1.15
)

// Plot implements [plot.Plotter].
func (n lineNames) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	lines := slices.SortedStableFunc(slices.Values(n.lines), func(a, b lineName) int { return cmp.Compare(a.end.Y, b.end.Y) })
	heights := make([]vg.Length, len(lines))
	for i, l := range lines {
		heights[i] = y(l.end.Y)
	}
	for i, height := range spaced(heights, textHeight, c.Min.Y, c.Max.Y) {
		end := vg.Point{X: x(lines[i].end.X), Y: y(lines[i].end.Y)}
		at := vg.Point{X: c.Max.X + nameDistance, Y: height}
		c.StrokeLine2(draw.LineStyle{Color: lines[i].color, Width: 0.5}, end.X+4, end.Y, at.X-3, at.Y)
		c.FillText(n.style, at, lines[i].text)
	}
}

// GlyphBoxes implements [plot.GlyphBoxer], to reserve space for the names.
func (n lineNames) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxes := make([]plot.GlyphBox, len(n.lines))
	for i, l := range n.lines {
		width := nameDistance + standIn*n.style.Width(l.text)
		boxes[i] = plot.GlyphBox{X: 1, Y: p.Y.Norm(l.end.Y), Rectangle: vg.Rectangle{
			Min: vg.Point{Y: -textHeight / 2}, Max: vg.Point{X: width, Y: textHeight / 2},
		}}
	}
	return boxes
}

// spaced moves ascending heights until each is a step above the one before, and
// none is above high, or, if there is room, below low.
func spaced(heights []vg.Length, step, low, high vg.Length) []vg.Length {
	heights = slices.Clone(heights)
	for i := range heights {
		heights[i] = max(heights[i], low)
		if i > 0 {
			heights[i] = max(heights[i], heights[i-1]+step)
		}
	}
	for i := len(heights) - 1; i >= 0; i-- {
		heights[i] = min(heights[i], high-step*vg.Length(len(heights)-1-i))
	}
	return heights
}

// accessible adds to a picture its text for screen readers, and substitute families for
// its font, most of them of the same width.
func accessible(svg []byte, title, description string) []byte {
	head := fmt.Appendf(nil, "xlink\" role=\"img\" aria-labelledby=\"title description\">\n<title id=\"title\">%s</title>\n<desc id=\"description\">%s</desc>",
		html.EscapeString(title), html.EscapeString(description))
	svg = bytes.Replace(svg, []byte(`xlink">`), head, 1)
	return bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
}
