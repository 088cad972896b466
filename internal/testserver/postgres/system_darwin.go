package postgres

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// ownedBy returns how to start a server's process: as account.
func ownedBy(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: account}
}

// children returns the processes that a process has started.
func children(parent int) (pids []int, err error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if _, err := fmt.Sscan(line, &pid, &ppid); err != nil {
			return nil, fmt.Errorf("ps printed %q: %w", line, err)
		}
		if ppid == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
