package headers

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
			parsed, err := ParseTime(got)
			if err != nil || !parsed.Equal(test.t.Truncate(time.Microsecond)) {
				t.Errorf("is read as %v, %v", parsed, err)
			}
		})
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, text := range []string{
		"", " Z", "Z", "now", "2026-01-02 03:04:05:000000", "2026-01-02 03:04:05:000000Z", "2026-01-02 03:04:05.000000 Z",
		"2026-01-02 03:04:05 Z", "2026-01-02 03:04:05:00000 Z", "2026-01-02 03:04:05:0000000 Z", "2026-13-02 03:04:05:000000 Z",
		"2026-02-30 03:04:05:000000 Z", "2026-01-02 25:04:05:000000 Z", "2026-01-02T03:04:05:000000 Z", "2026-01-02 03:04:05:-00001 Z",
		"2026-01-02 03:04:05:00000x Z", "2026-01-02 03:04:05:000000 Z Z", ":000000 Z", "2026-01-02 03:04:05:000000 +01:00",
	} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		} else if !got.IsZero() {
			t.Errorf("%q: %v instead of the zero time", text, got)
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
		parsed, err := ParseTime(FormatTime(at))
		if err != nil || !parsed.Equal(at) {
			t.Errorf("%q is %v, then %v, %v", text, at, parsed, err)
		}
	})
}

func TestFormatSpan_IsReadByDotNet(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second:                              "00:00:01",
		90 * time.Minute:                         "01:30:00",
		24*time.Hour - time.Second:               "23:59:59",
		24 * time.Hour:                           "1.00:00:00",
		1000*time.Hour + 5*time.Millisecond + 99: "41.16:00:00.0050000",
		time.Microsecond:                         "00:00:00.0000010",
	} {
		if got := FormatSpan(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestParseFast_AgreesWithPackageTime on times, and on texts with one wrong
// character.
func TestParseFast_AgreesWithPackageTime(t *testing.T) {
	const form = layout + ":000000 Z"
	slow := func(text string) (time.Time, bool) {
		seconds, micros, ok := cutLast(text, ":")
		if !ok || len(text) != len(form) || text[len(text)-2:] != " Z" {
			return time.Time{}, false
		}
		parsed, err := time.Parse(layout+".000000", seconds+"."+micros[:len(micros)-2])
		return parsed, err == nil
	}
	compared := 0
	for _, text := range []string{
		"2026-01-02 03:04:05:000006 Z", "2024-02-29 23:59:59:999999 Z", "2026-02-29 00:00:00:000000 Z", "2026-04-31 12:00:00:000000 Z",
		"0001-01-01 00:00:00:000000 Z", "9999-12-31 23:59:59:999999 Z", "0000-00-00 00:00:00:000000 Z", "2026-13-01 24:60:60:000000 Z", "", "x",
	} {
		texts := []string{text, text + "0"}
		for i := range len(text) {
			for _, c := range []byte("0129:- Zx\xff") {
				texts = append(texts, text[:i]+string([]byte{c})+text[i+1:])
			}
		}
		for _, each := range texts {
			want, valid := slow(each)
			got, ok := parseFast(each)
			written := valid && FormatTime(want) == each // the other one takes some more, such as a space for a digit
			if ok && (!valid || !got.Equal(want)) || written && !ok {
				t.Errorf("%q is %v, %t; package time says %v, %t", each, got, ok, want, valid)
			}
			compared++
		}
	}
	if compared < 2000 {
		t.Errorf("%d texts were compared", compared)
	}
}

func BenchmarkParseTime(b *testing.B) {
	text := FormatTime(time.Now())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseTime(text); err != nil {
			b.Fatal(err)
		}
	}
}
