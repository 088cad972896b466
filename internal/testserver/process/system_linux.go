package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// endWithParent has a command get a signal when this process dies.
func endWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}

// awaitStop waits until a child of this process that was sent SIGSTOP has stopped, with all
// its threads, or has ended. Until then it may still be starting a process that a list of its
// children lacks.
func awaitStop(pid int) {
	const (
		waitStopped, waitExited, leaveIt = 0x2, 0x4, 0x1000000 // WSTOPPED, WEXITED, WNOWAIT
		byPID                            = 1                   // P_PID
	)
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, waitStopped|waitExited|leaveIt, 0, 0)
		if err != syscall.EINTR {
			return // stopped, or another goroutine has waited for its end
		}
	}
}

// parents returns the parent of each running process.
func parents() (map[int]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := make(map[int]int, len(stats))
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended in between
		}
		// The format is pid (name) state ppid ..., and the name may contain parentheses.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			return nil, err
		}
		all[pid] = parent
	}
	return all, nil
}
