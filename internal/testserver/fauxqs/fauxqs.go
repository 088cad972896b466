//go:build darwin || linux

// Package fauxqs starts fauxqs, a server for SQS and SNS in TypeScript by other authors. It
// is a second opinion about the adapter and about our server, package
// internal/testserver/sqs, which have the same authors.
//
// scripts/servers installs the version in package-lock.json, and on Linux a Node.js to run
// it. A server ends with the process that started it, even if that is killed (not on macOS).
//
// Fauxqs 2.4.1 is known to differ from AWS's documentation:
//
//   - It refuses characters from U+10000 on.
//   - A receive request on a FIFO queue returns at most one message of each group; order and
//     locks are right. A delete on it with a handle whose lock has ended succeeds.
//   - It accepts handles that it never issued. The entries of a batch succeed or fail together:
//     sends, deletes and changes of visibility. Some errors have other codes.
//   - It accepts DelaySeconds over 900, more than ten attributes, empty attributes, a redrive
//     policy whose target does not exist, and some invalid attributes of queues.
//   - It loses the attributes AWSTraceHeader, DeadLetterQueueSourceArn, and MessageGroupId of a
//     standard queue. It does not list the sources of a dead-letter queue, and does not move
//     messages back.
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

// Version is the tested version of fauxqs.
const Version = "2.4.1"

// directoryVariable names the directory in which npm has installed fauxqs, instead of the one
// in the cache.
const directoryVariable = "REPRISE_TEST_FAUXQS"

//go:embed serve.mjs
var program string

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	port *loopback.Port
	log  process.Tail
	life process.Life
}

// Start starts an empty server, and returns when it accepts connections, usually within a
// second. The caller must call Stop.
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

// Stop ends the server. A second call does nothing.
func (s *Server) Stop() error {
	// The server keeps nothing on disk, so it may be killed.
	if err := s.life.Stop((*process.Process).Kill, s.port.Release); err != nil {
		return fmt.Errorf("fauxqs: stop: %w", err)
	}
	return nil
}

// find returns the directory in which fauxqs is installed. The error says how to install it.
func find() (string, error) {
	directory, err := installed()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(directory, "node_modules", "fauxqs", "package.json"))
	if err != nil {
		return "", fmt.Errorf("fauxqs %s is not installed: %w; to fix: run scripts/servers, or npm ci in internal/testserver/fauxqs and set %s to that directory", Version, err, directoryVariable)
	}
	var parsed struct{ Version string }
	if err := json.Unmarshal(text, &parsed); err != nil {
		return "", fmt.Errorf("read the version of fauxqs in %s: %w", directory, err)
	}
	if parsed.Version != Version {
		return "", fmt.Errorf("%s has fauxqs %s, not %s; to fix: run scripts/servers", directory, parsed.Version, Version)
	}
	return directory, nil
}

// installed returns the directory in which scripts/servers installs fauxqs.
func installed() (string, error) {
	if directory := os.Getenv(directoryVariable); directory != "" {
		if !filepath.IsAbs(directory) {
			return "", fmt.Errorf("%s is %q; set it to an absolute path, since each test has a separate directory", directoryVariable, directory)
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
