package suite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Environment variables of a child process.
const (
	// specVariable has the workerSpec of the child process.
	specVariable = "REPRISE_CONFORMANCE_JOB"
	// HarnessVariable is conformance.HarnessVariable.
	HarnessVariable = "REPRISE_CONFORMANCE_HARNESS"
)

// childOpens is the open function given to Main.
var childOpens func() (core.Transport, error)

// Main is conformance.Main.
func Main(m *testing.M, open func() (core.Transport, error), before ...func()) {
	time.Local = oddZone
	if text, ok := os.LookupEnv(specVariable); ok {
		time.Local = childZone
		os.Exit(runChild(text, open))
	}
	childOpens = open
	flag.Parse()
	runMoreInParallel()
	for _, f := range before {
		f()
	}
	m.Run()
}

// minParallel is the number of tests that run at a time on machines with few cores.
const minParallel = 16

// runMoreInParallel sets -parallel if the flag was not given.
func runMoreInParallel() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && runtime.GOMAXPROCS(0) < minParallel {
		_ = flag.Set("test.parallel", strconv.Itoa(minParallel))
	}
}

// Time zones with minutes and seconds, far from UTC and from each other.
var (
	oddZone   = time.FixedZone("conformance", 13*3600+47*60+11)
	childZone = time.FixedZone("conformance child", -(8*3600 + 19*60 + 43))
)

// Exit codes of a child process.
const (
	exitFailed  = 1
	exitCrashed = 70 // as its workerSpec wants it
	exitOrphan  = 71 // its parent has ended
)

// eventPrefix marks lines of standard output that are events for the suite.
const eventPrefix = "\x00conformance "

// stopLine asks a child process to end.
const stopLine = "stop"

// runChild runs a child process. It returns its exit status.
func runChild(text string, open func() (core.Transport, error)) int {
	fail := func(doing string, err error) int {
		fmt.Fprintf(os.Stderr, "conformance: child process: %s: %v\n", doing, err)
		return exitFailed
	}
	var spec workerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return fail("reading "+specVariable, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for line := bufio.NewScanner(os.Stdin); line.Scan(); {
			if line.Text() == stopLine {
				cancel()
			}
		}
		os.Exit(exitOrphan) // closed only when the parent ends, or no longer needs the process
	}()
	transport, err := open()
	if err == nil && transport == nil {
		err = errors.New("it returned nil")
	}
	if err != nil {
		return fail("the open that conformance.Main was given", err)
	}
	var stdout sync.Mutex
	err = spec.run(ctx, transport, workerEnv{
		report: func(e event) {
			line, err := json.Marshal(e)
			if err != nil {
				panic(err) // an event has only strings, which can always be marshalled
			}
			stdout.Lock()
			defer stdout.Unlock()
			fmt.Fprintf(os.Stdout, "\n%s%s\n", eventPrefix, line)
		},
		crash: func() { os.Exit(exitCrashed) },
	})
	if err != nil {
		return fail("its job", err)
	}
	if err := transport.Close(context.Background()); err != nil {
		return fail("Close of its transport", err)
	}
	return 0
}

// childProcess is a child process.
type childProcess struct {
	*eventQueue
	command *exec.Cmd
	stdin   io.Writer
	output  *output
	done    chan struct{} // closed when it has ended
	err     error         // the result of Wait
}

// startChildProcess starts the test binary with a workerSpec and additional environment
// variables.
func startChildProcess(t *caseT, spec workerSpec, environment ...string) process {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &childProcess{eventQueue: newEventQueue(), done: make(chan struct{})}
	c.output = &output{event: c.push}
	c.command = exec.Command(path) // without the flags of this process
	c.command.Env = slices.Concat(os.Environ(), environment, []string{specVariable + "=" + string(text), HarnessVariable + "=" + t.suite.h.Name})
	c.command.Stdout = c.output
	c.command.Stderr = stderr{c.output}
	c.command.WaitDelay = 5 * time.Second // in case it leaves child processes behind
	stdin, err := c.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.command.Wait()
		c.close()
		close(c.done)
	}()
	t.Cleanup(func() {
		if text := c.output.text(); strings.Contains(text, "DATA RACE") {
			t.fail("a process of an endpoint has no data race", "%s", text)
		}
	})
	return c
}

func (c *childProcess) kill() {
	_ = c.command.Process.Kill() // it may have ended already
	<-c.done
}

func (c *childProcess) stop(limit time.Duration) error {
	if _, err := fmt.Fprintln(c.stdin, stopLine); err != nil {
		return fmt.Errorf("it has ended before: %w", err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		return fmt.Errorf("it has not ended within %v\n%s", limit, c.output.text())
	}
	if c.err != nil {
		return errors.New(c.exitReport())
	}
	return nil
}

// exitReport is called after the end of the process.
func (c *childProcess) exitReport() string {
	<-c.done
	return fmt.Sprintf("%v\n%s", c.command.ProcessState, c.output.text())
}

// output reads the output of a child process: events, and other output, of which it keeps
// the end.
type output struct {
	event func(event)

	mu      sync.Mutex
	partial []byte // incomplete last line of standard output
	kept    []byte
}

const maxOutput = 64 << 10

// Write accepts standard output.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, rest, found := bytes.Cut(o.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		o.partial = rest
		text, isEvent := bytes.CutPrefix(line, []byte(eventPrefix))
		var e event
		switch {
		case isEvent && json.Unmarshal(text, &e) == nil:
			o.event(e)
		case len(line) > 0:
			o.keep(line)
			o.keep([]byte("\n"))
		}
	}
}

func (o *output) keep(p []byte) {
	o.kept = append(o.kept, p...)
	if tooMuch := len(o.kept) - maxOutput; tooMuch > 0 {
		o.kept = append(o.kept[:0], o.kept[tooMuch:]...)
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.kept))
}

// stderr accepts standard error.
type stderr struct{ output *output }

func (s stderr) Write(p []byte) (int, error) {
	s.output.mu.Lock()
	defer s.output.mu.Unlock()
	s.output.keep(p)
	return len(p), nil
}
