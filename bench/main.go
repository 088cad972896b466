// Command bench runs Reprise, its peers and raw clients on the same work, on
// the same machine, in turn in one run, and prints ratios.
//
//	go run ./bench -list
//	go run ./bench -scenario all -out docs/performance.md
//
// An absolute figure is only a hint: machines differ and are shared. So every contender's
// sample is taken next to those of its comparison, and a ratio is the median of the
// ratios of neighbouring samples.
//
// For a scenario that shows the growth of figures, -out also writes a picture, an SVG in
// the folder with the file's name without its extension, here
// docs/performance/postgres-backlog.svg, and shows it under the table. The file is
// rewritten, with only the scenarios of this run; other pictures stay. To run some
// scenarios again, give their names or patterns, without -out or with another file:
//
//	go run ./bench -scenario 'inmemory-*,*-backlog'
//
// The packages below internal are
//   - inmemory, postgres, inbox, rabbitmq, sqs and asb: the scenarios of one system each, its contenders, and its server;
//   - reprise, watermillrouter and workload: the parts that contenders on several systems share;
//   - measure and compare: samples of one contender, and comparisons of several;
//   - scenario, table, report and stats: the description of a scenario, and its results.
//
// To add a scenario, add it to the function Scenarios of the package of its system.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/reprise-go/reprise/bench/internal/postgres"
	"github.com/reprise-go/reprise/bench/internal/rabbitmq"
	"github.com/reprise-go/reprise/bench/internal/report"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/sqs"
	"github.com/reprise-go/reprise/internal/pattern"
)

func main() {
	sqs.RunServerProcess() // if this process is a server of SQS
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.Bool("list", false, "list the scenarios and exit")
	names := flags.String("scenario", "all", "`names` of the scenarios to run, or patterns such as '*-backlog', separated by commas; or all")
	out := flags.String("out", "", "also write the tables as Markdown to this `file.md`, and plots to the folder file/;\n"+
		"the file will hold what this run chose and nothing else")
	date := flags.String("date", time.Now().Format(time.DateOnly), "the `day` that the tables are dated")
	var l scenario.Load
	flags.IntVar(&l.Messages, "messages", 100_000, "messages of one sample; slow scenarios take fewer")
	flags.IntVar(&l.Repetitions, "repetitions", 9, "samples of each contender, taken in turn")
	var p profiles
	flags.StringVar(&p.cpu, "cpuprofile", "", "write a CPU profile to this `file`; its label \"contender\" tells whose time it is")
	flags.StringVar(&p.allocs, "memprofile", "", "write a profile of all allocations to this `file`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w (-help tells more)", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there is an argument %q, but only flags are known", flags.Arg(0))
	}
	if l.Messages < 1 || l.Repetitions < 1 {
		return errors.New("-messages and -repetitions must be at least 1")
	}
	tested := &systems{postgres: postgres.Server{URL: os.Getenv(postgres.URLVariable)}, rabbitmq: rabbitmq.Server{URL: os.Getenv(rabbitmq.URLVariable)}}
	if *list {
		for _, s := range tested.scenarios() {
			about := s.About
			if s.Plotted {
				about += " Plotted."
			}
			fmt.Fprintf(stdout, "%-24s %s\n", s.Name, about)
		}
		return nil
	}
	chosen, err := choose(tested.scenarios(), *names)
	if err != nil {
		return err
	}
	if *out != "" && filepath.Ext(*out) != ".md" { // not only after an hour
		return fmt.Errorf("-out %s: the file's name must end in .md", *out)
	}
	stopProfiles, err := p.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	defer func() { err = errors.Join(err, tested.close()) }()

	r := report.Report{Date: *date, Machine: report.ThisMachine(), Load: l}
	fmt.Fprint(stdout, r.TextHead())
	for _, s := range chosen {
		done := report.Result{Scenario: s}
		if done.Tables, err = s.Run(ctx, l); err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		r.Results = append(r.Results, done)
		fmt.Fprint(stdout, done.Text())
	}
	if *out == "" {
		return nil
	}
	r.Servers = tested.describe()
	return r.WriteFile(*out)
}

// choose returns the scenarios that match names (see [pattern.Choose]).
func choose(scenarios []scenario.Scenario, names string) ([]scenario.Scenario, error) {
	return pattern.Choose(scenarios, func(s scenario.Scenario) string { return s.Name }, names)
}
