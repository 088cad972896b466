//go:build darwin || linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/process"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// sqsVariable makes this program the stand-in for Amazon SQS: it has sqsOptions as JSON.
const sqsVariable = "REPRISE_SOAK_SQS"

// sqsOptions are the options of the server process.
type sqsOptions struct {
	Addr, Journal string
}

// sqsServer is the stand-in for Amazon SQS in a process that can be killed and stopped. Its
// journal outlives the process. Its methods may be called concurrently.
type sqsServer struct {
	options sqsOptions
	port    *loopback.Port
	dir     string // of the journal
	log     process.Tail
	life    process.Life

	mu       sync.Mutex
	commands io.Writer // the standard input of the last process
}

// startSQSServer starts a server, and returns when it answers. The caller must call stop.
func startSQSServer() (_ *sqsServer, err error) {
	port, err := loopback.Reserve()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "reprise-soak-sqs-")
	if err != nil {
		return nil, errors.Join(err, port.Release())
	}
	s := &sqsServer{options: sqsOptions{port.Addr(), filepath.Join(dir, "journal")}, port: port, dir: dir}
	if err := s.life.Begin(s.run); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// run starts a process, and returns when it accepts connections.
func (s *sqsServer) run() (*process.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(s.options)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), sqsVariable+"="+string(options))
	commands, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(cmd, &s.log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.commands = commands
	s.mu.Unlock()
	for deadline := time.Now().Add(process.Patience); ; {
		conn, err := net.Dial("tcp", s.options.Addr)
		if err == nil {
			return p, conn.Close()
		}
		select {
		case <-p.Exited():
			return nil, errors.Join(fmt.Errorf("the server has ended: %s", &s.log), p.Wait())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("the server does not accept connections: %w", err), p.Kill())
		}
	}
}

// Kill implements server.
func (s *sqsServer) Kill() error { return s.life.End((*process.Process).Kill) }

// Shutdown implements server.
func (s *sqsServer) Shutdown() error { return s.life.End(shutDown) }

func shutDown(p *process.Process) error { return p.Stop(syscall.SIGTERM) }

// Restart implements server.
func (s *sqsServer) Restart() error { return errors.Join(s.Shutdown(), s.life.Begin(s.run)) }

// Freeze implements server.
func (s *sqsServer) Freeze() error { return s.life.Freeze() }

// Thaw implements server.
func (s *sqsServer) Thaw() error { return s.life.Thaw() }

// stop ends the server permanently, and removes its journal.
func (s *sqsServer) stop() error {
	return s.life.Stop(shutDown, func() error { return errors.Join(os.RemoveAll(s.dir), s.port.Release()) })
}

// An sqsCommand injects faults into the running server. The zero value ends all faults.
type sqsCommand struct {
	Throttle       bool // every request is rejected
	LoseAnswers    bool // every request is carried out, and its connection is closed without an answer
	FailSettlement bool // the first entry of each batch of settlements fails
	Duplicates     int  // each queue delivers n messages twice
}

// do sends a command to the server.
func (s *sqsServer) do(c sqsCommand) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.commands.Write(append(line, '\n'))
	return err
}

// sqsMain runs the server's process. It returns its exit status.
func sqsMain(encoded string) int {
	if err := serveSQS(encoded); err != nil {
		fmt.Fprintln(os.Stderr, "soak: sqs:", err)
		return 1
	}
	return 0
}

func serveSQS(encoded string) error {
	var o sqsOptions
	if err := json.Unmarshal([]byte(encoded), &o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := testserver.Start(testserver.Config{Addr: o.Addr, File: o.Journal, AccessKey: sqsAccessKey})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- obeySQS(s, os.Stdin) }()
	select {
	case err = <-failed: // or the soak has ended
	case <-ctx.Done():
	}
	return errors.Join(err, s.Stop())
}

// obeySQS carries out commands until the input ends.
func obeySQS(s *testserver.Server, from io.Reader) error {
	for lines := bufio.NewScanner(from); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		var c sqsCommand
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("%q is no command: %w", lines.Text(), err)
		}
		s.ClearFaults()
		permanent := testserver.Match{Times: -1}
		if c.Throttle {
			s.Reject(permanent, testserver.Throttling)
		}
		if c.LoseAnswers {
			s.LoseAnswer(permanent)
		}
		if c.FailSettlement {
			for _, operation := range []string{"DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
				s.FailEntry(testserver.Match{Operation: operation, Times: -1}, 0, testserver.InternalFailure)
			}
		}
		if c.Duplicates > 0 {
			for _, queue := range s.Queues() {
				s.DuplicateDeliveries(queue, c.Duplicates)
			}
		}
	}
}
