//go:build darwin || linux

package command_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestCommand_ServesTheEntitiesOfItsFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program: not in short runs")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "sbserver")
	if text, err := exec.Command("go", "build", "-o", program, "github.com/reprise-go/reprise/internal/testserver/asb/sbserver/cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	dir := t.TempDir()
	for _, body := range []string{"first", "second"} { // the second run has the entities from the journal
		ctx := t.Context()
		server := exec.Command(program, "-addr", "127.0.0.1:0", "-admin-addr", "127.0.0.1:0", "-dir", dir, "-lock", "3s",
			"-max-delivery-count", "1", "-tier", "Premium", "-queue", "q", "-topic", "t=s1,s2")
		out, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Process.Kill() }) // if the test fails
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
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
		if err := errors.Join(server.Process.Signal(os.Interrupt), server.Wait()); err != nil {
			t.Error(err)
		}
	}
}
