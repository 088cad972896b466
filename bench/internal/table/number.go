package table

import (
	"fmt"
	"strings"
)

// Number writes a value with its significant digits: three, and all digits before the
// point.
func Number(v float64) string {
	switch {
	case v >= 100:
		return Thousands(int64(v + 0.5))
	case v >= 10:
		return trim(fmt.Sprintf("%.1f", v))
	case v >= 1:
		return trim(fmt.Sprintf("%.2f", v))
	default:
		return trim(fmt.Sprintf("%.3f", v))
	}
}

func trim(decimal string) string {
	return strings.TrimSuffix(strings.TrimRight(decimal, "0"), ".")
}

// Thousands writes a number with commas between its thousands.
func Thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Span writes a spread: "-3 .. +12 %".
func Span(low, high float64) string { return fmt.Sprintf("%+.0f .. %+.0f %%", low*100, high*100) }
