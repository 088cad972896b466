package core

import (
	"testing"
	"time"
)

func TestFormatTime(t *testing.T) {
	for _, test := range []struct {
		name string
		t    time.Time
		want string
	}{
		{"whole seconds", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02 03:04:05:000000 Z"},
		{"microseconds", time.Date(2026, 12, 31, 23, 59, 59, 123456000, time.UTC), "2026-12-31 23:59:59:123456 Z"},
		{"small fractions keep their zeros", time.Date(2026, 1, 2, 3, 4, 5, 7000, time.UTC), "2026-01-02 03:04:05:000007 Z"},
		{"nanoseconds are cut", time.Date(2026, 1, 2, 3, 4, 5, 999999999, time.UTC), "2026-01-02 03:04:05:999999 Z"},
		{"other zones become UTC", time.Date(2026, 1, 2, 0, 30, 0, 0, time.FixedZone("", 2*60*60)), "2026-01-01 22:30:00:000000 Z"},
		{"the zero time", time.Time{}, "0001-01-01 00:00:00:000000 Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := FormatTime(test.t)
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			back, err := ParseTime(got)
			if err != nil || !back.Equal(test.t.Truncate(time.Microsecond)) {
				t.Errorf("is read as %v, %v", back, err)
			}
		})
	}
}

func TestParseTime_Refuses(t *testing.T) {
	for _, text := range []string{
		"", " Z", "Z", "now", "2026-01-02 03:04:05:000000", "2026-01-02 03:04:05:000000Z", "2026-01-02 03:04:05.000000 Z",
		"2026-01-02 03:04:05 Z", "2026-01-02 03:04:05:00000 Z", "2026-01-02 03:04:05:0000000 Z", "2026-13-02 03:04:05:000000 Z",
		"2026-02-30 03:04:05:000000 Z", "2026-01-02 25:04:05:000000 Z", "2026-01-02T03:04:05:000000 Z", "2026-01-02 03:04:05:-00001 Z",
		"2026-01-02 03:04:05:00000x Z", "2026-01-02 03:04:05:000000 Z Z", ":000000 Z", "2026-01-02 03:04:05:000000 +01:00",
	} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		} else if !timeText(text).IsZero() {
			t.Errorf("%q: timeText is not zero", text)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{"2026-01-02 03:04:05:000007 Z", "0000-01-01 00:00:00:999999 Z", "2026-01-02 3:04:05:000000 Z", ": Z", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ParseTime(text)
		if err != nil {
			if !at.IsZero() {
				t.Errorf("%q: %v with %v", text, at, err)
			}
			return
		}
		if at.Location() != time.UTC {
			t.Errorf("%q is read in %v", text, at.Location())
		}
		again, err := ParseTime(FormatTime(at))
		if err != nil || !again.Equal(at) {
			t.Errorf("%q is %v, then %v, %v", text, at, again, err)
		}
	})
}

func TestFormatTimeSpan_WritesWhatDotNetReads(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second:                              "00:00:01",
		90 * time.Minute:                         "01:30:00",
		24*time.Hour - time.Second:               "23:59:59",
		24 * time.Hour:                           "1.00:00:00",
		1000*time.Hour + 5*time.Millisecond + 99: "41.16:00:00.0050000",
		time.Microsecond:                         "00:00:00.0000010",
	} {
		if got := formatTimeSpan(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
