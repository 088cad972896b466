package logformat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const (
	window  = 10 * time.Second
	leftOut = "their log lines were left out"
)

// buffer has lines that several goroutines write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns the lines since the last call.
func (b *buffer) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func count(lines []string, text string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// retry is a line about a retry.
type retry struct {
	logger, endpoint, instance, messageType, handler string
	level                                            slog.Level
	err                                              any
}

// aRetry returns the line that most tests write.
func aRetry() retry {
	return retry{"reprise.ImmediateRetry", "orders", "one", "order", "ship", slog.LevelWarn, errors.New("down")}
}

func (l retry) write(to slog.Handler) {
	slog.New(to).With("logger", l.logger, "endpoint", l.endpoint, "instance", l.instance).
		Log(context.Background(), l.level, "retrying", "message_type", l.messageType, "handler", l.handler, "error", l.err)
}

func TestFoldRepeats_CountsLinesBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 2)
		const format = "2006-01-02T15:04:05.000Z07:00"
		first, last := time.Now().Add(2*time.Second).Format(format), time.Now().Add(4*time.Second).Format(format)
		for i := range 5 {
			l := aRetry()
			l.err = fmt.Errorf("order %d is away", i)
			l.write(folder)
			time.Sleep(time.Second)
		}
		if lines := log.take(); len(lines) != 2 || count(lines, "msg=retrying") != 2 {
			t.Errorf("wrote %q, want 2 lines about retries", lines)
		}
		time.Sleep(window - 6*time.Second)
		if lines := log.take(); lines != nil {
			t.Errorf("wrote before the end of the window: %q", lines)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		lines := log.take()
		if len(lines) != 1 {
			t.Fatalf("wrote at the end of the window: %q, want one line", lines)
		}
		for _, want := range []string{
			"level=WARN", leftOut, "logger=reprise.ImmediateRetry", "endpoint=orders", "instance=one", "attempts=3",
			"since=" + first, "until=" + last, "message_type=order", "handler=ship", `error="order 4 is away"`,
		} {
			if !strings.Contains(lines[0], want) {
				t.Errorf("the line has no %s: %s", want, lines[0])
			}
		}
		aRetry().write(folder)
		if lines := log.take(); len(lines) != 1 {
			t.Errorf("wrote %q in the next window, want the line", lines)
		}
	})
}

func TestFoldRepeats_WindowEndsWithoutOmittedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
		for range 3 {
			aRetry().write(folder)
			if lines := log.take(); len(lines) != 1 {
				t.Errorf("wrote %q, want the first line of the window", lines)
			}
			time.Sleep(window)
		}
		folder.Flush()
		if lines := log.take(); lines != nil {
			t.Errorf("wrote %q, although no line was omitted", lines)
		}
	})
}

type panicking struct{ text string }

func (p *panicking) Error() string { return p.text }

func TestFoldRepeats_DistinguishesCauses(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	for name, test := range map[string]struct {
		first  any
		change func(l *retry)
		want   bool // written
	}{
		"the same line":                    {nil, func(*retry) {}, false},
		"another number in the error":      {nil, func(l *retry) { l.err = errors.New("order 8 is locked by host-17") }, false},
		"another word in the error":        {nil, func(l *retry) { l.err = errors.New("order 7 is unknown to host-3") }, true},
		"two words that are one":           {nil, func(l *retry) { l.err = errors.New("order 7 is lockedby host-3") }, true},
		"a space at the end":               {nil, func(l *retry) { l.err = errors.New("order 7 is locked by host-3 ") }, false},
		"the error as text":                {nil, func(l *retry) { l.err = "order 7 is locked by host-3" }, false},
		"a long error, the 1,024th byte":   {errors.New(long[1:] + "a"), func(l *retry) { l.err = errors.New(long[1:] + "b") }, true},
		"a long error, after 1,024 bytes":  {errors.New(long + "a"), func(l *retry) { l.err = errors.New(long + "b") }, false},
		"another message type":             {nil, func(l *retry) { l.messageType = "invoice" }, true},
		"another handler":                  {nil, func(l *retry) { l.handler = "bill" }, true},
		"another action":                   {nil, func(l *retry) { l.logger = "reprise.DelayedRetry" }, true},
		"another endpoint":                 {nil, func(l *retry) { l.endpoint = "billing" }, true},
		"another instance":                 {nil, func(l *retry) { l.instance = "two" }, true},
		"another level":                    {nil, func(l *retry) { l.level = slog.LevelError }, false},
		"an error whose text panics":       {nil, func(l *retry) { l.err = (*panicking)(nil) }, true},
		"a line of another logger":         {nil, func(l *retry) { l.logger = "reprise.MoveToError" }, true},
		"a line of an application":         {nil, func(l *retry) { l.logger = "" }, true},
		"two errors without a common word": {errors.New("7"), func(l *retry) { l.err = errors.New("8") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log buffer
			folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
			defer folder.Flush()
			l := aRetry()
			l.err = errors.New("order 7 is locked by host-3")
			if test.first != nil {
				l.err = test.first
			}
			l.write(folder)
			log.take()
			test.change(&l)
			l.write(folder)
			if got := len(log.take()) == 1; got != test.want {
				t.Errorf("the second line was written: %t, want %t", got, test.want)
			}
		})
	}
}

