package rabbitmq_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/given"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// TestMain stops the servers that tests have started. A child process of the conformance
// suite uses its parent's.
func TestMain(m *testing.M) {
	if given.IsCleaner() {
		os.Exit(given.Clean(removeGiven))
	}
	_, child := os.LookupEnv(conformance.HarnessVariable)
	defer func() {
		if err := rabbitmq.StopServers(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	conformance.Main(m, openInChild)
	if !child {
		leaveGiven()
	}
}

// onBoth runs a test on the shared server of each release: one whose outcome depends on the
// broker's answers, limits or errors.
func onBoth(t *testing.T, run func(t *testing.T, s *site)) {
	for _, release := range rabbitmq.Releases() {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			run(t, newSite(t, rabbitmq.SharedServer(t, release)))
		})
	}
}

// onNewest runs a test on the shared server of the newest release: one of the transport's
// own work, for which releases do not differ.
func onNewest(t *testing.T, run func(t *testing.T, s *site)) {
	t.Helper()
	run(t, newestSite(t))
}

// newestSite is a virtual host on the shared server of the newest release.
func newestSite(t testing.TB) *site {
	t.Helper()
	return newSite(t, rabbitmq.SharedServer(t, testserver.V4))
}

// onOwnServers runs tests that change the whole of their server, or stop it, one after the
// other on a server of each release that is theirs.
func onOwnServers(t *testing.T, settings map[string]string, tests []ownServerTest) {
	for _, release := range rabbitmq.Releases() {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			own := testserver.StartFor(t, testserver.Config{Release: release, Settings: settings})
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) {
					b := brokerOn(t, own)
					test.run(t, b, &site{Server: own, vhost: b.vhost})
				})
			}
		})
	}
}

type ownServerTest struct {
	name string
	run  func(t *testing.T, b *broker, s *site)
}
