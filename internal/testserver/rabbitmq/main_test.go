//go:build darwin || linux

package rabbitmq

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/reprise-go/reprise/internal/leaks"
)

// childVariable makes this test program a process that starts a server of a release
// and waits to be killed.
const childVariable = "REPRISE_TEST_RABBITMQ_CHILD"

// TestMain fails when tests left goroutines of this package behind.
func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case V3.String():
		os.Exit(child(V3))
	case V4.String():
		os.Exit(child(V4))
	}
	leaks.Main(m)
}

// child starts a server, says which, and lives until its standard input ends.
func child(release Release) int {
	s, err := Start(Config{Release: release})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.life.Running().ID(), s.names.ID(), s.dir.Path())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0 // without Stop, as a test that calls os.Exit
}