// Attributes and groups of an outer handler change nothing.
func TestFoldRepeats_FindsAttributesWhereverTheyAre(t *testing.T) {
	for name, logger := range map[string]func(slog.Handler) *slog.Logger{
		"of the logger": func(h slog.Handler) *slog.Logger { return slog.New(h).With("logger", "reprise.Defer") },
		"of the logger, in a group": func(h slog.Handler) *slog.Logger {
			return slog.New(h).With("a", 1).WithGroup("g").With("logger", "reprise.Defer").WithGroup("")
		},
		"of the logger, around a group": func(h slog.Handler) *slog.Logger {
			return slog.New(h).With("logger", "reprise.Defer").WithGroup("g")
		},
		"of the line": func(h slog.Handler) *slog.Logger {
			return slog.New(inLines{Handler: h}).With("logger", "reprise.Defer")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log buffer
			folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
			for range 3 {
				logger(folder).Info("deferring", "error", errors.New("not yet"))
			}
			folder.Flush()
			lines := log.take()
			if len(lines) != 2 || count(lines, leftOut) != 1 || count(lines, "attempts=2") != 1 {
				t.Errorf("wrote %q, want a line and one that counts two others", lines)
			}
			if inGroup := count(lines, "g.attempts=2 "); inGroup != count([]string{name}, "group") {
				t.Errorf("the count is in the group: %d", inGroup)
			}
		})
	}
}

// inLines adds a logger's attributes to its lines, as some handlers do.
type inLines struct {
	slog.Handler

	attrs []slog.Attr
}

func (h inLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return inLines{h.Handler, append(slices.Clip(h.attrs), attrs...)}
}

func (h inLines) Handle(ctx context.Context, r slog.Record) error {
	r.AddAttrs(h.attrs...)
	return h.Handler.Handle(ctx, r)
}

func TestFoldRepeats_MemoryIsBounded(t *testing.T) {
	const causes = 1000
	var log buffer
	folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
	l := aRetry()
	for i := range causes + 10 {
		l.messageType = fmt.Sprint("type ", i)
		l.write(folder)
	}
	if lines := log.take(); len(lines) != causes+1 {
		t.Errorf("%d lines were written, want one for each of %d causes and one for all others", len(lines), causes)
	}
	l.endpoint = "billing"
	l.write(folder)
	l.write(folder)
	if lines := log.take(); len(lines) != 1 {
		t.Errorf("wrote %q about another endpoint, want one line", lines)
	}
	folder.Flush()
	lines := log.take()
	if len(lines) != 2 || count(lines, "endpoint=orders instance=one attempts=9 ") != 1 || count(lines, "endpoint=billing instance=one attempts=1 ") != 1 || count(lines, "message_type") > 0 {
		t.Errorf("wrote %q, want one line about the others of each endpoint", lines)
	}
}

// A line whose time is after the end of the window does not lose the count, although the clock
// or the timer is late.
func TestFoldRepeats_WindowLastsUntilItsCountIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
		h := folder.WithAttrs([]slog.Attr{slog.String("logger", "reprise.Defer")})
		for _, after := range []time.Duration{0, 0, 2 * window} {
			if err := h.Handle(t.Context(), slog.NewRecord(time.Now().Add(after), slog.LevelInfo, "deferring", 0)); err != nil {
				t.Error(err)
			}
		}
		folder.Flush()
		if lines := log.take(); len(lines) != 2 || count(lines, "attempts=2") != 1 {
			t.Errorf("wrote %q, want a line and one that counts two others", lines)
		}
	})
}

