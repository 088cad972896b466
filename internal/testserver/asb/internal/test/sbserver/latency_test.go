//go:build darwin || linux

package sbserver_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
)

func TestLatency_DelaysAnswersAndKeepsTheirOrder(t *testing.T) {
	t.Parallel()
	const latency = 30 * time.Millisecond
	n := open(t, sbserver.Config{Latency: latency})
	sender := n.sender("q")
	for i := range 5 {
		began := time.Now()
		if err := sender.SendMessage(n.ctx, &azservicebus.Message{Body: []byte{byte(i)}}, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < latency {
			t.Errorf("the answer came after %v, want %v at least", took, latency)
		}
	}
	// With locks, the SDK would give back messages that arrive between two calls, and get them later.
	receiver := n.receiverWith("q", azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	for i := 0; i < 5; {
		messages, err := receiver.ReceiveMessages(n.ctx, 5, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if int(m.Body[0]) != i {
				t.Errorf("message %d came in place of %d", m.Body[0], i)
			}
			i++
		}
	}
}
