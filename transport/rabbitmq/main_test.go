package rabbitmq_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// server is for every test of the package that does not stop it, server4 the same of the
// next major version. Each test uses a virtual host of its own.
var server, server4 *rabbitmq.Server

func TestMain(m *testing.M) {
	if _, child := os.LookupEnv(conformance.HarnessVariable); !child { // which has its parent's servers
		for _, s := range []struct {
			server  **rabbitmq.Server
			release rabbitmq.Release
		}{{&server, rabbitmq.V3}, {&server4, rabbitmq.V4}} {
			started, err := rabbitmq.Start(rabbitmq.Config{Release: s.release})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			*s.server = started
			defer func() {
				if err := started.Stop(); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}()
		}
	}
	conformance.Main(m, openInChild)
}
