//go:build darwin || linux

// Command soak runs endpoints on every transport while their processes are killed, and
// servers and networks fail, and then compares sent messages with handled ones.
//
//	go run ./soak -for 1h
//	go run ./soak -for 5m -transport 'postgres-*'
//	go run ./soak -for 5m -transport postgres-atomic -fault '*kill*'
//
// Four workers, each a separate process, run three endpoints: orders, shipping, which
// receives a command for each order, and notices, which subscribes to an event of each
// order. A fifth of all attempts fails, and one of 200 orders always fails. A worker is
// killed with SIGKILL every few seconds, and all its traffic goes through a proxy. Orders
// are sent for as long as there are faults, so that there is work during and after each
// fault. docs/reliability.md lists the promises that are checked, and has results.
//
// The program starts its servers itself. It prints each fault and each promise, and writes
// the logs of the workers, all of their facts and a report in Markdown to a directory. It
// exits with 1 if a promise was broken, and with 2 if the soak itself failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/reprise-go/reprise/internal/pattern"
)

func main() {
	if status, isChild := childMain(); isChild {
		os.Exit(status)
	}
	os.Exit(soakMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	statusKept   = 0
	statusBroken = 1
	statusFailed = 2
)

// soakMain is the program. It returns its exit status.
func soakMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	broken, err := soak(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return statusFailed
	case err != nil:
		fmt.Fprintln(stderr, "soak:", err)
		return statusFailed
	case broken:
		return statusBroken
	default:
		return statusKept
	}
}

// shortestFault and longestFault limit the duration of a fault that has a length.
const (
	shortestFault = 2 * time.Second
	longestFault  = 8 * time.Second
)

// lastPatience is longer than the greatest lateness of a delayed retry. RabbitMQ takes 3
// minutes to deliver a delayed retry that was due while it started.
const lastPatience = 5 * time.Minute

func soak(ctx context.Context, args []string, stdout, stderr io.Writer) (broken bool, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	all := flags.Duration("for", time.Hour, "how `long` there is load, for all transports together; each fault is struck once at least")
	names := flags.String("transport", "all", "`names` or patterns of the transports, separated by commas; or all")
	pattern := flags.String("fault", "", "a `pattern` of the faults to strike, such as '*kill*'; * stands for anything. The default is all faults")
	calm := flags.Duration("calm", 0, "how `long` there are only kills of workers after a fault, before the next one")
	list := flags.Bool("list", false, "list the transports and exit")
	logs := flags.String("logs", "", "the `directory` for logs and the report; the default is a new temporary one")
	seed := flags.Uint64("seed", rand.Uint64(), "the `number` that decides about the order of faults and kills")
	window := flags.Int("window", 1000, "how many `orders` may be incomplete at a time")
	pace := flags.Duration("pace", 10*time.Millisecond, "how `long` a handler takes on average")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, err
		}
		return false, fmt.Errorf("%w (-help tells more)", err)
	}
	switch {
	case flags.NArg() > 0:
		return false, fmt.Errorf("there is an argument %q, but only flags are known", flags.Arg(0))
	case !isPattern(*pattern):
		return false, fmt.Errorf("-fault: %q is no pattern", *pattern)
	case *all <= 0 || *window < 1 || *pace <= 0:
		return false, errors.New("-for, -window and -pace must be more than 0")
	case *calm < 0:
		return false, errors.New("-calm must not be negative")
	}
	if *list {
		for _, s := range subjects {
			fmt.Fprintf(stdout, "%-24s %s\n", s.name, s.title)
		}
		return false, nil
	}
	chosen, err := choose(*names)
	if err != nil {
		return false, err
	}
	if *logs == "" {
		if *logs, err = os.MkdirTemp("", "reprise-soak-"); err != nil {
			return false, err
		}
	}
	share := *all / time.Duration(len(chosen))
	var results []*result
	var errs []error
	for _, s := range chosen {
		r := &run{
			subject: s, load: share, calm: *calm, fault: min(max(share/20, shortestFault), longestFault), window: *window, pace: *pace,
			kills: [2]time.Duration{2 * time.Second, 4 * time.Second}, seed: *seed,
			patience: 3 * time.Minute, lastPatience: lastPatience, logs: filepath.Join(*logs, s.name), out: stdout,
		}
		if *pattern != "" {
			r.chosen = func(f fault) bool { ok, _ := path.Match(*pattern, f.name); return ok }
		}
		done, err := r.do(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; its logs are in %s", s.name, err, r.logs))
			continue
		}
		results = append(results, done)
		broken = broken || done.isBroken()
	}
	text := report(time.Now().Format(time.DateOnly), results)
	fmt.Fprintf(stdout, "\n%s\nlogs: %s\n", text, *logs)
	if broken {
		fmt.Fprintln(stdout, "A PROMISE WAS BROKEN: see the lines with BROKEN above")
	}
	return broken, errors.Join(append(errs, os.WriteFile(filepath.Join(*logs, "report.md"), []byte(text), 0o644))...)
}

func isPattern(text string) bool {
	_, err := path.Match(text, "")
	return err == nil
}

// choose returns the subjects that match names (see [pattern.Choose]).
func choose(names string) ([]subject, error) {
	chosen, err := pattern.Choose(subjects, func(s subject) string { return s.name }, names)
	if err != nil {
		return nil, fmt.Errorf("-transport: %w", err)
	}
	return chosen, nil
}
