//go:build darwin || linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/process"
)

// workerVariable makes this program a worker: it has a processOptions as JSON. The
// options are in the environment because other users can read a command line.
const workerVariable = "REPRISE_SOAK_WORKER"

// factsFile is the file descriptor to which a worker writes its facts.
const factsFile = 3

// childMain runs the program in the processes that it starts: as a worker or as the
// stand-in for Amazon SQS. It returns false in any other process.
func childMain() (status int, isChild bool) {
	if options := os.Getenv(workerVariable); options != "" {
		return workerMain(options), true
	}
	if options := os.Getenv(sqsVariable); options != "" {
		return sqsMain(options), true
	}
	return 0, false
}

// processOptions are the options of a worker that is a process.
type processOptions struct {
	System  string // the kind of transport, such as systemPostgres
	Config  json.RawMessage
	Mode    core.TransactionMode
	Ordered bool
	Pace    time.Duration
}

// processWorker is a worker that is a process.
type processWorker struct {
	p      *process.Process
	done   chan struct{}
	failed error // to be read after done
}

// startProcess starts this program again, as a worker.
func startProcess(system string, config any, w workerOptions, log io.Writer) (worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(processOptions{system, encoded, w.mode, w.ordered, w.pace})
	if err != nil {
		return nil, err
	}
	facts, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(options))
	cmd.ExtraFiles = []*os.File{input} // becomes factsFile
	p, err := process.Start(cmd, log, syscall.SIGKILL)
	if err = errors.Join(err, input.Close()); err != nil {
		return nil, errors.Join(err, facts.Close())
	}
	worker := &processWorker{p: p, done: make(chan struct{})}
	go func() {
		defer close(worker.done)
		err := recordFacts(facts, w.record)
		worker.failed = errors.Join(p.Wait(), err, facts.Close())
	}()
	return worker, nil
}

// recordFacts records facts until their end. A killed worker's facts are complete lines,
// because each was written with one system call.
func recordFacts(from io.Reader, record func(fact)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f, err := parseFact(lines.Text())
		if err != nil {
			return err
		}
		record(f)
	}
	return lines.Err()
}

func (w *processWorker) kill() error {
	err := w.p.Kill()
	<-w.done
	return err
}

// stop implements worker. A worker that does not end within process.Patience is killed.
func (w *processWorker) stop() error {
	err := w.p.Stop(syscall.SIGTERM)
	<-w.done
	return err
}

func (w *processWorker) ended() <-chan struct{} { return w.done }

func (w *processWorker) err() error { return w.failed }

// workerMain runs a worker that is a process. It returns its exit status.
func workerMain(encoded string) int {
	var o processOptions
	if err := json.Unmarshal([]byte(encoded), &o); err != nil {
		fmt.Fprintln(os.Stderr, "soak: worker:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	facts := os.NewFile(factsFile, "facts")
	j, err := newProcessJob(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak: worker:", err)
		return 2
	}
	j.mode, j.ordered, j.pace = o.Mode, o.Ordered, o.Pace
	j.log = os.Stderr
	j.record = func(f fact) {
		if _, err := io.WriteString(facts, f.String()); err != nil {
			os.Exit(2) // the soak has ended
		}
	}
	err = j.run(ctx)
	err = errors.Join(err, j.transport.Close(context.WithoutCancel(ctx)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak: worker:", err)
		return 1
	}
	return 0
}

// Kinds of transports of workers that are processes.
const (
	systemPostgres = "postgres"
	systemRabbit   = "rabbitmq"
	systemSQS      = "sqs"
	systemASB      = "asb"
)
