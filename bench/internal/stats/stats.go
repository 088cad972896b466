// Package stats summarizes samples: medians, percentiles, spreads and ratios.
package stats

import (
	"cmp"
	"slices"
	"time"
)

// Median returns the middle of the values, or the mean of the two middle ones.
// It is 0 without values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile returns the smallest value that is at least as large as p percent of all
// values (nearest rank), so that it is a measured value.
func Percentile[T cmp.Ordered](values []T, p float64) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(p/100*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Spread is the distance of the lowest and the highest value from the median, as
// parts of it.
func Spread(values []float64) (low, high float64) {
	m := Median(values)
	if m == 0 {
		return 0, 0
	}
	return slices.Min(values)/m - 1, slices.Max(values)/m - 1
}

// Ratio compares two contenders: the median of the quotients of samples that were taken
// in the same round, so that a slow minute of the machine affects both.
func Ratio(values, base []float64) float64 {
	quotients := make([]float64, 0, len(values))
	for i := range min(len(values), len(base)) {
		if base[i] != 0 {
			quotients = append(quotients, values[i]/base[i])
		}
	}
	return Median(quotients)
}

// Values returns the results of f for all elements.
func Values[T any](list []T, f func(T) float64) []float64 {
	values := make([]float64, len(list))
	for i, item := range list {
		values[i] = f(item)
	}
	return values
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return d.Seconds() * 1e3 }
