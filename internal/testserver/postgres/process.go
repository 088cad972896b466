//go:build darwin || linux

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// patience is how long a server may take to start or to end. It takes tenths
	// of a second, or longer to recover after much was written.
	patience = time.Minute
	// lingering is how long a server's processes may outlive the first of them.
	lingering = 10 * time.Second
)

// process is a program of PostgreSQL's with everything that it starts. It is a
// child that is waited for: a killed server that nobody waits for would look alive
// to the next one.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has gone, and all that it started

	// How it ended, to be read after exited.
	err   error // of Wait
	alone error // not nil if some of what it started is still there
}

// startProcess starts cmd and copies its output to log.
func startProcess(cmd *exec.Cmd, log io.Writer) (*process, error) {
	// Everything that a server starts inherits the pipe, so its end says that all
	// have gone.
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = input, input
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.exited)
		// The signal for the death of the parent comes when the thread ends that
		// started the child. This one is kept for as long as the child lives.
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

// wait returns how the process ended.
func (p *process) wait() error {
	<-p.exited
	return errors.Join(p.err, p.gone())
}

// gone waits until the process has ended with everything that it started, however
// it did so, and returns an error if something lives on.
func (p *process) gone() error {
	<-p.exited
	if p.alone != nil {
		return fmt.Errorf("something that the server started outlives it by %v: %w", lingering, p.alone)
	}
	return nil
}

// stop asks a server to end, and kills it when it does not.
func (p *process) stop(how syscall.Signal) error {
	if err := p.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.kill())
	}
	select {
	case <-p.exited:
		return p.gone()
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("it did not end within %v of signal %v and was killed", patience, how), p.kill())
	}
}

// kill kills a server with all its processes.
func (p *process) kill() error {
	// Stopped, it starts no more children. Nobody else gets its pid until it is
	// waited for, which cannot be before it is killed.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	} else if err != nil {
		return p.gone()
	}
	pids, err := children(p.cmd.Process.Pid)
	for _, pid := range pids {
		if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, killErr))
		}
	}
	return errors.Join(err, p.cmd.Process.Kill(), p.gone())
}

// run runs the server and waits until it answers queries, which it does not before
// it has recovered.
func (s *Server) run() (*process, error) {
	p, err := startProcess(s.bin.postgres(s.dir, s.port.Number()), s.log)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(p); err != nil {
		return nil, errors.Join(err, p.kill(), fmt.Errorf("its log ends with:\n%s", s.log))
	}
	return p, nil
}

func (s *Server) awaitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		_, err := s.psql(ctx, "postgres", "select 1")
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the server ended instead of answering a query: %w", p.wait())
		case <-ctx.Done():
			return fmt.Errorf("the server answers no query after %v: %w", patience, err)
		case <-ticks.C:
		}
	}
}
