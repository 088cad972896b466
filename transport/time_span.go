package transport

import (
	"strconv"
	"strings"
	"time"
)

// ParseTimeSpan reads a duration in the format of .NET and of the header
// NServiceBus.TimeToBeReceived: "00:01:30", "1.00:00:00.5000000". For any other text ok
// is false.
func ParseTimeSpan(text string) (d time.Duration, ok bool) {
	var days, hours, minutes, seconds int64
	clock := text
	if day, rest, cut := strings.Cut(text, "."); cut && strings.Contains(rest, ":") {
		n, err := strconv.ParseUint(day, 10, 31)
		if err != nil {
			return 0, false
		}
		days, clock = int64(n), rest
	}
	whole, fraction, _ := strings.Cut(clock, ".")
	parts := strings.Split(whole, ":")
	if len(parts) != 3 {
		return 0, false
	}
	for i, to := range []*int64{&hours, &minutes, &seconds} {
		n, err := strconv.ParseUint(parts[i], 10, 31)
		if err != nil {
			return 0, false
		}
		*to = int64(n)
	}
	var nanos int64
	if fraction != "" {
		n, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 31)
		if err != nil || strings.Trim(fraction, "0123456789") != "" {
			return 0, false
		}
		nanos = int64(n)
	}
	const maxDays = int64(1<<63-1) / int64(24*time.Hour)
	if days >= maxDays || hours > 24 || minutes > 60 || seconds > 60 {
		return 0, false
	}
	return time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second + time.Duration(nanos), true
}
