//go:build darwin || linux

// Package fauxqs starts fauxqs, a server for SQS and SNS by other authors, in
// TypeScript, as a second opinion about the adapter and about our own server, package
// internal/testserver/sqs: both of these are by the same authors.
//
// scripts/servers installs the version that package-lock.json names, and for Linux a Node.js
// that it runs on. A server ends with the process that started it, also when that is
// killed (on macOS it does not).
//
// Fauxqs 2.4.1 is known to differ from AWS's documentation:
//
//   - The characters from U+10000 on are refused.
//   - Of a FIFO queue a request brings one message of each group at most; order and locks are
//     right. A delete with a handle whose lock has ended succeeds there.
//   - Handles that it never gave are taken, and the entries of a batch fail together or not at
//     all: sends, deletes and changes of visibility. Some errors have other codes.
//   - DelaySeconds over 900, more than ten attributes, empty attributes, a redrive policy with
//     a target that does not exist, and some attributes of queues are not refused.
//   - The attributes AWSTraceHeader, DeadLetterQueueSourceArn, and MessageGroupId of a standard
//     queue are lost. Sources of a dead-letter queue are not listed, and messages not moved
//     back.
//   - A second PurgeQueue within a minute succeeds, and messages do not expire.
package fauxqs

import (
	_ "embed" // serve.mjs
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/process"
)

// Version is the version of fauxqs that is tested on.
const Version = "2.4.1"

// directoryVariable names the directory in which npm has installed fauxqs, instead of the
// one in the cache.
const directoryVariable = "REPRISE_TEST_FAUXQS"

//go:embed serve.mjs
var program string

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	port *loopback.Port
	log  process.Tail
	life process.Life
}

// Start starts a server with nothing in it, and returns when it accepts connections, usually
// within a second. The caller calls Stop.
func Start() (*Server, error) {
	s, err := start()
	if err != nil {
		return nil, fmt.Errorf("fauxqs: start: %w", err)
	}
	return s, nil
}

// StartFor is Start for a test, and stops the server at its end.
func StartFor(t testing.TB) *Server {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func start() (*Server, error) {
	directory, err := find()
	if err != nil {
		return nil, err
	}
	node, err := findNode(directory)
	if err != nil {
		return nil, err
	}
	port, err := loopback.Reserve()
	if err != nil {
		return nil, err
	}
	s := &Server{port: port}
	err = s.life.Begin(func() (*process.Process, error) {
		// Node.js looks for packages from the working directory.
		cmd := exec.Command(node, "--no-warnings", "--input-type=module", "--eval", program, "--", strconv.Itoa(port.Number()))
		cmd.Dir = directory
		return process.Start(cmd, &s.log, syscall.SIGKILL)
	})
	if err == nil {
		err = s.await()
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// await returns when the server accepts connections.
func (s *Server) await() error {
	for deadline := time.Now().Add(process.Patience); ; {
		conn, err := net.Dial("tcp", s.Addr())
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not accept connections: %w", err)
		}
		select {
		case <-s.life.Running().Exited():
			return fmt.Errorf("it has ended: %s", s.log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Addr returns the address of the server, such as "127.0.0.1:40000".
func (s *Server) Addr() string { return s.port.Addr() }

// URL returns the endpoint for the SDK's option BaseEndpoint.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Log returns the end of the server's output.
func (s *Server) Log() string { return s.log.String() }

// Stop ends the server. The second time it does nothing.
func (s *Server) Stop() error {
	// Nothing is kept, so it may die.
	if err := s.life.Stop((*process.Process).Kill, s.port.Release); err != nil {
		return fmt.Errorf("fauxqs: stop: %w", err)
	}
	return nil
}

// find returns the directory that fauxqs is installed in. The error says how to get one.
func find() (string, error) {
	directory, err := installed()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(directory, "node_modules", "fauxqs", "package.json"))
	if err != nil {
		return "", fmt.Errorf("fauxqs %s is not installed: %w; to fix: run scripts/servers, or npm ci in internal/testserver/fauxqs and set %s to that directory", Version, err, directoryVariable)
	}
	var of struct{ Version string }
	if err := json.Unmarshal(text, &of); err != nil {
		return "", fmt.Errorf("read the version of fauxqs in %s: %w", directory, err)
	}
	if of.Version != Version {
		return "", fmt.Errorf("%s has fauxqs %s, not %s; to fix: run scripts/servers", directory, of.Version, Version)
	}
	return directory, nil
}

// installed returns where scripts/servers installs fauxqs.
func installed() (string, error) {
	if directory := os.Getenv(directoryVariable); directory != "" {
		if !filepath.IsAbs(directory) {
			return "", fmt.Errorf("%s is %q; set it to an absolute path, since each test has a directory of its own", directoryVariable, directory)
		}
		return directory, nil
	}
	cache := os.Getenv("XDG_CACHE_HOME") // also on macOS, as in scripts/servers
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no directory for fauxqs, set %s to one: %w", directoryVariable, err)
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "reprise", "fauxqs"), nil
}

// findNode returns the Node.js that was installed with fauxqs, or else the one in the PATH.
func findNode(directory string) (string, error) {
	if found, _ := filepath.Glob(filepath.Join(directory, "node_modules", "node-*", "bin", "node")); len(found) > 0 {
		return found[0], nil
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("fauxqs %s needs Node.js 22.5 or later: %w; to fix: install it and put it into the PATH", Version, err)
	}
	return node, nil
}
