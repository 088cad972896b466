//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestSend_LargeMessageThatIsGivenUpDoesNotSpoilTheNext(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	large := make([]byte, 220<<10)
	var sending sync.WaitGroup
	for i := range 8 {
		sending.Go(func() {
			for k := range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				given := k%3 != 0
				if given {
					time.AfterFunc(time.Duration((i*60+k)%40)*100*time.Microsecond, cancel)
				}
				msgs := []core.Outgoing{{ID: fmt.Sprint(i, " ", k), Queue: "q", Body: large}}
				if k%2 == 0 { // a batch
					msgs = []core.Outgoing{{ID: fmt.Sprint(i, " ", k, " a"), Queue: "q", Body: large[:100<<10]}, {ID: fmt.Sprint(i, " ", k, " b"), Queue: "q", Body: large[:100<<10]}}
				}
				if err := transport.Send(ctx, msgs...); err != nil && (!given || !errors.Is(err, context.Canceled)) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	sending.Wait()
}

func TestSend_OpensAnotherConnectionWhereNothingWasSentOnTheLostOne(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "a", "b", "c")
	send(t, transport, "a", "opens a connection")
	for _, queue := range []string{"b", "c"} {
		s.CutConnections()
		send(t, transport, queue, "opens a link")
	}
}

func TestClose_LeavesNoConnectionOfASendInProgress(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	const queues = 17 // one more than are sent to at a time
	msgs := make([]core.Outgoing, queues)
	names := make([]string, queues)
	for i := range msgs {
		names[i] = fmt.Sprint("q", i)
		msgs[i] = core.Outgoing{ID: names[i], Queue: names[i]}
	}
	s.provisioned(t, asb.Config{}, names...)
	transport, err := asb.New(s.configured(asb.Config{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Times: -1, Action: sbserver.Silence})
	sent := make(chan error, 1)
	go func() { sent <- transport.Send(t.Context(), msgs...) }()
	await(t, "messages are sent", func() bool { return s.Count(sbserver.OpSend, "") == queues-1 })
	connections := s.Count(sbserver.OpConnect, "")
	if err := transport.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-sent; !errors.Is(err, core.ErrClosed) {
		t.Errorf("Send returned %v", err)
	}
	if n := s.Count(sbserver.OpConnect, ""); n != connections {
		t.Errorf("%d connections were opened after Close", n-connections)
	}
}

func TestSend_MessagesAfterALostBatchAreRefused(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	msgs := make([]core.Outgoing, 4) // of which two fit into a batch
	for i := range msgs {
		msgs[i] = core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Body: make([]byte, 100<<10)}
	}
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Action: sbserver.Cut})
	err := transport.Send(t.Context(), msgs...)
	sendErr, ok := errors.AsType[*core.SendError](err)
	if !ok {
		t.Fatalf("Send returned %v", err)
	}
	for i, want := range []core.SendState{core.SendUnknown, core.SendUnknown, core.SendRefused, core.SendRefused} {
		if got := sendErr.Results[i].State; got != want {
			t.Errorf("message %d is %v, want %v", i, got, want)
		}
	}
}
