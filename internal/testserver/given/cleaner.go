//go:build darwin || linux

package given

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// Cleaner is a second process of the test binary that outlives this one and then removes the
// objects that the tests have made. It gets their names before they are made, through a pipe
// that ends with this process in any case. Its methods may be called concurrently.
type Cleaner struct {
	process *exec.Cmd
	pipe    io.WriteCloser

	mu    sync.Mutex
	noted map[string]bool
}

const cleanerVariable = "REPRISE_TEST_CLEANER"

// IsCleaner reports whether this process is a cleaner. If so, TestMain calls Clean.
func IsCleaner() bool { return os.Getenv(cleanerVariable) != "" }

// StartCleaner starts a cleaner, with the environment of this process.
func StartCleaner() (*Cleaner, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("given: start a process that cleans up: %w", err)
	}
	c := &Cleaner{process: exec.Command(path), noted: map[string]bool{}}
	c.process.Env = append(os.Environ(), cleanerVariable+"=1")
	// These are the files themselves: a copying goroutine would end with this process.
	c.process.Stdout, c.process.Stderr = os.Stdout, os.Stderr
	// The Ctrl-C that ends the tests must not end it.
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.pipe, err = c.process.StdinPipe(); err == nil {
		err = c.process.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("given: start a process that cleans up: %w", err)
	}
	return c, nil
}

// Note has the cleaner remove the object with this name, which contains no line break. Call
// it before the object is made. It panics if the cleaner has ended, because nothing may be
// made then.
func (c *Cleaner) Note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noted[name] {
		return
	}
	c.noted[name] = true
	if _, err := fmt.Fprintln(c.pipe, name); err != nil {
		panic(fmt.Sprintf("given: the process that cleans up has ended: %v", err))
	}
}

// Close has the cleaner remove everything, and waits for it. An error says that objects are
// left.
func (c *Cleaner) Close() error {
	if err := errors.Join(c.pipe.Close(), c.process.Wait()); err != nil {
		return fmt.Errorf("given: clean up: %w; the list of things that are left was written above", err)
	}
	return nil
}

// Clean runs the cleaner: it reads names until the process that started it has ended or
// closed the pipe, and then calls remove with all names, in the order of the calls of Note.
// It returns the exit status.
func Clean(remove func(names []string) error) (status int) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	var names []string
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		names = append(names, lines.Text())
	}
	if err := remove(names); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
