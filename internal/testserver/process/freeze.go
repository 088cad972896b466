//go:build darwin || linux

package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Freeze stops the process and everything that it started with SIGSTOP: their
// connections stay open, and nothing answers, as on a machine that hangs. A process
// that has ended stays as it is.
func (p *Process) Freeze() error {
	// The process first: stopped, it starts no more children. Its children may, until
	// each of them is stopped too.
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

// send sends a signal to processes, of which some may have ended.
func send(signal syscall.Signal, pids []int) (err error) {
	for _, pid := range pids {
		if failed := syscall.Kill(pid, signal); failed != nil && !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("send signal %v to process %d: %w", signal, pid, failed))
		}
	}
	return err
}
