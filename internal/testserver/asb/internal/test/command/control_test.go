//go:build darwin || linux

package command_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/internal/testserver/asb"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
)

// The command as a process, with its faults and its journal.
func TestCommand_FailsAndRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program and kills its process: not in short runs")
	}
	t.Parallel()
	ctx := t.Context()
	s, err := asb.Start(ctx, asb.Options{Key: "secret", Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	managing, err := admin.NewClientFromConnectionString(s.ConnectionString(s.Addr()), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: sbserver.NewAdminTransport(s.AdminAddr())},
	})
	must(err)
	_, err = managing.CreateQueue(ctx, "q", nil)
	must(err)
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(s.Addr()), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 20, RetryDelay: time.Millisecond, MaxRetryDelay: 100 * time.Millisecond},
	})
	must(err)
	defer client.Close(ctx)
	sender, err := client.NewSender("q", nil)
	must(err)
	send := func() error { return sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("body")}, nil) }

	must(s.Inject(ctx, asb.Fault{Ops: []string{asb.OpSend}, Times: -1, Action: asb.Refuse}))
	if err := send(); err == nil {
		t.Error("a message was sent while the server is busy")
	}
	must(s.ClearFaults(ctx))
	must(send())
	for _, act := range []func() error{
		func() error { return s.DetachLinks(ctx) },
		func() error { return s.CloseConnections(ctx) },
		func() error { return s.Kill() },
	} {
		must(act())
		must(s.Restart())
		must(send())
	}
	counts, err := s.Counts(ctx)
	must(err)
	if counts[asb.OpSend] != 1 {
		t.Errorf("the last process counted %v, want one send", counts)
	}

	receiver, err := client.NewReceiverForQueue("q", nil)
	must(err)
	for received := 0; received < 4; {
		messages, err := receiver.ReceiveMessages(ctx, 4, nil)
		must(err)
		for _, m := range messages {
			must(receiver.CompleteMessage(ctx, m, nil))
			received++
		}
	}
	must(s.ExpireLocks(ctx))
	if err := s.Inject(ctx, asb.Fault{Action: "nonsense"}); err == nil {
		t.Error("an unknown action was accepted")
	}
}
