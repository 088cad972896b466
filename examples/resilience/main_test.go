package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the figures into docs/resilience.md")

const (
	page   = "../../docs/resilience.md"
	marker = "<!-- figures: TestFigures of examples/resilience -->\n"
)

// The documentation shows what a run in virtual time gives. Jitter lets some figures differ from
// run to run, by less than a tenth.
func TestFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of messages: not in short runs")
	}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		if err := compare(t.Context(), &out, clock{minute: time.Minute}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), marker)
	if !found {
		t.Fatalf("%s has no line %q", page, marker)
	}
	after = strings.TrimLeft(after, "\n")
	end := strings.Index(after, "\n\n")
	if *update {
		if !strings.HasPrefix(after, "|") {
			after, end = "\n\n"+after, 0
		}
		if err := os.WriteFile(page, []byte(before+marker+"\n"+strings.TrimSuffix(out.String(), "\n")+after[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	shown, got := strings.Split(after[:end], "\n"), strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(shown) != len(got) {
		t.Fatalf("%s shows\n%s\nwant\n%s", page, after[:end], out.String())
	}
	for i := range got {
		if !alike(shown[i], got[i]) {
			t.Errorf("%s shows\n%s\nthe run had\n%s\n(go test -update writes them)", page, shown[i], got[i])
		}
	}
}

// alike compares two rows, numbers with a tolerance.
func alike(a, b string) bool {
	as, bs := strings.Split(a, "|"), strings.Split(b, "|")
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		x, errX := strconv.ParseFloat(strings.TrimSpace(as[i]), 64)
		y, errY := strconv.ParseFloat(strings.TrimSpace(bs[i]), 64)
		switch {
		case errX != nil || errY != nil:
			if as[i] != bs[i] {
				return false
			}
		case math.Abs(x-y) > 10+0.1*max(x, y):
			return false
		}
	}
	return true
}

// What the page says in words is in the figures.
func TestWays(t *testing.T) {
	results := map[string]result{}
	synctest.Test(t, func(t *testing.T) {
		for _, w := range ways {
			r, err := run(t.Context(), w, clock{minute: time.Minute}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			results[w.name] = r
		}
	})
	if r := results["circuit breaker"]; r.calls > 50 || r.failed > 0 || r.longest > 10 {
		t.Errorf("circuit breaker: %+v", r)
	}
	if r := results["delayed retries, the defaults"]; r.failed < 500 || r.maxTries != 24 {
		t.Errorf("defaults: %+v", r)
	}
	if r := results["delayed retries that last"]; r.failed > 0 || r.longest > 1 {
		t.Errorf("lasting: %+v", r)
	}
	if r := results["retries in the handler"]; r.maxTries != 96 || r.longest < 10 {
		t.Errorf("retries in the handler: %+v", r)
	}
	if r := results["rate limiting"]; r.failed > 0 || r.longest < 60 || r.retries > 20 {
		t.Errorf("rate limiting: %+v", r)
	}
}

func TestCompare_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		err := compare(ctx, io.Discard, clock{minute: time.Minute}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	})
}
