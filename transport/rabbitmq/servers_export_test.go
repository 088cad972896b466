package rabbitmq

import (
	"errors"
	"sync"
	"testing"

	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// servers are for every test of the package that neither stops its server nor changes
// the whole of it, one of each release. The first test that needs one starts it, and
// each test uses a separate virtual host.
var servers = [...]sharedServer{testserver.V3: {release: testserver.V3}, testserver.V4: {release: testserver.V4}}

type sharedServer struct {
	release testserver.Release
	once    sync.Once
	started *testserver.Server
	err     error
}

// SharedServer returns the server of a release that tests share.
func SharedServer(t testing.TB, release testserver.Release) *testserver.Server {
	t.Helper()
	s := &servers[release]
	s.once.Do(func() {
		s.started, s.err = testserver.Start(testserver.Config{
			Release: release,
			Plugins: []string{"rabbitmq_shovel"},
			TLS:     true,
			Settings: map[string]string{
				"ssl_options.verify":               "verify_peer", // where there is a certificate
				"ssl_options.fail_if_no_peer_cert": "false",
			},
		})
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.started
}

// StopServers stops the servers that tests have started.
func StopServers() (err error) {
	for i := range servers {
		if s := servers[i].started; s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	return err
}

// Releases are those that tests run on: in short runs the newest alone, which starts faster.
func Releases() []testserver.Release {
	if testing.Short() {
		return []testserver.Release{testserver.V4}
	}
	return []testserver.Release{testserver.V3, testserver.V4}
}
