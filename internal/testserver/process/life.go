//go:build darwin || linux

package process

import (
	"errors"
	"sync"
)

// Life manages the process of a server. The process may end and begin again on the same data,
// until the server is stopped for good. The zero value has not begun. The methods may be
// called concurrently, and exclude each other.
type Life struct {
	mu      sync.Mutex
	running *Process
	stopped bool
}

// Running returns the process, or nil.
func (l *Life) Running() *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// Begin starts the process with start if there is none.
func (l *Life) Begin(start func() (*Process, error)) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
		return errors.New("the server was stopped, and its data removed")
	case l.running != nil:
		return nil
	}
	l.running, err = start()
	return err
}

// End ends the process with end if there is one. The process may begin again.
func (l *Life) End(end func(*Process) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endLocked(end)
}

func (l *Life) endLocked(end func(*Process) error) error {
	if l.running == nil {
		return nil
	}
	err := end(l.running)
	l.running = nil
	return err
}

// Stop ends the process with end if there is one, for good, and then calls release even if
// end failed. A second call does nothing.
func (l *Life) Stop(end func(*Process) error, release func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil
	}
	l.stopped = true
	return errors.Join(l.endLocked(end), release())
}
