package rabbitmq

import (
	"io"
	"os/exec"
	"testing"
)

// TestAServerEndsWithTheProcessThatStartedIt has a test process die with no chance
// to stop its server.
func TestAServerEndsWithTheProcessThatStartedIt(t *testing.T) {
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
			StartFor(t, Config{Release: c.release})
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
			StartFor(t, Config{Release: c.release})
			if exists(dir) {
				t.Errorf("%s was left behind", dir)
			}
		})
	}
}
