package postgres

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownedBy returns how to start a server's process: as account, and ended at once
// (an immediate shutdown) when this process dies.
func ownedBy(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: account, Pdeathsig: syscall.SIGQUIT}
}

// children returns the processes that a process has started.
func children(parent int) (pids []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has gone meanwhile
		}
		// pid (name) state ppid ..., where the name may have parentheses
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
