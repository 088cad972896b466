package rabbitmq

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// removeLeftovers has Start remove them, which it does before it finds that it cannot start
// the server.
func removeLeftovers(t *testing.T, release Release) {
	t.Helper()
	if _, err := Start(Config{Release: release, Plugins: []string{"unheard_of"}}); err == nil || !strings.Contains(err.Error(), "unheard_of") {
		t.Errorf("Start of a server with an unknown plugin: %v; want an error that names it", err)
	}
}

// TestServer_EndsWithItsTestProcess has a test process die with no chance
// to stop its server.
func TestServer_EndsWithItsTestProcess(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, c := range map[string]struct {
		release Release
		die     func(*exec.Cmd, io.Closer) error
	}{
		"SIGKILL": {V4, func(c *exec.Cmd, _ io.Closer) error { return c.Process.Kill() }},
		"os.Exit": {V3, func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stdin, pids, dir := startChild(t, c.release)
			// A server started later does not take it for a leftover.
			removeLeftovers(t, c.release)
			for _, pid := range pids {
				if !exists(dir) || !alive(pid) {
					t.Errorf("process %d of the server or its directory is gone before its parent is", pid)
				}
			}
			if err := c.die(cmd, stdin); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // it was to die
			awaitEnd(t, pids)
			awaiting(t, "the removal of "+dir, func() bool { // by this process, or by another that was quicker
				removeLeftovers(t, c.release)
				return !exists(dir)
			})
		})
	}
}
