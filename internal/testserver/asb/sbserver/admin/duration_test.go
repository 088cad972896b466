package admin

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

func TestDuration(t *testing.T) {
	tests := []struct {
		text   string
		want   time.Duration
		format string // "" if it is the text
	}{
		{"PT1M", time.Minute, ""},
		{"PT0S", 0, ""},
		{"P14D", 14 * 24 * time.Hour, ""},
		{"P1DT2H3M4.5S", 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, ""},
		{"PT90S", 90 * time.Second, "PT1M30S"},
		{"PT36H", 36 * time.Hour, "P1DT12H"},
		{maxDuration, properties.MaxTimeToLive, ""},
		{"P999999D", properties.MaxTimeToLive, maxDuration},
	}
	for _, test := range tests {
		got, err := parseDuration(test.text)
		if err != nil || got != test.want {
			t.Errorf("%s is read as %v, %v, want %v", test.text, got, err, test.want)
		}
		want := test.format
		if want == "" {
			want = test.text
		}
		if got := formatDuration(test.want); got != want {
			t.Errorf("%v is written as %s, want %s", test.want, got, want)
		}
	}
	for _, text := range []string{"", "P", "PT", "1M", "PT1", "P1Y", "PT-1M", "pt1m", "P1DT"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
