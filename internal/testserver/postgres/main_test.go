//go:build darwin || linux

package postgres

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"
)

// childVariable makes this test program a process that starts a server and waits
// to be killed.
const childVariable = "REPRISE_TEST_POSTGRES_CHILD"

// TestMain fails when tests left goroutines of this package behind.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	code := m.Run()
	if left := leftBehind(); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), bytes.Join(left, []byte("\n\n")))
		code = 1
	}
	os.Exit(code)
}

// notInShortRuns skips a test of how servers start, end and fail: servers that are started,
// used and stopped are enough there.
func notInShortRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts and ends servers: not in short runs")
	}
}

// child starts a server, says which, and lives until its standard input ends.
func child() int {
	s, err := Start(Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.life.Running().ID(), s.dir.Path())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0 // without Stop, as a test that calls os.Exit
}

// leftBehind returns the stacks of goroutines that run our code or were started
// by it. Those on their way out get time to go.
func leftBehind() (left [][]byte) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		left = nil
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
			if bytes.Contains(stack, []byte("reprise/")) && !bytes.Contains(stack, []byte(".TestMain(")) {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}
