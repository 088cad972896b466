package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// report writes the outcome of every message, and the contents of the queues. It is
// called when the endpoints have stopped.
func (a *account) report(ctx context.Context, t *inmemory.Transport) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table()
	failed, err := t.Browse(ctx, queues.Request{Queue: "error", Limit: 1000})
	if err != nil && !errors.Is(err, core.ErrQueueNotFound) { // interrupted before an endpoint created it
		return err
	}
	a.errorQueue(failed.Messages)
	return a.leftOver(ctx, t)
}

// table writes a line for every message, grouped by order.
func (a *account) table() {
	messages := slices.SortedFunc(maps.Values(a.messages), func(x, y *message) int {
		return cmp.Or(cmp.Compare(x.conversation, y.conversation), cmp.Compare(x.place, y.place))
	})
	fmt.Fprintf(a.out, "\n%s\n\n", a.paint(bold, "The outcome of every message"))
	fmt.Fprintln(a.out, a.paint(grey, fmt.Sprintf("  %-11s  %-8s  %8s  %14s  %8s  %s",
		"message", "endpoint", "attempts", "delayed rounds", "deferred", "outcome")))
	attempts := 0
	for _, m := range messages {
		attempts += m.attempts
		o := m.outcome
		if o.text == "" {
			o.text = "not finished"
		}
		fmt.Fprintf(a.out, "  %-11s  %-8s  %8d  %14s  %8s  %s\n", m.id, m.endpoint, m.attempts,
			orDash(m.rounds), orDash(m.deferrals), a.paint(o.style, o.text))
	}
	fmt.Fprintf(a.out, "\n  %d messages, %d attempts, %.1f s\n", len(messages), attempts, time.Since(a.start).Seconds())
}

// orDash writes a dash for an empty value.
func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// errorQueue writes the failed messages with the most informative headers of the failure,
// without those of the stack trace, machine and host.
func (a *account) errorQueue(failed []queues.Message) {
	if len(failed) == 0 {
		return
	}
	slices.SortFunc(failed, func(x, y queues.Message) int { return cmp.Compare(x.ID, y.ID) })
	fmt.Fprintf(a.out, "\n%s\n", a.paint(bold, "The messages in the error queue"))
	for _, in := range failed {
		fmt.Fprintf(a.out, "\n  %s  %s\n", a.paint(red, in.ID), in.Body)
		for _, key := range []string{
			headers.FailedQ,
			headers.TimeOfFailure,
			headers.ExceptionType,
			headers.ExceptionMessage,
		} {
			a.header(key, in.Headers.Get(key))
		}
		a.header(headers.Attempts, rounds(in.Headers)...)
	}
}

func (a *account) header(key string, lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(a.out, "    %s  %s\n", a.paint(grey, fmt.Sprintf("%-39s", key)), line)
		key = ""
	}
}

// rounds makes a line of every round of attempts at a failed message.
func rounds(h core.Headers) []string {
	var lines []string
	for _, r := range headers.ParseAttempts(h.Get(headers.Attempts)) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d failed, %s %s", r.Attempts, r.Action, r.Delay)))
	}
	return lines
}

// leftOver writes the messages in the endpoints' queues: none, unless the run was
// interrupted. A durable transport would deliver them after the next start.
func (a *account) leftOver(ctx context.Context, t *inmemory.Transport) error {
	names, err := t.ListQueues(ctx)
	if err != nil {
		return err
	}
	var left []string
	for _, queue := range names {
		depth, err := t.Depth(ctx, queue)
		if err != nil {
			return err
		}
		if queue != "error" && depth.Ready+depth.Delayed > 0 {
			left = append(left, fmt.Sprintf("  %-8s  %d ready, %d delayed", queue, depth.Ready, depth.Delayed))
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(a.out, "\n%s\n\n%s\n", a.paint(bold, "Interrupted. The messages in the queues"), strings.Join(left, "\n"))
	}
	return nil
}
