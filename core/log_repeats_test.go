package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// failMany sends n messages, which fail once with an error of cause and are handled then.
func failMany(fx *fixture, c core.Config, n int, cause func(id string) error) {
	fx.Helper()
	c.Recoverability = immediateRetries(1)
	fx.runOrders(c, func(_ context.Context, m *core.Message) error {
		if m.Attempt == 1 {
			return cause(m.ID)
		}
		return nil
	})
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("m", i)
	}
	fx.enqueue(ids...)
	fx.advance(time.Second)
}

func refusedConnection(id string) error {
	return fmt.Errorf("charge order %s: dial tcp 10.0.0.1:443: connection refused", id)
}

func TestLogRepeats_LeavesLinesOfOneCauseOut(t *testing.T) {
	bubble(t, func(fx *fixture) {
		failMany(fx, core.Config{LogRepeats: 3}, 10, refusedConnection)
		if got := len(fx.logs.find("Immediate Retry")); got != 3 {
			fx.Errorf("%d lines about retries, want 3", got)
		}
		if got := fx.logs.find("left out"); len(got) > 0 {
			fx.Errorf("told of lines that were left out before the 10 s are over: %v", got)
		}
		fx.advance(10 * time.Second)
		lines := fx.logs.find("left out")
		if len(lines) != 1 {
			fx.Fatalf("%d lines tell of those that were left out, want 1", len(lines))
		}
		attrs := lines[0].attrs
		if attrs["attempts"] != int64(7) || attrs["message_type"] != "order" || attrs["logger"] != "reprise.ImmediateRetry" || !strings.Contains(fmt.Sprint(attrs["error"]), "connection refused") {
			fx.Errorf("the line has %v, want 7 attempts of order with their error", attrs)
		}
	})
}

// After 10 s lines are written again.
func TestLogRepeats_BeginsAnew(t *testing.T) {
	bubble(t, func(fx *fixture) {
		failMany(fx, core.Config{LogRepeats: 3}, 10, refusedConnection)
		fx.advance(10 * time.Second)
		fx.enqueue("later")
		fx.advance(time.Second)
		if got := len(fx.logs.find("Immediate Retry is going to retry message 'later'")); got != 1 {
			fx.Errorf("%d lines about a retry after the 10 s, want 1", got)
		}
	})
}

func TestLogRepeats_TellsAtTheEndOfRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.Cleanup(func() {
			if got := len(fx.logs.find("left out")); got != 1 {
				fx.Errorf("%d lines tell of those that were left out, want 1", got)
			}
		})
		failMany(fx, core.Config{LogRepeats: 3}, 10, refusedConnection)
	})
}

// A rare failure is not lost among those of another cause.
func TestLogRepeats_CausesDiffer(t *testing.T) {
	bubble(t, func(fx *fixture) {
		failMany(fx, core.Config{LogRepeats: 1}, 10, func(id string) error {
			if id == "m9" {
				return errors.New("no such customer")
			}
			return refusedConnection(id)
		})
		var texts []string
		for _, line := range fx.logs.find("Immediate Retry") {
			texts = append(texts, fmt.Sprint(line.attrs["error"]))
		}
		if len(texts) != 2 || !strings.Contains(strings.Join(texts, "\n"), "no such customer") {
			fx.Errorf("lines about %q, want one of each cause", texts)
		}
	})
}

func TestLogRepeats_LinesThatAreAlwaysWritten(t *testing.T) {
	const n = 10
	for name, c := range map[string]struct {
		config core.Config
		err    error
		text   string
		want   int
	}{
		"moves":     {core.Config{LogRepeats: 1, Recoverability: noRetries}, errBoom, "Moving message", n},
		"discards":  {core.Config{LogRepeats: 1, Recoverability: noRetries}, core.Discard("old"), "Discarding message", n},
		"all":       {core.Config{LogRepeats: core.Off, Recoverability: immediateRetries(1)}, errBoom, "Immediate Retry", n},
		"delays":    {core.Config{LogRepeats: 2, Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1}}}, errBoom, "Delayed Retry", 2},
		"deferrals": {core.Config{LogRepeats: 2, Recoverability: core.Recoverability{RequeueDelay: time.Hour}}, core.Defer(0), "Deferring message", 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				fx.runOrders(c.config, func(context.Context, *core.Message) error { return c.err })
				for i := range n {
					fx.enqueue(fmt.Sprint("m", i))
				}
				fx.advance(time.Second)
				if got := len(fx.logs.find(c.text)); got != c.want {
					fx.Errorf("%d lines with %q, want %d", got, c.text, c.want)
				}
			})
		})
	}
}
