package filetransport_test

import (
	"crypto/rand"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

// snippet: main

// dirVariable tells a child process where the messages are.
const dirVariable = "FILETRANSPORT_DIR"

func TestMain(m *testing.M) {
	if os.Getenv(dirVariable) == "" { // in a child process it is set
		dir, err := os.MkdirTemp("", "filetransport-")
		if err == nil {
			err = os.Setenv(dirVariable, dir)
		}
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
	}
	conformance.Main(m, func() (core.Transport, error) { return connect(shortLocks) })
}

const (
	shortLocks = 4 * time.Second  // for cases that wait until a lock ends
	longLocks  = 10 * time.Minute // for all others: none ends because the machine is busy
)

func connect(locks time.Duration) (core.Transport, error) {
	return filetransport.New(filetransport.Config{Dir: os.Getenv(dirVariable), LockDuration: locks})
}

// end

// snippet: run

func TestConformance(t *testing.T) {
	open := func(locks time.Duration) func(t testing.TB) core.Transport {
		return func(t testing.TB) core.Transport {
			transport, err := connect(locks)
			if err != nil {
				t.Fatal(err)
			}
			return transport
		}
	}
	conformance.Run(t, conformance.Harness{
		Name:           "filetransport",
		Open:           open(longLocks),
		OpenShortLocks: open(shortLocks),
		Corrupt: func(t testing.TB, queue string) []byte {
			content := []byte("not a line of JSON")
			putFile(t, queue, content)
			return content
		},
	})
}

// end

// snippet: benchmark

func BenchmarkTransport(b *testing.B) {
	conformance.Benchmark(b, conformance.Harness{Open: func(t testing.TB) core.Transport {
		transport, err := filetransport.New(filetransport.Config{Dir: filepath.Join(b.TempDir(), "messages")})
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}})
}

// end

// putFile puts a file with any content where a message is expected.
func putFile(t testing.TB, queue string, content []byte) {
	t.Helper()
	name := time.Now().UTC().Format("20060102T150405.000000000Z") + "_1_" + rand.Text() + "_new"
	file := filepath.Join(os.Getenv(dirVariable), url.QueryEscape(queue)+".queue", name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
