package filetransport_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

func open(t testing.TB, cfg filetransport.Config) *filetransport.Transport {
	t.Helper()
	transport, err := filetransport.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(t.Context()) })
	return transport
}

// opened returns a transport with an empty queue "orders", and its directory.
func opened(t testing.TB, cfg filetransport.Config) (transport *filetransport.Transport, dir string) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	transport = open(t, cfg)
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders"}}); err != nil {
		t.Fatal(err)
	}
	return transport, filepath.Join(cfg.Dir, "orders.queue")
}

func receiver(t testing.TB, transport *filetransport.Transport, maxInFlight int) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: maxInFlight})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(t testing.TB, transport *filetransport.Transport, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if err := transport.Send(t.Context(), core.Outgoing{ID: body, Queue: "orders", Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
}

// receive waits for one delivery.
func receive(t testing.TB, r core.Receiver) core.Delivery {
	t.Helper()
	dst := make([]core.Delivery, 1)
	if n, err := r.Receive(t.Context(), dst); n != 1 || err != nil {
		t.Fatalf("Receive = %d, %v", n, err)
	}
	return dst[0]
}

func settled(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func matches(t testing.TB, subject string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, which does not match %v", subject, err, target)
		}
	}
}

func equal[T comparable](t testing.TB, subject string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", subject, got, want)
	}
}

// names returns what is in a directory.
func names(t testing.TB, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		names = append(names, file.Name())
	}
	return names
}

// put writes a file as a kill or somebody else may have left it.
func put(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// at is a time as the names tell it.
func at(when time.Time) string { return when.UTC().Format("20060102T150405.000000000Z") }

// past and future are far enough from now.
func past() string   { return at(time.Now().Add(-time.Hour)) }
func future() string { return at(time.Now().Add(time.Hour)) }
