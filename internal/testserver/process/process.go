//go:build darwin || linux

// Package process runs the programs of servers that tests start: children of this process
// that it waits for, and that end with it.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Patience is how long a server may take to start or to end. Usually it takes tenths of a
// second or a few seconds, longer to recover after many writes, and a minute on a busy
// machine.
const Patience = 5 * time.Minute

// lingering is how long the children of a process may outlive it.
const lingering = time.Minute

// Process is a program with its descendants. It is a child that this process waits for:
// otherwise a killed server would look alive to the next one. Its methods may be called
// concurrently.
type Process struct {
	cmd       *exec.Cmd
	lingering time.Duration // how long its children may outlive it
	exited    chan struct{} // closed when it and its descendants have ended

	// The outcome, valid after exited is closed.
	err   error // of Wait
	alone error // not nil if some of its descendants still run
}

// Start starts cmd, which must not have a standard output or error yet, and copies both to
// log. When this process dies for any reason, cmd gets the signal death. (On macOS it does
// not.)
func Start(cmd *exec.Cmd, log io.Writer, death syscall.Signal) (*Process, error) {
	return start(cmd, log, death, lingering)
}

func start(cmd *exec.Cmd, log io.Writer, death syscall.Signal, lingering time.Duration) (*Process, error) {
	endWithParent(cmd, death)
	// All descendants of the server inherit the pipe, so the end of its output means that all
	// of them have ended.
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = input, input
	p := &Process{cmd: cmd, lingering: lingering, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.exited)
		// The kernel sends the signal for the parent's death when the thread that started the
		// child ends. This thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		err = errors.Join(err, input.Close())
		started <- err
		copied := make(chan error)
		go func() {
			_, err := io.Copy(log, output)
			copied <- err
		}()
		if err == nil {
			p.err = cmd.Wait()
		}
		p.alone = errors.Join(output.SetReadDeadline(time.Now().Add(lingering)), <-copied, output.Close())
	}()
	if err := <-started; err != nil {
		<-p.exited
		return nil, err
	}
	return p, nil
}

// ID returns the process's number.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process and its descendants have ended, or
// when descendants have outlived it for too long.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the end of the process and returns its outcome as exec.Cmd.Wait does.
func (p *Process) Wait() error {
	<-p.exited
	return errors.Join(p.err, p.gone())
}

// gone waits until the process and its descendants have ended in any way, and returns an
// error if a descendant lives on.
func (p *Process) gone() error {
	<-p.exited
	if p.alone != nil {
		return fmt.Errorf("something that the server started outlives it by %v: %w", p.lingering, p.alone)
	}
	return nil
}

// Stop sends the process a signal and waits until it has ended. After Patience it kills the
// process and returns an error.
func (p *Process) Stop(how syscall.Signal) error {
	if err := p.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.Kill())
	}
	select {
	case <-p.exited:
		return p.gone()
	case <-time.After(Patience):
		return errors.Join(fmt.Errorf("it did not end within %v of signal %v and was killed", Patience, how), p.Kill())
	}
}

// Kill kills the process and its descendants with SIGKILL, and waits until all have ended. If
// the process has ended, Kill does nothing to it.
func (p *Process) Kill() error {
	// Once stopped, it starts no more children. Its pid is not reused until this process has
	// waited for it, which cannot happen before it is killed.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	} else if err != nil {
		return p.gone()
	}
	awaitStop(p.cmd.Process.Pid)
	pids, err := Descendants(p.cmd.Process.Pid)
	for _, pid := range pids {
		if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, killErr))
		}
	}
	if killErr := p.cmd.Process.Kill(); !errors.Is(killErr, os.ErrProcessDone) { // it may have ended before it was stopped
		err = errors.Join(err, killErr)
	}
	return errors.Join(err, p.gone())
}

// Descendants returns the children of a process, their children, and so on.
func Descendants(pid int) (pids []int, err error) {
	parents, err := parents()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for child, parent := range parents {
		children[parent] = append(children[parent], child)
	}
	pids = append(pids, children[pid]...)
	for n := 0; n < len(pids); n++ {
		pids = append(pids, children[pids[n]]...)
	}
	return pids, nil
}
