package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A stage is an endpoint of the run, and a step in the processing of an order.
type stage int

const (
	orders   stage = iota // receives an order, sends a command to shipping and publishes an event
	shipping              // receives the command
	notices               // subscribes to the event
	stages
)

// String returns the name of the endpoint, which is also the name of its queue.
func (s stage) String() string {
	return [stages]string{"orders", "shipping", "notices"}[s]
}

// A factKind is the kind of an event that a worker reports.
type factKind byte

const (
	factReady   factKind = 'R' // the endpoints receive
	factRefused factKind = 'S' // Run returned an error before that
	factEnded   factKind = 'E' // Run returned after that, although it was not asked to
	factBegan   factKind = 'B' // the handler of an order that always fails has begun
	factFailed  factKind = 'F' // a handler failed
	factHandled factKind = 'H' // a handler ended without an error
)

// A fact is one line of a worker's report. A worker writes each fact with one system
// call, so that a fact is either complete or missing when the worker is killed.
type fact struct {
	kind  factKind
	at    time.Time
	took  time.Duration // the duration of a handler that ended without an error
	stage stage
	id    int    // of the order
	text  string // of an error
}

// String returns the fact as a line, with a newline.
func (f fact) String() string {
	return fmt.Sprintf("%c %d %d %d %d %q\n", f.kind, f.at.UnixNano(), f.took, f.stage, f.id, f.text)
}

// parseFact reads a line that String has written, without its newline.
func parseFact(line string) (fact, error) {
	fail := func() (fact, error) { return fact{}, fmt.Errorf("%q is no fact", line) }
	fields := strings.SplitN(line, " ", 6)
	if len(fields) != 6 || len(fields[0]) != 1 || !strings.Contains("RSEBFH", fields[0]) {
		return fail()
	}
	nanos, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return fail()
	}
	took, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return fail()
	}
	step, err := strconv.Atoi(fields[3])
	if err != nil || step < 0 || step >= int(stages) {
		return fail()
	}
	id, err := strconv.Atoi(fields[4])
	if err != nil || id < 0 {
		return fail()
	}
	text, err := strconv.Unquote(fields[5])
	if err != nil {
		return fail()
	}
	return fact{kind: factKind(fields[0][0]), at: time.Unix(0, nanos), took: time.Duration(took), stage: stage(step), id: id, text: text}, nil
}

// A factLog is a file with all facts, from which the history of an order can be read. The
// zero value writes no file. Its methods may be called concurrently.
type factLog struct {
	mu     sync.Mutex
	file   *os.File
	buffer *bufio.Writer
}

func newFactLog(name string) (*factLog, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &factLog{file: file, buffer: bufio.NewWriter(file)}, nil
}

// write writes a fact, after the name of the worker's log. close returns its error.
func (l *factLog) write(worker string, f fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buffer != nil {
		fmt.Fprintf(l.buffer, "%s %s", worker, f)
	}
}

func (l *factLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.buffer.Flush(), l.file.Close())
}
