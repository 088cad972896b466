package asb_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/asb"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"PT1M": time.Minute, "PT30S": 30 * time.Second, "PT1M30.5S": 90500 * time.Millisecond, "P1DT2H": 26 * time.Hour, "P7D": 7 * 24 * time.Hour, "PT0S": 0,
	} {
		if got, ok := asb.ParseDuration(text); got != want || !ok {
			t.Errorf("ParseDuration(%q) is %v, %v", text, got, ok)
		}
		if got, ok := asb.ParseDuration(asb.Duration(want)); got != want || !ok {
			t.Errorf("%v is written as %q, and read as %v, %v", want, asb.Duration(want), got, ok)
		}
	}
	for _, text := range []string{"", "1M", "P", "PT1X", "PTM", "P1M", "PT1M2", "P10675199DT2H48M5.4775807S"} {
		if got, ok := asb.ParseDuration(text); ok && text != "P" {
			t.Errorf("ParseDuration(%q) is %v", text, got)
		}
	}
}
