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

// Cleaner is a process of the test binary that outlives this one and then removes what the
// tests have made. It gets the names before anything is made, by a pipe that ends with this
// process, however that ends. Its methods may be called concurrently.
type Cleaner struct {
	process *exec.Cmd
	pipe    io.WriteCloser

	mu    sync.Mutex
	noted map[string]bool
}

const cleanerVariable = "REPRISE_TEST_CLEANER"

// IsCleaner reports whether this process is a cleaner. Its TestMain calls Clean.
func IsCleaner() bool { return os.Getenv(cleanerVariable) != "" }

// StartCleaner starts a cleaner, with the environment of this process.
func StartCleaner() (*Cleaner, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("given: start a process that cleans up: %w", err)
	}
	c := &Cleaner{process: exec.Command(path), noted: map[string]bool{}}
	c.process.Env = append(os.Environ(), cleanerVariable+"=1")
	// The files themselves: whatever copied from a pipe would end with this process.
	c.process.Stdout, c.process.Stderr = os.Stdout, os.Stderr
	// The Ctrl-C that ends the tests is not for it.
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.pipe, err = c.process.StdinPipe(); err == nil {
		err = c.process.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("given: start a process that cleans up: %w", err)
	}
	return c, nil
}

// Note has the cleaner remove what has the name, which has no line break. It is called
// before that is made, and panics if the cleaner has ended: nothing more may be made.
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

// Close has everything removed, and returns when it is. An error says what is left.
func (c *Cleaner) Close() error {
	if err := errors.Join(c.pipe.Close(), c.process.Wait()); err != nil {
		return fmt.Errorf("given: clean up: %w; what is left was written above", err)
	}
	return nil
}

// Clean is what a cleaner does: it reads names until the process that started it has ended,
// or closed the pipe, and then calls remove with all of them, in the order in which they
// were noted. It returns the exit status.
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
