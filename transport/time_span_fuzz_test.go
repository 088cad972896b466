package transport_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// FuzzTimeSpan reads any text, and any duration that was written.
func FuzzTimeSpan(f *testing.F) {
	for _, text := range []string{
		"00:01:30", "1.00:00:00.5000000", "106750.23:59:59.9999999", "106751.00:00:00", "9223372036854775807.00:00:00", "24:60:60", "-00:00:01", "1.2.00:00:00",
		"00:00:00.", "00:00:01.123456789", "00:00:01.1234567891", "00:00:01.123456789x", "+1:00:00", ".00:00:00", "1.:00:00", "::", "", "\xff:\xff:\xff",
	} {
		f.Add(text, int64(len(text)))
	}
	f.Add("", int64(1<<63-1))
	span := regexp.MustCompile(`^([0-9]+\.)?[0-9]+:[0-9]+:[0-9]+(\.[0-9]*)?$`)
	f.Fuzz(func(t *testing.T, text string, duration int64) {
		d, ok := transport.ParseTimeSpan(text)
		switch {
		case !ok && d != 0:
			t.Errorf("%q: %v, although it is refused", text, d)
		case ok && (d < 0 || !span.MatchString(text)):
			t.Errorf("%q is read as %v", text, d)
		}
		for _, d := range []time.Duration{d, time.Duration(duration & (1<<62 - 1))} {
			written := headers.FormatSpan(d)
			if read, ok := transport.ParseTimeSpan(written); !ok || read != d.Truncate(100) {
				t.Errorf("%d is written as %q and read as %d, %t", d, written, read, ok)
			}
		}
	})
}
