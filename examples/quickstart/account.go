package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// account observes the endpoints, records the outcome of every attempt, and knows when no
// message is left. One account serves all endpoints.
type account struct {
	out    io.Writer
	colour bool
	start  time.Time

	// settled is called when every order, and every message that was sent because of it,
	// has ended.
	settled context.CancelFunc

	mu       sync.Mutex
	open     int // messages that have not ended
	messages map[string]*message
}

// message is the account's record of one message.
type message struct {
	id, endpoint string
	conversation string // the id of the order that began it
	place        int    // among those of all endpoints, in the order of their first attempts

	attempts, rounds, deferrals int
	outcome                     outcome
}

// outcome is the outcome of a message's latest attempt.
type outcome struct {
	text  string
	style style
	final bool
}

var handled = outcome{"handled", green, true}

// observer returns the account's observer of every attempt, and of the decision about
// each failed one.
func (a *account) observer() core.Observer {
	return core.Observer{HandleStart: a.handleStart, HandleEnd: a.handleEnd, Recovered: a.recovered}
}

func newAccount(out io.Writer, colour bool, orders int) *account {
	return &account{
		out: out, colour: colour, start: time.Now(),
		settled: func() {}, open: orders, messages: map[string]*message{},
	}
}

// messageKey is the context key by which handleEnd finds handleStart's message.
type messageKey struct{}

// handleStart is called before every attempt.
func (a *account) handleStart(ctx context.Context, e core.Handling) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.messages[e.Message.ID]
	if m == nil {
		m = &message{
			id: e.Message.ID, endpoint: e.Endpoint, place: len(a.messages),
			conversation: e.Message.Headers.Get(headers.ConversationID),
		}
		a.messages[m.id] = m
	}
	m.attempts++
	m.rounds = e.Message.DelayedRetries
	return context.WithValue(ctx, messageKey{}, m)
}

// handleEnd is called after every attempt. recovered deals with errors, since it knows
// the decision. Without an error the handler has succeeded, and its sends are about to
// leave, together with the settlement of its message.
func (a *account) handleEnd(ctx context.Context, e core.Handling) {
	m, ok := ctx.Value(messageKey{}).(*message)
	if !ok || e.Err != nil {
		return
	}
	var sent []string
	for _, out := range messagekit.Collected(e.Message) {
		if out.Topic != "" {
			sent = append(sent, "publishes "+out.ID)
		} else {
			sent = append(sent, "sends "+out.ID)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// An event becomes one message for each subscriber; here it has one.
	a.open += len(sent)
	a.line(time.Now(), m.endpoint, m.id, e.Message.DelayedRetries, e.Message.Attempt, handled, strings.Join(sent, ", "))
	a.note(m, handled)
}

// recovered is called with the decision about a failed attempt, on a separate goroutine.
// By the time it runs, the next attempt may have begun, or even ended.
func (a *account) recovered(_ context.Context, e core.Recovery) {
	o, why := decided(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.messages[e.Failure.Message.ID]
	if m == nil {
		return // refused before any attempt, which does not happen in this flow
	}
	if e.Action.Kind == core.ActionDefer {
		m.deferrals++
	}
	a.line(e.Failure.FailedAt, e.Endpoint, e.Failure.Message.ID, e.Failure.DelayedDeliveriesPerformed, e.Failure.ImmediateProcessingFailures, o, why)
	a.note(m, o)
}

// decided describes the decision about a failed attempt, and its reason.
func decided(e core.Recovery) (o outcome, why string) {
	why = e.Failure.Err.Error()
	switch e.Action.Kind {
	case core.ActionDefer:
		return outcome{fmt.Sprintf("deferred for %v", e.Action.Delay), blue, false}, why
	case core.ActionImmediateRetry:
		return outcome{"retry at once", yellow, false}, why
	case core.ActionDelayedRetry:
		return outcome{fmt.Sprintf("retry in %v", e.Action.Delay), yellow, false}, why
	case core.ActionDiscard:
		return outcome{"discarded", grey, true}, why
	default:
		return outcome{"to the error queue", red, true}, why
	}
}

// note records the outcome. It is called with mu held.
func (a *account) note(m *message, o outcome) {
	if m.outcome.final {
		return
	}
	m.outcome = o
	if !o.final {
		return
	}
	if a.open--; a.open == 0 {
		a.settled()
	}
}

// begin announces the run.
func (a *account) begin() {
	fmt.Fprintln(a.out, a.paint(bold, "The shop places these orders"))
	fmt.Fprintln(a.out)
	for _, order := range placedOrders {
		fmt.Fprintf(a.out, "  %s  %s\n", order.id, order.story)
	}
	fmt.Fprint(a.out, `
Handlers return errors, no more. The endpoints are configured to try a failed
message again at once, and to do both again after 1 s and after 2 s more, which
is 6 attempts in the rounds 0, 1 and 2. Then it goes to the error queue.
`)
	fmt.Fprintf(a.out, "\n%s\n\n", a.paint(bold, "The handler's result at every attempt"))
	fmt.Fprintln(a.out, a.paint(grey, fmt.Sprintf("  %5s  %-8s  %-11s  %5s  %7s  %-18s  %s",
		"time", "endpoint", "message", "round", "attempt", "outcome", "why, or what follows")))
}

// line writes one attempt. It is called with mu held.
func (a *account) line(at time.Time, endpoint, id string, round, attempt int, o outcome, why string) {
	text := fmt.Sprintf("  %4.2fs  %-8s  %-11s  %5d  %7d  %s  %s", at.Sub(a.start).Seconds(), endpoint, id,
		round, attempt, a.paint(o.style, fmt.Sprintf("%-18s", o.text)), why)
	fmt.Fprintln(a.out, strings.TrimRight(text, " "))
}

// style is the number of a terminal's text style.
type style int

const (
	bold   style = 1
	red    style = 31
	green  style = 32
	yellow style = 33
	blue   style = 34
	grey   style = 90
)

func (a *account) paint(s style, text string) string {
	if !a.colour {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", s, text)
}
