//go:build darwin || linux

package given

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run is a second run of this test binary, started by a test as a developer who has a server
// would start it. It gets the environment, without the variables for reports.
type Run struct {
	t       testing.TB
	command *exec.Cmd

	mu     sync.Mutex
	output bytes.Buffer
	ended  chan struct{}
	err    error
}

// Start starts the tests that match the pattern, as on a machine with 32 processors, with
// additional environment variables. They are killed at the end of the test.
func Start(t testing.TB, pattern string, environment ...string) *Run {
	t.Helper()
	r := &Run{t: t, ended: make(chan struct{})}
	r.command = exec.Command(os.Args[0], "-test.run="+pattern, "-test.parallel=32", "-test.v", "-test.timeout=10m") //nolint:gosec // it is this program
	r.command.Env = slices.Concat(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REPRISE_CONFORMANCE_")
	}), environment)
	r.command.Stdout, r.command.Stderr = r, r
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.command.Wait()
		close(r.ended)
	}()
	t.Cleanup(r.Kill)
	return r
}

// Write collects output.
func (r *Run) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Write(p)
}

// Output returns the output of the tests and of the cleaner so far.
func (r *Run) Output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// Await waits until a condition holds while the tests run.
func (r *Run) Await(subject string, holds func() bool) {
	r.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-r.ended:
			r.t.Fatalf("the tests have ended (%v) before %s:\n%s", r.err, subject, r.Output())
		}
	}
}

// End waits for the end of the tests and of the process that cleans up, and returns the
// error of the tests.
func (r *Run) End() error {
	<-r.ended // when no process has the output open any more
	return r.err
}

// Kill kills the tests and waits as End does.
func (r *Run) Kill() {
	_ = r.command.Process.Kill() // it may have ended
	<-r.ended
}
