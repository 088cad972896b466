// Testtotals reads the output of go test -json from standard input, prints one line per package, the output of
// failed tests and the reasons of skipped ones, and ends with the totals:
//
//	N passed, N failed, N skipped
//
// It exits with 1 when a test failed or was skipped, and when no test ran at all: a missing server must not look
// like a passed test. Subtests count as tests, as in the output of go test. A package that fails outside its tests,
// because it does not build or its process dies, counts as one failure.
//
// With -short, for the output of go test -short, skipped tests whose reason has the words "short runs" are counted
// separately.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	var t totals
	flag.BoolVar(&t.short, "short", false, "count tests that are not part of short runs apart")
	flag.Parse()
	if err := t.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testtotals:", err)
		os.Exit(1)
	}
	t.summarize(os.Stdout)
	if !t.ok() {
		os.Exit(1)
	}
}
