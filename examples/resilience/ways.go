package main

import (
	"errors"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
)

// clock sets the length of a minute of the story.
type clock struct{ minute time.Duration }

func (c clock) minutes(n float64) time.Duration { return time.Duration(n * float64(c.minute)) }
func (c clock) seconds(n float64) time.Duration { return c.minutes(n / 60) }

// errUnavailable is the handler's error for the API's 503.
var errUnavailable = errors.New("the payment service is unavailable")

// way is a configuration of the endpoint.
type way struct {
	name   string
	config func(c clock, logger *slog.Logger) (core.Config, error)
}

var ways = []way{
	{"delayed retries, the defaults", defaults},
	{"delayed retries that last", lasting},
	{"retries in the handler", inHandler},
	{"circuit breaker", breaker},
	{"rate limiting", limited},
}

// The defaults, written in full: 5 immediate retries, then 3 more rounds.
func defaults(c clock, _ *slog.Logger) (core.Config, error) {
	return core.Config{Recoverability: core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 5},
		Delayed:   core.Delayed{NumberOfRetries: 3, TimeIncrease: c.seconds(10)}, // 10, 20, 30 s
	}}, nil
}

// lasting has delayed retries for longer than an outage is expected to last.
func lasting(c clock, _ *slog.Logger) (core.Config, error) {
	// snippet: lasting
	recoverability := core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1},
		Delayed: core.Delayed{
			NumberOfRetries: 12, // 10, 20, 40, 80, 120, 120, ... s: 18 minutes
			TimeIncrease:    c.seconds(10),
			Factor:          2,
			MaxDelay:        c.minutes(2),
			Jitter:          0.2,
		},
	}
	// end
	return core.Config{Recoverability: recoverability}, nil
}

// inHandler tries each attempt four times, within a second and a half.
func inHandler(c clock, logger *slog.Logger) (core.Config, error) {
	config, _ := defaults(c, logger)
	// snippet: retry
	policy, err := resilience.New(resilience.Config{
		Name:       "payments",
		TryTimeout: c.seconds(5),
		Retry: resilience.Retry{
			Tries: 4,
			Delay: c.seconds(0.2), // 0.2, 0.4, 0.8 s
			On:    []error{errUnavailable},
		},
	})
	if err != nil {
		return core.Config{}, err
	}
	config.Middleware = []core.Middleware{policy.For(charged.Name())}
	// end
	return config, nil
}

// breaker stops the calls after five failures in a row, and tries again every half
// minute.
func breaker(c clock, logger *slog.Logger) (core.Config, error) {
	config, _ := defaults(c, logger)
	// snippet: breaker
	policy, err := resilience.New(resilience.Config{
		Name:       "payments",
		TryTimeout: c.seconds(5),
		Breaker: resilience.Breaker{
			Failures: 5,
			OpenFor:  c.seconds(30),
			On:       []error{errUnavailable},
		},
		Logger: logger,
	})
	if err != nil {
		return core.Config{}, err
	}
	config.Middleware = []core.Middleware{policy.For(charged.Name())}
	// end
	return config, nil
}

// limited attempts one message at a time, with pauses, after failures in a row.
func limited(c clock, logger *slog.Logger) (core.Config, error) {
	config, _ := defaults(c, logger)
	// snippet: limited
	config.Recoverability.RateLimit = core.RateLimit{
		ConsecutiveFailures: 20,
		TimeToWait:          c.seconds(10),
		Filter:              func(err error) bool { return errors.Is(err, errUnavailable) },
	}
	// end
	return config, nil
}
