// Testtotals reads the output of go test -json from standard input, or from several files at the same time, prints one
// line per package, the output of failed tests and the reasons of skipped ones, and ends with the totals:
//
//	N passed, N failed, N skipped
//
// It exits with 1 when a test failed or was skipped, and when no test ran at all: a missing server must not look
// like a passed test. Subtests count as tests, as in the output of go test. A package that fails outside its tests,
// because it does not build or its process dies, counts as one failure.
//
// A line before the output of a go test command is a heading for the packages that follow. They are numbered, and if
// fewer have a result in the end, that is a failure:
//
//	{"Action":"part","Output":"2 of 5: with the race detector","Packages":12}
//
// Every 15 seconds a line says which packages are running.
//
// With -report it writes the results of all packages into a JSON file. With -continue too, it begins with the results
// in that file, so that the totals are those of both runs.
//
// With -short, for the output of go test -short, skipped tests whose reason has the words "short runs" are counted
// separately.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	t := totals{w: os.Stdout}
	flag.BoolVar(&t.short, "short", false, "count tests that are not part of short runs separately")
	file := flag.String("report", "", "the `file` to write the results to")
	goOn := flag.Bool("continue", false, "begin with the results in the file of -report")
	flag.Parse()
	if err := run(&t, *file, *goOn, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testtotals:", err)
		os.Exit(1)
	}
	if !t.ok() {
		os.Exit(1)
	}
}

func run(t *totals, file string, goOn bool, names []string) error {
	inputs := []io.Reader{os.Stdin}
	if len(names) > 0 {
		inputs = nil
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		inputs = append(inputs, f)
	}
	if goOn {
		if err := t.load(file); err != nil {
			return err
		}
	}
	if err := t.read(inputs...); err != nil {
		return err
	}
	if file != "" {
		if err := t.save(file); err != nil {
			return err
		}
	}
	t.summarize()
	return nil
}
