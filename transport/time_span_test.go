package transport_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport"
)

func TestParseTimeSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"00:00:00":           0,
		"00:01:30":           90 * time.Second,
		"00:00:00.5":         500 * time.Millisecond,
		"00:00:00.0000001":   100 * time.Nanosecond,
		"1.02:03:04.0000050": 26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Microsecond,
		"106750.00:00:00":    106750 * 24 * time.Hour,
	} {
		if got, ok := transport.ParseTimeSpan(text); !ok || got != want {
			t.Errorf("%q is %v, %t, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "1", "00:00", "-00:00:01", "1.2", "x.00:00:00", "00:00:0x", "00:00:00.x", "25:00:00", "00:61:00", "106752.00:00:00", "99999999999.00:00:00"} {
		if got, ok := transport.ParseTimeSpan(text); ok {
			t.Errorf("%q is %v, want none", text, got)
		}
	}
}
