// Resilience is an outage, handled in five ways: a shop charges its orders by an HTTP API that
// answers 503 for ten minutes, and an endpoint is configured to survive that by delayed
// retries, by retries in the handler, by a circuit breaker or by rate limiting.
//
//	cd examples/resilience && go run .
//
// A minute of the story takes 200 ms, so it ends after about 15 seconds. For each way it prints
// the cost of the outage: the number of calls of the API, the number of orders in the error
// queue, and the time from the end of the outage until the last order was charged. The
// configurations are in ways.go; docs/resilience.md has the figures of a run in virtual time,
// with explanations.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"
)

func main() {
	minute := flag.Duration("minute", 200*time.Millisecond, "how long a minute of the story takes")
	verbose := flag.Bool("v", false, "show the log lines of the endpoints, on stderr")
	flag.Parse()
	logger := slog.New(slog.DiscardHandler)
	if *verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, os.Stdout, clock{minute: *minute}, logger); err != nil {
		fmt.Fprintln(os.Stderr, "resilience:", err)
		os.Exit(1)
	}
}

// compare runs the outage once for each way, and prints a table.
func compare(ctx context.Context, out io.Writer, c clock, logger *slog.Logger) error {
	fmt.Fprintln(out, header)
	for _, way := range ways {
		r, err := run(ctx, way, c, logger)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		fmt.Fprintln(out, r.row(way.name))
	}
	return nil
}
