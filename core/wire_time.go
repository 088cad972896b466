package core

import (
	"fmt"
	"strings"
	"time"
)

// Times in headers are UTC, "2006-01-02 15:04:05:000000 Z": NServiceBus's
// format, with a colon before the microseconds.

const wireTimeSeconds = "2006-01-02 15:04:05"

// FormatTime writes t as the headers carry it.
func FormatTime(t time.Time) string {
	var space [32]byte
	b := t.UTC().AppendFormat(space[:0], wireTimeSeconds)
	micros := t.Nanosecond() / 1000
	b = append(b, ':')
	for div := 100_000; div > 0; div /= 10 {
		b = append(b, byte('0'+micros/div%10))
	}
	return string(append(b, " Z"...))
}

// ParseTime reads what FormatTime wrote.
func ParseTime(text string) (time.Time, error) {
	seconds, micros, ok := cutLast(strings.TrimSuffix(text, " Z"), ":")
	if !ok || len(micros) != 6 || !strings.HasSuffix(text, " Z") {
		return time.Time{}, fmt.Errorf("core: %q is not a time like %q", text, "2006-01-02 15:04:05:000000 Z")
	}
	return time.Parse(wireTimeSeconds+".000000", seconds+"."+micros)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// formatTimeSpan writes a duration that is not negative as .NET does: "00:01:30",
// "1.00:00:00.5000000". What is below 100 ns is cut off.
func formatTimeSpan(d time.Duration) string {
	const day = 24 * time.Hour
	var b strings.Builder
	if d >= day {
		fmt.Fprintf(&b, "%d.", d/day)
	}
	fmt.Fprintf(&b, "%02d:%02d:%02d", d%day/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second)
	if ticks := d % time.Second / 100; ticks > 0 {
		fmt.Fprintf(&b, ".%07d", ticks)
	}
	return b.String()
}
