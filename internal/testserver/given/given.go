//go:build darwin || linux

// Package given is for tests that run on an existing server, named by an environment
// variable, which they must leave as it was.
//
// A second process of the test binary, the [Cleaner], removes the objects that the tests have
// made: at the end of the tests, and also when they are interrupted, time out or are killed.
package given

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// Prefix begins the names of all objects that tests create on a given server, except for the
// names that the conformance suite and the adapter choose.
const Prefix = "reprise_test_"

// OnlyConformance reports whether the flag -run selects only tests whose names begin with
// TestConformance: these run on a given server, and start none. The flags must have been
// parsed.
func OnlyConformance(run string) (bool, error) {
	list := exec.Command(os.Args[0], "-test.list", topLevel(run)) //nolint:gosec // it is this program
	list.Env = append(os.Environ(), listVariable+"=1")
	out, err := list.Output()
	if err != nil {
		return false, fmt.Errorf("given: list the tests that -run=%s chooses: %w", run, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "TestConformance") {
			return false, nil
		}
	}
	return true, nil
}

const listVariable = "REPRISE_TEST_LIST"

// IsListing reports whether this process only lists the tests, for OnlyConformance. If so,
// TestMain starts nothing.
func IsListing() bool { return os.Getenv(listVariable) != "" }

// topLevel returns the part of a -run pattern that selects tests, without the part for
// subtests.
func topLevel(pattern string) string {
	depth := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		case '/':
			if depth == 0 {
				return pattern[:i]
			}
		}
	}
	return pattern
}

// Network is a conformance.Network made of a proxy. Only the connections of the transports
// under test go through the proxy.
type Network struct{ Proxy *proxy.Proxy }

// NewNetwork returns a network in front of the server at addr, and closes it at the end of
// the test.
func NewNetwork(t testing.TB, addr string) *Network {
	t.Helper()
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Network{p}
}

// Port returns the port of 127.0.0.1 to connect to.
func (n *Network) Port() string {
	_, port, _ := net.SplitHostPort(n.Proxy.Addr()) // Addr always has a port
	return port
}

// Cut implements conformance.Network.
func (n *Network) Cut(t testing.TB) (restore func()) {
	if err := n.Proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	n.Proxy.Cut()
	return func() {
		if err := n.Proxy.Accept(); err != nil {
			t.Error(err)
		}
	}
}

// Partition implements conformance.Network.
func (n *Network) Partition(testing.TB) (heal func()) {
	n.Proxy.Stall()
	return n.Proxy.Resume
}
