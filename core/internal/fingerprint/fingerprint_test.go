package fingerprint

import (
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

var write = flag.Bool("write", false, "write the fingerprints of testdata/causes.txt")

const causes = "testdata/causes.txt"

// TestOf_RealErrors also keeps the fingerprints: a change of them needs another version.
func TestOf_RealErrors(t *testing.T) {
	table, err := os.ReadFile(causes)
	if err != nil {
		t.Fatal(err)
	}
	paragraphs := strings.Split(strings.TrimSpace(string(table)), "\n\n")
	known, texts := map[string]string{}, 0
	for i, paragraph := range paragraphs[1:] {
		lines := strings.Split(paragraph, "\n")
		var first string
		for n, line := range lines[1:] {
			errorType, text, ok := strings.Cut(line, " | ")
			if !ok {
				t.Fatalf("no type: %q", line)
			}
			text = strings.ReplaceAll(text, `\n`, "\n")
			texts++
			got := Of(errorType, text, "")
			if n == 0 {
				first = got
			}
			if got != first {
				t.Errorf("another cause than the first of its paragraph: %s\n%s", line, appendNormal(nil, text))
			}
			if !*write && got != lines[0] {
				t.Errorf("%s is %s, want %s\n%s", line, got, lines[0], appendNormal(nil, text))
			}
		}
		if other, ok := known[first]; ok {
			t.Errorf("one cause:\n%s\n%s", other, lines[1])
		}
		known[first] = lines[1]
		lines[0] = first
		paragraphs[i+1] = strings.Join(lines, "\n")
	}
	if texts < 60 {
		t.Errorf("%d texts", texts)
	}
	if *write {
		if err := os.WriteFile(causes, []byte(strings.Join(paragraphs, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOf_TypeFunctionAndForm(t *testing.T) {
	const text = "panic: oh no"
	got := Of("*a.Error", text, "a.f")
	if len(got) != 14 || !strings.HasPrefix(got, "1:") || strings.Trim(got[2:], "0123456789abcdef") != "" {
		t.Errorf("%q", got)
	}
	for _, other := range []string{Of("*b.Error", text, "a.f"), Of("*a.Error", text, "a.g"), Of("*a.Error", text, ""), Of("*a.Errora", "f"+text, ".f")} {
		if other == got {
			t.Errorf("another failure has the same cause %s", got)
		}
	}
}

func TestOf_LongText(t *testing.T) {
	for _, part := range []string{"x", "1", `"`, "'", "a.", "1.", "a1", "[:", "/", "://", "a@", "status ", "# ", "-1,", "\xe6\xb3\xa8", "aA1+", "00000000-", ":"} {
		long := strings.Repeat(part, 1<<20/len(part))
		if got := Of(long, long, long); len(got) != 14 {
			t.Errorf("%q: %s", part, got)
		}
	}
}

func FuzzOf(f *testing.F) {
	table, err := os.ReadFile(causes)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.SplitSeq(string(table), "\n") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Of("*a.Error", text, "")
		if len(got) != 14 || !utf8.ValidString(got) || got != Of("*a.Error", text, "") {
			t.Errorf("%q is %q", text, got)
		}
		normal := string(appendNormal(nil, text))
		if len(normal) > len(text) {
			t.Errorf("%q is longer than before: %q", text, normal)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	const usual = "save order 4711: failed to connect to `user=app database=orders`: 10.0.0.1:5432 (db.internal): dial error: dial tcp 10.0.0.1:5432: connect: connection refused"
	for _, each := range []struct{ name, text string }{
		{"usual", usual}, {"long", strings.Repeat(usual+" ", 20)}, {"words", strings.Repeat("status code error ", 200)}, {"quotes", strings.Repeat(`"'`+"`a ", 500)}, {"ids", strings.Repeat("a1b2c3d4-", 300)},
	} {
		b.Run(each.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Of("*net.OpError", each.text, "")
			}
		})
	}
}
