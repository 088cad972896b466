package process

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endWithParent does nothing: macOS does not notify a process of its parent's death.
func endWithParent(*exec.Cmd, syscall.Signal) {}

// awaitStop waits until a child of this process that was sent SIGSTOP has stopped or ended.
// Until then it may still be starting a process that a list of its children lacks.
func awaitStop(pid int) {
	for {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		if err != nil || strings.ContainsAny(string(state[:min(1, len(state))]), "TZ") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// parents returns the parent of each running process.
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