func TestFlush_StopsTheTimerOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 1)
		for range 2 {
			aRetry().write(folder)
			aRetry().write(folder)
			time.Sleep(window / 2)
			log.take()
			folder.Flush()
			if lines := log.take(); count(lines, leftOut) != 1 {
				t.Errorf("wrote %q at Flush, want the count: was it written before, by the timer of an earlier window?", lines)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestFlush_BeginsANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		folder := logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 0) // as 1
		for range 2 {
			aRetry().write(folder)
			aRetry().write(folder)
			folder.Flush()
			if lines := log.take(); len(lines) != 2 || count(lines, leftOut) != 1 {
				t.Errorf("wrote %q, want a line and the one that counts another", lines)
			}
			folder.Flush()
			time.Sleep(time.Minute)
			if lines := log.take(); lines != nil {
				t.Errorf("wrote again: %q", lines)
			}
		}
	})
}

func TestFoldRepeats_LevelIsThatOfTheNextHandler(t *testing.T) {
	var log buffer
	h := logformat.FoldRepeats(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}), 1)
	if h.Enabled(t.Context(), slog.LevelInfo) || !h.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("Info is enabled, or Warn is not")
	}
}

// runOrders runs an endpoint whose handler gets n messages, for a minute.
func runOrders(t *testing.T, c core.Config, n int, handler core.HandlerFunc) {
	t.Helper()
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	ep, err := core.New("orders", transport, c)
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error { return handler(ctx, m) })
	if err := ep.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := ep.Send(t.Context(), "orders", orderType.Of([]byte(nil)).With(core.SendOptions{ID: fmt.Sprint("m", i)})); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := ep.Run(ctx); err != nil {
		t.Error(err)
	}
}

var noRetries = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}

// An endpoint's lines about retries and deferrals are folded; no moved or discarded message is
// left out.
func TestFoldRepeats_OfAnEndpoint(t *testing.T) {
	const n = 10
	down := func(id string) error {
		return fmt.Errorf("charge order %s: dial tcp 10.0.0.1:443: connection refused", id)
	}
	for name, test := range map[string]struct {
		recover core.Recoverability
		fail    func(m *core.Message) error
		text    string
		want    int // lines
		folded  int // lines that count others
	}{
		"immediate retries": {core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}}, func(m *core.Message) error {
			if m.Attempt == 1 {
				return down(m.ID)
			}
			return nil
		}, "retrying message immediately", 3, 1},
		"two causes": {core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}}, func(m *core.Message) error {
			if m.Attempt > 1 {
				return nil
			}
			if m.ID == "m9" {
				return errors.New("no such customer")
			}
			return down(m.ID)
		}, "retrying message immediately", 4, 1},
		"delayed retries": {core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}, func(m *core.Message) error {
			if m.DelayedRetries == 0 {
				return down(m.ID)
			}
			return nil
		}, "retrying message after a delay", 3, 1},
		"deferrals": {noRetries, func(m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(down(m.ID), time.Second)
			}
			return nil
		}, "deferring message", 3, 1},
		"moves":    {noRetries, func(m *core.Message) error { return down(m.ID) }, "moving message to the error queue", n, 0},
		"discards": {noRetries, func(m *core.Message) error { return core.Discard(down(m.ID)) }, "discarding message", n, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log buffer
				c := core.Config{Recoverability: test.recover, Logger: slog.New(logformat.FoldRepeats(slog.NewTextHandler(&log, nil), 3))}
				runOrders(t, c, n, func(_ context.Context, m *core.Message) error { return test.fail(m) })
				lines := log.take()
				if got := count(lines, test.text); got != test.want {
					t.Errorf("%d lines with %q, want %d", got, test.text, test.want)
				}
				if got := count(lines, leftOut); got != test.folded {
					t.Errorf("%d lines count others, want %d:\n%s", got, test.folded, strings.Join(lines, "\n"))
				}
			})
		})
	}
}
