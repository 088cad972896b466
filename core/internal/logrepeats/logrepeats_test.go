package logrepeats

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is written to by the limiter's timer.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns the lines since the last call.
func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// line returns a function for lines that are logged now with an error.
func newLine(to *buffer) func(err string) Line {
	logger := slog.New(slog.NewTextHandler(to, nil))
	return func(err string) Line {
		return Line{Logger: logger, Level: slog.LevelWarn, MessageType: "order", Handler: "ship", Err: errors.New(err), FailedAt: time.Now()}
	}
}

func TestAllows_CountsTheLinesBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		line, l := newLine(&log), &Limiter{Limit: 2}
		firstOmitted := time.Now().Add(2 * time.Second).Format("2006-01-02T15:04:05.000Z07:00")
		for i := range 5 {
			if got, want := l.Allows(line("down")), i < 2; got != want {
				t.Errorf("line %d is allowed: %t", i+1, got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(windowTime - 6*time.Second)
		if got := log.lines(); got != nil {
			t.Errorf("logged before the end of the window: %q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := log.lines()
		if len(got) != 1 {
			t.Fatalf("logged at the end of the window: %q, want one line", got)
		}
		for _, want := range []string{"level=WARN", "attempts=3", "since=" + firstOmitted, "message_type=order", "handler=ship", "error=down"} {
			if !strings.Contains(got[0], want) {
				t.Errorf("the line has no %s: %s", want, got[0])
			}
		}
		if !l.Allows(line("down")) {
			t.Error("the first line of the next window is not allowed")
		}
	})
}

func TestAllows_WindowEndsWithoutOmittedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		line, l := newLine(&log), &Limiter{Limit: 1}
		for range 3 {
			if !l.Allows(line("down")) {
				t.Error("the first line of a window is not allowed")
			}
			time.Sleep(windowTime)
		}
		if got := log.lines(); got != nil {
			t.Errorf("logged %q, although no line was omitted", got)
		}
	})
}

func TestAllows_DistinguishesCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log, other buffer
		line := newLine(&log)
		for name, test := range map[string]struct {
			change func(l *Line)
			want   bool // allowed
		}{
			"the same line":               {func(*Line) {}, false},
			"another number in the error": {func(l *Line) { l.Err = errors.New("order 8 is locked by host-17") }, false},
			"another word in the error":   {func(l *Line) { l.Err = errors.New("order 7 is unknown to host-3") }, true},
			"two words that are one":      {func(l *Line) { l.Err = errors.New("order 7 is lockedby host-3") }, true},
			"another message type":        {func(l *Line) { l.MessageType = "invoice" }, true},
			"another handler":             {func(l *Line) { l.Handler = "bill" }, true},
			"another action":              {func(l *Line) { l.Logger = newLine(&other)("").Logger }, true},
			"another level":               {func(l *Line) { l.Level = slog.LevelError }, false},
			"an error whose text panics":  {func(l *Line) { l.Err = (*panicking)(nil) }, true},
			"a space at the end":          {func(l *Line) { l.Err = errors.New("order 7 is locked by host-3 ") }, false},
		} {
			l := &Limiter{Limit: 1}
			first := line("order 7 is locked by host-3")
			l.Allows(first)
			test.change(&first)
			if got := l.Allows(first); got != test.want {
				t.Errorf("%s: allowed %t, want %t", name, got, test.want)
			}
			l.Flush()
		}
	})
}

type panicking struct{ text string }

func (p *panicking) Error() string { return p.text }

func TestHashErrorText_ReadsTheBeginning(t *testing.T) {
	long := strings.Repeat("x", maxHashedBytes)
	if hashErrorText(long+"a") != hashErrorText(long+"b") {
		t.Errorf("more than %d bytes distinguish causes", maxHashedBytes)
	}
	if hashErrorText(long[1:]+"a") == hashErrorText(long[1:]+"b") {
		t.Errorf("byte %d does not distinguish causes", maxHashedBytes)
	}
}

func TestAllows_CausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		line, l := newLine(&log), &Limiter{Limit: 1}
		allowed := 0
		for i := range maxCauses + 10 {
			each := line("down")
			each.MessageType = fmt.Sprint("type ", i)
			if l.Allows(each) {
				allowed++
			}
		}
		if allowed != maxCauses+1 {
			t.Errorf("%d lines are allowed, want one for each of %d causes and one for all others", allowed, maxCauses)
		}
		if got := len(l.causes); got != maxCauses+1 {
			t.Errorf("%d causes are remembered", got)
		}
		l.Flush()
	})
}

func TestFlush_BeginsANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		line, l := newLine(&log), &Limiter{Limit: 1}
		l.Allows(line("down"))
		l.Allows(line("down"))
		l.Flush()
		if got := log.lines(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
		if !l.Allows(line("down")) {
			t.Error("the first line after Flush is not allowed")
		}
		l.Flush()
		time.Sleep(time.Minute)
		if got := log.lines(); got != nil {
			t.Errorf("logged again: %q", got)
		}
		l.Allows(line("down"))
		l.Allows(line("down"))
		time.Sleep(windowTime)
		synctest.Wait()
		if got := log.lines(); len(got) != 1 {
			t.Errorf("logged at the end of a later window: %q, want one line", got)
		}
	})
}

func TestAllows_WithoutLimit(t *testing.T) {
	l := &Limiter{}
	for range 1000 {
		if !l.Allows(Line{}) {
			t.Fatal("a line is not allowed")
		}
	}
}
