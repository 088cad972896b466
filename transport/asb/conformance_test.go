//go:build darwin || linux

package asb_test

import (
	"os"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/given"
)

// Plain queues, and queues with sessions where it is about groups: on our own server, or on the namespace that the environment names.
func TestConformance(t *testing.T) {
	t.Parallel()
	if isGiven() {
		conformance.Run(t, givenHarness(t, "asb"))
		return
	}
	n := startNamespace(t)
	n.setChild(t)
	h := n.harness("asb")
	h.Separate = func(t testing.TB) conformance.Harness { return startNamespace(t).harness("asb") }
	if testing.Short() {
		h.Rules = shortRules
	}
	conformance.Run(t, h)
}

// shortRules are for short runs: those of sending, receiving, settling, provisioning, publishing and groups. The others are the
// engine's, for which the in-memory transport is enough there, or wait for locks and outages.
var shortRules = []string{"C2", "C3", "C5", "C7", "C8", "C9", "C18", "C19", "C24", "R28"}

// TestMain removes the entities that tests have made in a namespace that the environment names.
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

const (
	shortLock = 8 * time.Second // for the cases that wait until a lock has ended
	// longLock ends before a connection that has fallen silent is noticed, after a minute: its messages stay locked until then.
	longLock = 45 * time.Second
)

// namespace is our own server, which the suite kills.
type namespace struct {
	*site
	*service
}

func startNamespace(t testing.TB) *namespace {
	s := startSite(t, sbserver.Config{
		Key: secretKey, Broker: broker.Config{Dir: t.TempDir()},
		// The server must notice a connection that has fallen silent before the client connects anew, which is after a minute.
		AMQP: amqp10.Config{IdleTimeout: 30 * time.Second},
	})
	return &namespace{s, newService(t, s.address(), "")}
}

func (n *namespace) harness(name string) conformance.Harness {
	h := n.service.harness(name)
	h.Broker = n
	h.Connections = func(testing.TB) int { return n.Server.Connections() }
	return h
}

// Kill implements conformance.Broker.
func (n *namespace) Kill(t testing.TB) {
	if err := n.Server.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Start implements conformance.Broker.
func (n *namespace) Start(t testing.TB) {
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Partition implements conformance.Broker.
func (n *namespace) Partition(t testing.TB) (heal func()) { return n.network.Partition(t) }
