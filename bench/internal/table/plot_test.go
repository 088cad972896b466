package table

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// picture is what is in an SVG.
type picture struct {
	texts []string
	// Where the marks of each colour are, from the lower left corner. A mark begins
	// at its right or lower left end, the same for all of a line.
	marks map[string]plotter.XYs
	title string
	about string
}

func drawn(t *testing.T, g *Growth, title string) picture {
	t.Helper()
	svg, err := g.SVG(title)
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 20_000 {
		t.Errorf("the picture has %d bytes", len(svg))
	}
	p := picture{marks: make(map[string]plotter.XYs)}
	var element xml.StartElement
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			element = token.Copy()
			if element.Name.Local == "path" {
				p.mark(t, element.Attr)
			}
		case xml.EndElement:
			element = xml.StartElement{}
		case xml.CharData:
			switch element.Name.Local {
			case "text":
				p.texts = append(p.texts, string(token))
			case "title":
				p.title = string(token)
			case "desc":
				p.about = string(token)
			}
		}
	}
}

func (p picture) mark(t *testing.T, attributes []xml.Attr) {
	t.Helper()
	var outline, style string
	for _, a := range attributes {
		switch a.Name.Local {
		case "d":
			outline = a.Value
		case "style":
			style = a.Value
		}
	}
	color, filled := strings.CutPrefix(style, "fill:#")
	if !filled {
		return
	}
	var at plotter.XY
	if _, err := fmt.Sscanf(outline, "M%f,%f", &at.X, &at.Y); err != nil {
		t.Fatalf("path %q: %v", outline, err)
	}
	p.marks[color] = append(p.marks[color], at)
}

// points returns the marks of a line by its number.
func (p picture) points(line int) plotter.XYs {
	c := styles[line].color
	return p.marks[fmt.Sprintf("%02X%02X%02X", c.R, c.G, c.B)]
}

// between returns the distances of neighbours.
func between(points plotter.XYs) (x, y []float64) {
	for i := range points[1:] {
		x = append(x, points[i+1].X-points[i].X)
		y = append(y, points[i+1].Y-points[i].Y)
	}
	return x, y
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.1 }

func TestPlot_LogarithmicScale(t *testing.T) {
	g := &Growth{Quantity: "concurrency", Figure: "messages/s", Factors: true}
	for i, rate := range []float64{500, 5_000, 50_000, 500_000} {
		n := math.Pow(4, float64(i))
		g.Add("rising", n, rate)
		g.Add("flat", n, 900)
	}
	p := drawn(t, g, "Concurrency")
	x, y := between(p.points(0))
	if len(x) != 3 || x[0] < 20 || y[0] < 20 || !near(x[0], x[1]) || !near(x[1], x[2]) || !near(y[0], y[1]) || !near(y[1], y[2]) {
		t.Errorf("the rising line's distances are %v and %v", x, y)
	}
	if flatX, flatY := between(p.points(1)); !slices.EqualFunc(flatX, x, near) || !slices.Equal(flatY, []float64{0, 0, 0}) {
		t.Errorf("the flat line's distances are %v and %v", flatX, flatY)
	}
}

func TestPlot_RatesBeginAtZero(t *testing.T) {
	g := &Growth{Quantity: "instances", Figure: "messages/s"}
	for i, rate := range []float64{0, 100, 300} {
		g.Add("Reprise", math.Pow(2, float64(i)), rate)
	}
	p := drawn(t, g, "Instances")
	if _, y := between(p.points(0)); len(y) != 2 || y[0] < 20 || !near(2*y[0], y[1]) {
		t.Errorf("the distances are %v", y)
	}
	if !slices.Contains(p.texts, "0") {
		t.Errorf("there is no 0 among %q", p.texts)
	}
}

