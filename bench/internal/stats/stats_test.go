package stats

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   float64
	}{
		"nothing":          {nil, 0},
		"one":              {[]float64{3}, 3},
		"the middle one":   {[]float64{9, 1, 2}, 2},
		"between two":      {[]float64{4, 1, 2, 100}, 3},
		"outliers ignored": {[]float64{1, 1, 1, 1, 1000}, 1},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("%s: median(%v) = %v, want %v", name, c.values, got, c.want)
		}
	}
}

func TestMedian_LeavesItsArgument(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the values are now %v", values)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for name, c := range map[string]struct {
		values []int
		p      float64
		want   int
	}{
		"nothing":           {nil, 99, 0},
		"one":               {[]int{7}, 1, 7},
		"p50 of a hundred":  {hundred, 50, 50},
		"p99 of a hundred":  {hundred, 99, 99},
		"p100":              {hundred, 100, 100},
		"p0 is the least":   {hundred, 0, 1},
		"rounded up":        {[]int{1, 2, 3}, 34, 2},
		"p99 of few values": {[]int{1, 2, 3}, 99, 3},
	} {
		if got := Percentile(c.values, c.p); got != c.want {
			t.Errorf("%s: percentile(_, %v) = %v, want %v", name, c.p, got, c.want)
		}
	}
}

func TestSpread_IsAroundTheMedian(t *testing.T) {
	low, high := Spread([]float64{80, 100, 150})
	if math.Abs(low+0.2) > 1e-9 || math.Abs(high-0.5) > 1e-9 {
		t.Errorf("spread is %v .. %v, want -0.2 .. 0.5", low, high)
	}
	if low, high := Spread([]float64{0, 0}); low != 0 || high != 0 {
		t.Errorf("the spread around zero is %v .. %v", low, high)
	}
}

func TestRatio_ComparesWithinARound(t *testing.T) {
	// The machine is ten times as slow in the second round. Medians taken apart
	// would say 20/10 or 2/1 only by luck.
	values := []float64{20, 2, 30}
	base := []float64{10, 1, 10}
	if got := Ratio(values, base); got != 2 {
		t.Errorf("ratio is %v, want 2", got)
	}
	if got := Ratio(nil, nil); got != 0 {
		t.Errorf("the ratio of nothing is %v", got)
	}
}
