package admin

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// maxDuration is TimeSpan.MaxValue of .NET, which means no end (azservicebus v1.11.0,
// TestAdminClient_QueueWithMaxValues).
const maxDuration = "P10675199DT2H48M5.4775807S"

var durationPattern = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// parseDuration parses an ISO 8601 duration with days, hours, minutes and seconds, such
// as PT1M30S. For a duration that is too long for Go it returns [properties.MaxTimeToLive].
func parseDuration(s string) (time.Duration, error) {
	parts := durationPattern.FindStringSubmatch(s)
	if parts == nil || strings.HasSuffix(s, "T") || s == "P" {
		return 0, fmt.Errorf("%q is no duration such as PT1M30S or P14D", s)
	}
	total := 0.0 // seconds
	for i, unit := range []float64{24 * 3600, 3600, 60, 1} {
		if parts[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(parts[i+1], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration: %w", s, err)
		}
		total += n * unit
	}
	if total >= properties.MaxTimeToLive.Seconds() {
		return properties.MaxTimeToLive, nil
	}
	return time.Duration(total * float64(time.Second)).Round(time.Millisecond), nil
}

func formatDuration(d time.Duration) string {
	if d >= properties.MaxTimeToLive {
		return maxDuration
	}
	days := d / (24 * time.Hour)
	d %= 24 * time.Hour
	hours, minutes := d/time.Hour, d%time.Hour/time.Minute
	seconds := (d % time.Minute).Seconds()
	s := "P"
	if days > 0 {
		s += fmt.Sprintf("%dD", days)
	}
	if d == 0 && days > 0 {
		return s
	}
	s += "T"
	if hours > 0 {
		s += fmt.Sprintf("%dH", hours)
	}
	if minutes > 0 {
		s += fmt.Sprintf("%dM", minutes)
	}
	if seconds > 0 || d == 0 {
		s += strconv.FormatFloat(seconds, 'f', -1, 64) + "S"
	}
	return s
}
