//go:build darwin || linux

package postgres

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/reprise-go/reprise/internal/leaks"
)

// childVariable makes this test program a process that starts a server and waits
// to be killed.
const childVariable = "REPRISE_TEST_POSTGRES_CHILD"

// TestMain fails when tests left goroutines of this package behind.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	leaks.Main(m)
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
