// Transports writes the tables of docs/choosing-a-transport.md from the reports of the conformance suite, one JSON file
// per adapter, as conformance.Run writes them into the directory that REPRISE_CONFORMANCE_REPORT names:
//
//	transports -reports .bin/reports docs/choosing-a-transport.md
//
// A table is between the lines
//
//	<!-- table: abilities -->
//	<!-- end -->
//
// Without -w nothing is written; the exit code is 1 when a table differs from the reports, or when a report has a
// failure. With -w or without, it is also 1 when a profile of the in-memory transport, such as inmemory.LikeRabbitMQ,
// has fewer capabilities than the adapter that it imitates.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/conformance"
)

func main() {
	write := flag.Bool("w", false, "rewrite the tables that differ")
	reports := flag.String("reports", "", "directory with the adapters' reports")
	flag.Parse()
	if *reports == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: transports [-w] -reports directory document")
		os.Exit(2)
	}
	if err := run(*reports, flag.Arg(0), *write, profiles); err != nil {
		fmt.Fprintln(os.Stderr, "transports:", err)
		os.Exit(1)
	}
}

func run(reports, document string, write bool, profiles []profile) error {
	all, err := readReports(reports)
	if err != nil {
		return err
	}
	return errors.Join(writeTables(all, document, write), compare(profiles, all))
}

func writeTables(all []*conformance.Report, document string, write bool) error {
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text, err := fill(string(old), map[string]string{
		"abilities":  abilities(all),
		"limits":     limits(all),
		"deviations": deviations(all),
		"not-run":    notRun(all),
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", document, err)
	case text == string(old):
		return nil
	case !write:
		return fmt.Errorf("%s differs from the adapters' reports; make report rewrites it:\n%s", document, difference(string(old), text))
	default:
		return os.WriteFile(document, []byte(text), 0o644)
	}
}

// difference returns the lines that only one of the texts has.
func difference(old, text string) string {
	lines := func(s string) []string { return strings.Split(s, "\n") }
	var b strings.Builder
	only := func(sign string, these, others []string) {
		for _, line := range these {
			if !slices.Contains(others, line) {
				fmt.Fprintf(&b, "%s %s\n", sign, line)
			}
		}
	}
	only("-", lines(old), lines(text))
	only("+", lines(text), lines(old))
	return b.String()
}

// readReports returns the reports in the order of the adapters' names, the embedded transport first.
func readReports(dir string) ([]*conformance.Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no report in %s; did TestConformance of the adapters run?", dir)
	}
	var all []*conformance.Report
	for _, file := range files {
		r, err := conformance.ReadReport(file)
		if err != nil {
			return nil, err
		}
		if slices.Contains(examples, r.Adapter) {
			continue
		}
		if n := r.Count(conformance.Failed); n > 0 {
			return nil, fmt.Errorf("%s: %d cases failed; a table shows adapters that hold the contract", file, n)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *conformance.Report) int {
		if (a.Adapter == embedded) != (b.Adapter == embedded) {
			if a.Adapter == embedded {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Adapter, b.Adapter)
	})
	return all, nil
}

// examples are adapters that show how to write one, and are not for use.
var examples = []string{"filetransport"}

// embedded is the in-memory adapter, with which users start.
const embedded = "inmemory"

// fill replaces the lines between the markers of each table.
func fill(document string, tables map[string]string) (string, error) {
	for name, table := range tables {
		begin := "<!-- table: " + name + " -->\n"
		before, rest, found := strings.Cut(document, begin)
		if !found {
			return "", fmt.Errorf("there is no line %q", strings.TrimSpace(begin))
		}
		_, after, found := strings.Cut(rest, "<!-- end -->")
		if !found {
			return "", fmt.Errorf("no line <!-- end --> follows %q", strings.TrimSpace(begin))
		}
		document = before + begin + table + "<!-- end -->" + after
	}
	return document, nil
}
