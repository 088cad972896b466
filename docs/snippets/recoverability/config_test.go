// Package recoverability_test holds the code of docs/recoverability.md.
package recoverability_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: set
var patient = core.Recoverability{
	Immediate: core.Immediate{NumberOfRetries: 2},
	Delayed:   core.Delayed{NumberOfRetries: 5, TimeIncrease: time.Minute}, // 1, 2, 3, 4, 5 minutes
}

// end

// snippet: off
var noRetries = core.Recoverability{
	Immediate: core.Immediate{NumberOfRetries: core.Off},
	Delayed:   core.Delayed{NumberOfRetries: core.Off},
}

// end

// snippet: backoff
var exponential = core.Recoverability{
	Delayed: core.Delayed{
		NumberOfRetries: 8,
		TimeIncrease:    5 * time.Second,
		Factor:          3,                // 5 s, 15 s, 45 s, ...
		MaxDelay:        10 * time.Minute, // and never more
		Jitter:          0.2,              // each up to 20 % longer
	},
}

// end

// snippet: delays
var listed = core.Recoverability{
	Delayed: core.Delayed{Delays: []time.Duration{10 * time.Second, time.Minute, time.Hour}},
}

// end

// snippet: types
var perType = core.Recoverability{
	Delayed: core.Delayed{NumberOfRetries: 10, TimeIncrease: time.Minute}, // 1, 2, 3, ... 10 minutes
	MessageTypes: map[string]core.TypeRecoverability{
		"orders.ship":   {Delayed: core.Delayed{MaxDelay: 5 * time.Minute}}, // 1, 2, 3, 4, 5, 5, ... minutes
		"prices.update": {Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		"reports.make":  {HandlerTimeout: time.Hour, ErrorQueue: "failed-reports"},
	},
}

// end

// snippet: age
var bounded = core.Recoverability{
	Delayed:     core.Delayed{NumberOfRetries: 40, TimeIncrease: 10 * time.Minute},
	MaxRetryAge: 24 * time.Hour, // in JSON "24h"
}

// end

// snippet: unrecoverable
var unrecoverableToo = core.Recoverability{
	Unrecoverable: []error{sql.ErrNoRows, core.ErrNoHandler, core.ErrorOfType[*strconv.NumError]()},
	Policy: func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
		if status, ok := errors.AsType[*StatusError](failure.Err); ok && status.Code == http.StatusUnprocessableEntity {
			return core.MoveToError(""), nil
		}
		return core.DefaultPolicy(ctx, config, failure)
	},
}

// end

// snippet: ratelimit
var rateLimited = core.Recoverability{
	RateLimit: core.RateLimit{
		ConsecutiveFailures: 100,
		TimeToWait:          5 * time.Second,
		Filter:              func(err error) bool { return errors.Is(err, ErrOutage) },
	},
}

// end

// snippet: limit
var limited = core.Recoverability{
	UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 100, Window: time.Hour},
}

// end

// snippet: dead-letters
var sorted = core.Recoverability{
	DeadLetterQueue:   "billing.dead",    // for core.GiveUpTo(err, core.DeadLetterQueue)
	InvalidQueue:      "billing.invalid", // the team of the web shop looks at it
	CustomErrorQueues: []string{"fraud"}, // for core.GiveUpTo(err, "fraud")
}

// end

// Each configuration of the guide is accepted by New.
var configurations = map[string]core.Recoverability{
	"more patience":         patient,
	"no retries":            noRetries,
	"exponential":           exponential,
	"listed":                listed,
	"per type":              perType,
	"age":                   bounded,
	"unrecoverable":         unrecoverableToo,
	"rate limit":            rateLimited,
	"limit":                 limited,
	"dead letters":          sorted,
	"policy: unrecoverable": unrecoverable,
	"policy: partial":       partial,
	"policy: full":          full,
}

var ErrOutage = errors.New("the database does not answer")

// StatusError is an answer other than 200.
type StatusError struct{ Code int }

func (e *StatusError) Error() string { return http.StatusText(e.Code) }

