//go:build darwin || linux

package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Freeze stops the process and all its descendants with SIGSTOP: their connections stay open,
// and they do not answer, as on a machine that hangs. If the process has ended, Freeze does
// nothing.
func (p *Process) Freeze() error {
	// The process comes first: once stopped, it starts no more children. Its children may
	// still start processes until each of them is stopped too.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	awaitStop(p.cmd.Process.Pid)
	for stopped := 0; ; {
		pids, err := Descendants(p.cmd.Process.Pid)
		if err != nil || len(pids) <= stopped {
			return err
		}
		if err := send(syscall.SIGSTOP, pids); err != nil {
			return err
		}
		stopped = len(pids)
	}
}

// Thaw continues the processes that Freeze has stopped.
func (p *Process) Thaw() error {
	pids, err := Descendants(p.cmd.Process.Pid)
	return errors.Join(err, send(syscall.SIGCONT, pids), p.signal(syscall.SIGCONT))
}

// Freeze freezes the process, if there is one.
func (l *Life) Freeze() error {
	if p := l.Running(); p != nil {
		return p.Freeze()
	}
	return nil
}

// Thaw thaws the process, if there is one.
func (l *Life) Thaw() error {
	if p := l.Running(); p != nil {
		return p.Thaw()
	}
	return nil
}

func (p *Process) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// send sends a signal to processes, some of which may have ended.
func send(signal syscall.Signal, pids []int) (err error) {
	for _, pid := range pids {
		if failed := syscall.Kill(pid, signal); failed != nil && !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("send signal %v to process %d: %w", signal, pid, failed))
		}
	}
	return err
}
