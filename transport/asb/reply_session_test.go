package asb_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// A client that names a session for the reply finds it there, also if its request was refused
// before, and if the endpoint does not know that the queue has sessions. A queue without sessions
// has the reply as well.
func TestReply_GoesIntoTheSessionThatTheRequestNames(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{SessionQueues: []string{"answers"}}, "answers")
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	for name, sessionQueues := range map[string][]string{"known": {"answers"}, "unknown": nil} {
		t.Run(name, func(t *testing.T) {
			transport := s.provisioned(t, asb.Config{SessionQueues: sessionQueues}, "shop-"+name, "plain-"+name, "error")
			shop, err := core.New("shop-"+name, transport, core.Config{
				MessageType: func(*core.Incoming) string { return "ask" },
				Provision:   core.ProvisionNever,
			})
			if err != nil {
				t.Fatal(err)
			}
			var refused sync.Map
			core.HandleDefault(shop, func(_ context.Context, m *core.Message) error {
				if _, before := refused.LoadOrStore(m.ID, true); !before {
					return core.Refuse(core.ErrCircuitOpen, time.Millisecond)
				}
				return m.Reply(core.NewMessageType[[]byte]("answer").Of([]byte("to " + m.ID)))
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- shop.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			for _, queue := range []string{"answers", "plain-" + name} {
				id, session := queue+" "+name, "session of "+name
				sendForeign(t, s, "shop-"+name, &azservicebus.Message{MessageID: &id, Body: []byte("?"), ReplyTo: &queue, ReplyToSessionID: &session})
				var receiver interface {
					ReceiveMessages(ctx context.Context, n int, o *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
				}
				if queue == "answers" {
					receiver, err = client.AcceptSessionForQueue(t.Context(), queue, session, nil)
				} else {
					receiver, err = client.NewReceiverForQueue(queue, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				inTime, cancel := context.WithTimeout(t.Context(), patience)
				t.Cleanup(cancel)
				got, err := receiver.ReceiveMessages(inTime, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body := string(got[0].Body); body != "to "+id {
					t.Errorf("the reply is %q", body)
				}
			}
		})
	}
}