func TestConfigurations_AreAccepted(t *testing.T) {
	for name, c := range configurations {
		t.Run(name, func(t *testing.T) {
			if _, err := core.New("billing", inmemory.Open(), core.Config{Recoverability: c}); err != nil {
				t.Error(err)
			}
		})
	}
}

var quiet = slog.New(slog.DiscardHandler)

// roundsOf returns when each round of attempts at a message that always fails
// begins, and the number of attempts.
func roundsOf(t *testing.T, c core.Recoverability, messageType string) (rounds []time.Duration, attempts int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ep, err := core.New("billing", inmemory.Open(), core.Config{Recoverability: c, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		core.Handle(ep, core.NewMessageType[string](messageType), func(_ context.Context, m *core.Message, _ string) error {
			if m.Attempt == 1 {
				rounds = append(rounds, time.Since(start))
			}
			attempts++
			return errors.New("always")
		})
		coretest.Run(t, ep)
		if err := ep.Send(t.Context(), "billing", core.NewMessageType[string](messageType).Of("body")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Hour)
		synctest.Wait()
	})
	return rounds, attempts
}

func TestConfigurations_RetryAsDocumented(t *testing.T) {
	for _, c := range []struct {
		name, messageType string
		attempts          int
		rounds            string
	}{
		{"zero", "any", 24, "[0s 10s 30s 1m0s]"},
		{"more patience", "any", 18, "[0s 1m0s 3m0s 6m0s 10m0s 15m0s]"},
		{"no retries", "any", 1, "[0s]"},
		{"listed", "any", 24, "[0s 10s 1m10s 1h1m10s]"},
		{"per type", "orders.ship", 66, "[0s 1m0s 3m0s 6m0s 10m0s 15m0s 20m0s 25m0s 30m0s 35m0s 40m0s]"},
		{"per type", "prices.update", 1, "[0s]"},
		{"per type", "any", 66, "[0s 1m0s 3m0s 6m0s 10m0s 15m0s 21m0s 28m0s 36m0s 45m0s 55m0s]"},
		// The failure after 25 h 30 min is later than a day after the first.
		{"age", "any", 18 * 6, "[0s 10m0s 30m0s 1h0m0s 1h40m0s 2h30m0s 3h30m0s 4h40m0s 6h0m0s 7h30m0s 9h10m0s 11h0m0s 13h0m0s 15h10m0s 17h30m0s 20h0m0s 22h40m0s 25h30m0s]"},
	} {
		t.Run(c.name+" "+c.messageType, func(t *testing.T) {
			rounds, attempts := roundsOf(t, configurations[c.name], c.messageType)
			if got := fmt.Sprint(rounds); got != c.rounds || attempts != c.attempts {
				t.Errorf("%d attempts, rounds at %s; want %d, %s", attempts, got, c.attempts, c.rounds)
			}
		})
	}
	rounds, _ := roundsOf(t, configurations["exponential"], "any")
	for i, seconds := range []int{5, 15, 45, 135, 405, 600, 600, 600} {
		delay, minimum := rounds[i+1]-rounds[i], time.Duration(seconds)*time.Second
		if delay < minimum || delay > minimum+minimum/5 {
			t.Errorf("delay %d is %v; want %v and up to a fifth more", i+1, delay, minimum)
		}
	}
}

func TestAttempts_TableOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../recoverability.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(guide)) {
		var immediate, delayed, want int
		line = strings.ReplaceAll(line, "*", "")
		if n, _ := fmt.Sscanf(line, "| %d | %d | %d", &immediate, &delayed, &want); n != 3 {
			continue
		}
		rows++
		c := core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: cmp.Or(immediate, core.Off)},
			Delayed:   core.Delayed{NumberOfRetries: cmp.Or(delayed, core.Off)},
		}
		if _, attempts := roundsOf(t, c, "any"); attempts != want {
			t.Errorf("%d immediate, %d delayed: %d attempts; the guide says %d", immediate, delayed, attempts, want)
		}
	}
	if rows != 12 {
		t.Errorf("the guide's table has %d rows; want 12", rows)
	}
}
