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
// To add a scenario, add it to the scenarios of the package of its system.
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

	"github.com/reprise-go/reprise/internal/pattern"
)

func main() {
	serveSQS() // if this process is a server of SQS
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
	var l load
	flags.IntVar(&l.messages, "messages", 100_000, "messages of one sample; slow scenarios take fewer")
	flags.IntVar(&l.repetitions, "repetitions", 9, "samples of each contender, taken in turn")
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
	if l.messages < 1 || l.repetitions < 1 {
		return errors.New("-messages and -repetitions must be at least 1")
	}
	on := &systems{postgres: postgresSystem{url: os.Getenv(postgresVariable)}, rabbitmq: rabbitSystem{url: os.Getenv(rabbitVariable)}}
	if *list {
		for _, s := range on.scenarios() {
			about := s.about
			if s.plotted {
				about += " Plotted."
			}
			fmt.Fprintf(stdout, "%-24s %s\n", s.name, about)
		}
		return nil
	}
	chosen, err := choose(on.scenarios(), *names)
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

	defer func() { err = errors.Join(err, on.close()) }()

	r := report{date: *date, machine: thisMachine(), load: l}
	fmt.Fprint(stdout, r.textHead())
	for _, s := range chosen {
		done := result{scenario: s}
		if done.tables, err = s.run(ctx, l); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
		r.results = append(r.results, done)
		fmt.Fprint(stdout, done.text())
	}
	if *out == "" {
		return nil
	}
	r.servers = on.describe()
	return r.write(*out)
}

// choose returns the scenarios that match names (see [pattern.Choose]).
func choose(scenarios []scenario, names string) ([]scenario, error) {
	return pattern.Choose(scenarios, func(s scenario) string { return s.name }, names)
}
