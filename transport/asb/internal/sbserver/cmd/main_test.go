//go:build darwin || linux

package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestRun_ServesTheEntitiesOfItsFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, body := range []string{"first", "second"} { // the second run has the entities from the journal
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- run(ctx, []string{
				"-addr", "127.0.0.1:0", "-admin-addr", "127.0.0.1:0", "-dir", dir, "-lock", "3s", "-max-delivery-count", "1", "-tier", "Premium",
				"-queue", "q", "-topic", "t=s1,s2",
			}, in)
			in.Close()
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("%v, %v", err, <-ended)
		}
		c, err := azservicebus.NewClientFromConnectionString(strings.TrimSpace(line), nil)
		if err != nil {
			t.Fatal(err)
		}
		sender, err := c.NewSender("t", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(body)}, nil); err != nil {
			t.Fatal(err)
		}
		r, err := c.NewReceiverForSubscription("t", "s2", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(ctx, 1, nil)
		if err != nil || string(ms[0].Body) != body {
			t.Fatalf("received %v, %v", ms, err)
		}
		if lock := ms[0].LockedUntil.Sub(*ms[0].EnqueuedTime).Seconds(); lock < 3 || lock >= 60 {
			t.Errorf("the lock lasts %v s", lock)
		}
		if err := r.AbandonMessage(ctx, ms[0], nil); err != nil { // the only delivery
			t.Fatal(err)
		}
		c.Close(ctx)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestRun_RefusesArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-nonsense"}, {"-tier", "Basic"}, {"-addr", "nowhere"}, {"-addr", "127.0.0.1:0", "-admin-addr", "127.0.0.1:0", "-topic", "?"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