func TestPlot_Texts(t *testing.T) {
	g := &Growth{Quantity: "body, KiB", Figure: "messages/s"}
	for _, size := range []float64{0.25, 4, 64} {
		g.Add("a <b> & \"c\"", size, 1000*size)
		g.Add("Reprise", size, 12345)
	}
	const title = "Bodies & <sizes>"
	p := drawn(t, g, title)
	for _, want := range []string{title, "body, KiB", "messages/s", "a <b> & \"c\"", "Reprise", "0.25", "4", "64"} {
		if !slices.Contains(p.texts, want) {
			t.Errorf("%q is not among the texts %q", want, p.texts)
		}
	}
	const about = `Plot of messages/s by body, KiB, the horizontal axis is logarithmic. a <b> & "c": 250 at 0.25 to 64,000 at 64; Reprise: 12,345 at 0.25 to 12,345 at 64.`
	if p.title != title || p.about != about {
		t.Errorf("the picture is called %q and described as %q", p.title, p.about)
	}
}

func TestPlot_IsDeterministic(t *testing.T) {
	g := &Growth{Quantity: "concurrency", Figure: "messages/s", Factors: true}
	for i := range 4 {
		for name := range 7 { // more lines than styles
			g.Add(fmt.Sprint("line ", name), float64(1+i), float64(100*name+i+1))
		}
	}
	first, err := g.SVG("Title")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := g.SVG("Title"); err != nil || !bytes.Equal(second, first) {
		t.Errorf("the second picture (%v) is\n%s\nthe first was\n%s", err, second, first)
	}
}

// What no measurement should be does not cost the report of an hour.
func TestPlot_FewOrStrangeFigures(t *testing.T) {
	for name, c := range map[string]struct {
		factors bool
		figures []float64
		drawn   int
	}{
		"one point":                        {false, []float64{70}, 1},
		"one point, logarithmic":           {true, []float64{70}, 1},
		"one point at a tick, logarithmic": {true, []float64{100}, 1},
		"zeros":                            {false, []float64{0, 0}, 2},
		"a zero, logarithmic":              {true, []float64{0, 1, 2}, 2},
		"no number":                        {false, []float64{math.NaN(), math.Inf(1), 5}, 1},
		"tiny":                             {true, []float64{1e-9, 1e9}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Growth{Quantity: "n", Figure: "messages/s", Factors: c.factors}
			for i, figure := range c.figures {
				g.Add("Reprise", float64(i+1), figure)
			}
			if got := len(drawn(t, g, "Title").points(0)); got != c.drawn {
				t.Errorf("%d points are drawn, want %d", got, c.drawn)
			}
		})
	}
	if _, err := (&Growth{}).SVG("Title"); err == nil {
		t.Error("a picture of nothing was drawn")
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{30, 400, "20 50 100 200 500"},
		{100, 900, "100 200 500 1,000"},
		{880, 640_000, "_ 1,000 _ _ 10,000 _ _ 100,000 _ _ 1,000,000"},
	} {
		var labels []string
		for _, tick := range factorTicks(c.low, c.high) {
			labels = append(labels, cmp.Or(tick.Label, "_"))
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("between %v and %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
	for high, want := range map[float64]string{
		0: "0 0.2 0.4 0.6 0.8 1", 60: "0 10 20 30 40 50 60", 61: "0 20 40 60 80", 88_123: "0 20,000 40,000 60,000 80,000 100,000", 250: "0 50 100 150 200 250",
	} {
		var labels []string
		for _, tick := range evenTicks(high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("up to %v: %s, want %s", high, got, want)
		}
	}
}

func TestPlot_NamesDoNotOverlap(t *testing.T) {
	for name, c := range map[string]struct{ heights, want []vg.Length }{
		"apart":               {[]vg.Length{10, 40, 90}, []vg.Length{10, 40, 90}},
		"together":            {[]vg.Length{50, 51, 52}, []vg.Length{50, 60, 70}},
		"together at the top": {[]vg.Length{98, 99, 100}, []vg.Length{80, 90, 100}},
		"below":               {[]vg.Length{-5, 3}, []vg.Length{0, 10}},
	} {
		if got := spaced(c.heights, 10, 0, 100); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
