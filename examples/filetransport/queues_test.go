package filetransport_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

func TestOpen_Refuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, filepath.Dir(file), "file", "")
	for name, cfg := range map[string]filetransport.Config{
		"no directory":           {},
		"a file":                 {Dir: file},
		"a negative lock":        {Dir: t.TempDir(), LockDuration: -1},
		"a negative poll":        {Dir: t.TempDir(), PollInterval: -1},
		"a directory in a file":  {Dir: filepath.Join(file, "dir")},
		"everything that can be": {LockDuration: -1, PollInterval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if transport, err := filetransport.New(cfg); transport != nil || err == nil {
				t.Errorf("New = %v, %v", transport, err)
			}
		})
	}
}

func TestQueueName_Accepted(t *testing.T) {
	dir := t.TempDir()
	transport := open(t, filetransport.Config{Dir: filepath.Join(dir, "messages")})
	queues := []string{
		"orders", "Orders of today", "a/b", "..", ".", "../../etc/passwd", "/", `a\b`, "%2F", "a+b", "a b", "ä", "a\x00b",
		".hidden", "orders.queue", "q:*?<>|", "_1_x_new", longest, longest[1:] + "b",
	}
	if err := transport.Provision(t.Context(), core.Topology{Queues: queues}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"messages"}) {
		t.Errorf("beside the directory: %q", got)
	}
	if got := names(t, filepath.Join(dir, "messages")); len(got) != len(queues) {
		t.Errorf("%d queues have these directories: %q", len(queues), got)
	}
	for _, queue := range queues {
		if address, err := transport.Address(queue); address != queue || err != nil {
			t.Errorf("Address(%q) = %q, %v", queue, address, err)
		}
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: queue, Body: []byte(queue)}); err != nil {
			t.Errorf("Send to %q: %v", queue, err)
		}
	}
	for _, queue := range queues {
		r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "received from "+queue, string(receive(t, r).Incoming().Body), queue)
	}
}

// longest is the longest name of a queue.
var longest = string(slices.Repeat([]byte("x"), 249))

func TestQueueName_Refused(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	for _, queue := range []string{"", longest + "x", "\xff", string(slices.Repeat([]byte("/"), 84))} {
		_, err := transport.Address(queue)
		if err == nil {
			t.Errorf("Address accepts %q", queue)
		}
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{queue}}); err == nil {
			t.Errorf("Provision accepts %q", queue)
		}
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: queue}); err == nil {
			t.Errorf("Send accepts %q", queue)
		}
	}
	if got := names(t, filepath.Dir(dir)); !slices.Equal(got, []string{"orders.queue"}) {
		t.Errorf("directories: %q", got)
	}
}

func TestQueue_Unknown(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	missing := core.Outgoing{ID: "b", Queue: "order", Body: []byte("b")}
	err := transport.Send(t.Context(), core.Outgoing{ID: "a", Queue: "orders"}, missing, core.Outgoing{ID: "c", Queue: "orders"})
	matches(t, "Send", err, core.ErrQueueNotFound)
	var failed *core.SendError
	if !errors.As(err, &failed) {
		t.Fatalf("Send: %v", err)
	}
	for i, want := range []core.SendState{core.SendAccepted, core.SendRefused, core.SendRefused} {
		equal(t, failed.Results[i].ID, failed.Results[i].State, want)
	}
	equal(t, "messages", len(names(t, dir)), 1)
	if got := names(t, filepath.Dir(dir)); !slices.Equal(got, []string{"orders.queue"}) {
		t.Errorf("directories: %q", got)
	}
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "order"}}
	err = transport.Check(t.Context(), topology)
	matches(t, "Check", err, core.ErrQueueNotFound)
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("Check says more than is wrong: %v", err)
	}
	_, err = transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "order", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	matches(t, "OpenReceiver", err, core.ErrQueueNotFound)

	r := receiver(t, transport, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Receive(t.Context(), make([]core.Delivery, 1)); n != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Receive from a queue that was removed = %d, %v", n, err)
	}
}
