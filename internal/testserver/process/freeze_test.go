//go:build darwin || linux

package process

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// counting is a shell script whose child prints a line again and again.
const counting = `sh -c 'while :; do echo line; sleep 0.01; done' & wait`

// isStopped reports whether a signal has stopped a process, or it has ended.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return true // it is gone
	}
	return strings.HasPrefix(string(state), "T") || strings.HasPrefix(string(state), "Z")
}

func TestFreeze_StopsDescendantsUntilThaw(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, counting)
	lines := func() int { return strings.Count(log.String(), "\n") }
	await(t, "the first line", func() bool { return lines() > 0 })
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	await(t, "every process to be stopped", func() bool {
		pids, err := Descendants(p.ID())
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range append(pids, p.ID()) {
			if !isStopped(t, pid) {
				return false
			}
		}
		return len(pids) > 0
	})
	frozen := lines()
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	// A line that was in the pipe may have arrived since.
	await(t, "more lines", func() bool { return lines() > frozen+2 })
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Errorf("Freeze of a process that has ended: %v", err)
	}
	if err := p.Thaw(); err != nil {
		t.Errorf("Thaw of a process that has ended: %v", err)
	}
}

func TestKill_FrozenProcess(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, counting)
	await(t, "the first line", func() bool { return log.String() != "" })
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}
