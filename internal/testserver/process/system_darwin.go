package process

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// endWithParent does nothing: macOS tells no process of its parent's death.
func endWithParent(*exec.Cmd, syscall.Signal) {}

// parents returns the parent of each process that runs.
func parents() (map[int]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	all := map[int]int{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		if _, err := fmt.Sscan(line, &pid, &parent); err != nil {
			return nil, fmt.Errorf("ps printed %q: %w", line, err)
		}
		all[pid] = parent
	}
	return all, nil
}
