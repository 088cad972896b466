package rabbitmq_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// server is for every test of the package that does not stop it, server4 the same of the
// next major version. Each test uses a virtual host of its own.
var server, server4 *rabbitmq.Server

func TestMain(m *testing.M) {
	if given.IsCleaner() {
		os.Exit(given.Clean(removeGiven))
	}
	_, child := os.LookupEnv(conformance.HarnessVariable) // which has its parent's servers
	if !child && !given.IsListing() && !givenAlone() {
		server, server4 = start(rabbitmq.V3), start(rabbitmq.V4)
		defer stop(server)
		defer stop(server4)
	}
	conformance.Main(m, openInChild)
	if !child {
		leaveGiven()
	}
}

func start(release rabbitmq.Release) *rabbitmq.Server {
	s, err := rabbitmq.Start(rabbitmq.Config{Release: release})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return s
}

func stop(s *rabbitmq.Server) {
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
