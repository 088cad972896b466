//go:build darwin || linux

package sqs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/given"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// Standard queues, and FIFO queues where it is about groups, in the format of NServiceBus: on our own server, or on
// the service that the environment names.
func TestConformance(t *testing.T) {
	t.Parallel()
	if isGiven() {
		conformance.Run(t, givenHarness(t, "sqs", sqs.Config{}))
		return
	}
	s := startServer(t)
	s.setChild(t, "sqs")
	h := s.harness("sqs", sqs.Config{})
	h.Separate = func(t testing.TB) conformance.Harness { return startServer(t).harness("sqs", sqs.Config{}) }
	if testing.Short() {
		h.Rules = shortRules
	}
	conformance.Run(t, h)
}

// shortRules are for short runs: those of sending, receiving, settling, provisioning, publishing and groups. The others
// are the engine's, for which the in-memory transport is enough there, or take longer: closing a receiver waits for its last
// request.
var shortRules = []string{"C2", "C3", "C5", "C8", "C9", "C18", "C19", "C24"}

const (
	accessKey = "AKIAREPRISETEST"
	secretKey = "the-secret-of-the-tests"
)

// shortVisibility is for the cases that wait until a lock has ended.
const (
	shortVisibility = 8 * time.Second
	longVisibility  = 10 * time.Minute
)

// TestMain removes the queues and topics of tests on a service that the environment names.
func TestMain(m *testing.M) {
	if given.IsCleaner() {
		os.Exit(given.Clean(removeGiven))
	}
	_, child := os.LookupEnv(conformance.HarnessVariable)
	conformance.Main(m, openInChild)
	if !child {
		leaveGiven()
	}
}

// server is our own server, which the suite kills.
type server struct {
	*testserver.Server
	*service
}

func startServer(t testing.TB) *server {
	// A receiver that closes waits for its last poll, and most cases close several.
	s := testserver.StartFor(t, testserver.Config{File: filepath.Join(t.TempDir(), "journal"), MaxWait: 200 * time.Millisecond})
	return &server{s, newService(t, s.URL())}
}

func (s *server) harness(name string, cfg sqs.Config) conformance.Harness {
	h := s.service.harness(name, cfg)
	h.Broker = s
	return h
}

// Kill implements conformance.Broker.
func (s *server) Kill(t testing.TB) {
	if err := s.Server.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Start implements conformance.Broker.
func (s *server) Start(t testing.TB) {
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Partition implements conformance.Broker.
func (s *server) Partition(t testing.TB) (heal func()) { return s.network.Partition(t) }
