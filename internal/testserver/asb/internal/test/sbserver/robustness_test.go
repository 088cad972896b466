//go:build darwin || linux

package sbserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// TestMain fails if a server that was closed has left a goroutine.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftGoroutines(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines of servers that were closed still run:\n\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks of goroutines of servers that do not end, "" for none.
func leftGoroutines() string {
	var left []string
	for range 200 {
		left = nil
		b := make([]byte, 16<<20)
		b = b[:runtime.Stack(b, true)]
		for stack := range strings.SplitSeq(string(b), "\n\n") {
			if strings.Contains(stack, "testserver/asb/amqp10.(") || strings.Contains(stack, "testserver/asb/sbserver.(") || strings.Contains(stack, "testserver/asb/sbserver/broker.(") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		time.Sleep(10 * time.Millisecond) // one that has done its work may not have returned
	}
	return strings.Join(left, "\n\n")
}

// TestMessages_SurviveFaults sends and completes messages while replies get lost, links are
// detached, connections are cut and the server is killed: no message may be lost.
func TestMessages_SurviveFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a server: not in short runs")
	}
	t.Parallel()
	s, err := sbserver.Start(sbserver.Config{Broker: broker.Config{
		Dir: t.TempDir(), AutoCreate: true,
		AutoQueue: properties.Queue{LockDuration: time.Second, MaxDeliveryCount: 1000},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const senders, each = 3, 500
	var mu sync.Mutex
	missing := map[string]bool{}
	for i := range senders * each {
		missing[fmt.Sprint(i)] = true
	}
	done, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() { sendUntilAccepted(done, t, s, i*each, each) })
	}
	for range 4 {
		c := connect(t, s.ConnectionString())
		all.Go(func() {
			r, err := c.NewReceiverForQueue("q", nil)
			if err != nil {
				t.Error(err)
				return
			}
			for done.Err() == nil {
				ms, err := r.ReceiveMessages(done, 20, nil)
				if err != nil { // fatal for the SDK after too many retries
					continue
				}
				for _, m := range ms {
					returns(func() { complete(done, r, m) })
					mu.Lock()
					delete(missing, string(m.Body))
					if len(missing) == 0 {
						stop()
					}
					mu.Unlock()
				}
			}
		})
	}
	disturb(done, t, s)
	// The SDK closes links with context.Background, and waits for answers that a fault has lost until the connection ends.
	// Some of its calls never end.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Wait()
	}()
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	timeout := time.After(stuckAfter)
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-timeout:
			t.Log("the SDK has not returned from a call")
			waiting = false
		case <-ticks.C:
			s.CutConnections()
		}
	}
	if ctx.Err() != nil {
		t.Errorf("%d messages are missing", len(missing))
	}
}

// stuckAfter is how long a call of the SDK may take that has a fraction of a second, before it is left behind.
const stuckAfter = 30 * time.Second

// returns makes a call of the SDK, and reports whether it returned. go-amqp v1.7.0 may wait for ever where a link ends while a
// frame is written (Sender.send, rollback).
func returns(call func()) bool {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	select {
	case <-returned:
		return true
	case <-time.After(stuckAfter):
		return false
	}
}

// complete completes a message, or does not: the message is then delivered again, unless only the
// reply was lost.
func complete(ctx context.Context, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_ = r.CompleteMessage(ctx, m, nil)
}

// sendUntilAccepted sends n messages, each until the server has accepted it.
func sendUntilAccepted(ctx context.Context, t *testing.T, s *sbserver.Server, first, n int) {
	var sender *azservicebus.Sender
	for i := first; i < first+n; i++ {
		for accepted := false; !accepted && ctx.Err() == nil; {
			if sender == nil {
				var err error
				if sender, err = connect(t, s.ConnectionString()).NewSender("q", nil); err != nil {
					t.Error(err)
					return
				}
			}
			sent := make(chan error, 1)
			try, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			if returns(func() { sent <- sender.SendMessage(try, &azservicebus.Message{Body: fmt.Append(nil, i)}, nil) }) {
				accepted = <-sent == nil
			} else {
				sender = nil
			}
			cancel()
		}
	}
}

// disturb disturbs the server until ctx is done.
func disturb(ctx context.Context, t *testing.T, s *sbserver.Server) {
	ops := [][]sbserver.Op{{sbserver.OpSend}, {sbserver.OpComplete}, {sbserver.OpDeliver}, {sbserver.OpRelease}, {sbserver.OpToken}, {sbserver.OpAttachReceiver}}
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	remove := func() {}
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		remove() // faults that act on nothing would meet the next connection all at once
		switch {
		case i%40 == 0:
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
			if err := s.Restart(); err != nil {
				t.Error(err)
				return
			}
		case i%15 == 0:
			s.CutConnections()
		case i%10 == 0:
			s.DetachLinks("q", amqp10.Errorf(amqp10.ErrDetachForced, "disturbed"))
		default:
			remove = s.Inject(sbserver.Fault{
				Ops: ops[rand.IntN(len(ops))], Action: sbserver.Action(rand.IntN(int(sbserver.Cut) + 1)),
				TakesEffect: rand.IntN(2) == 0, Delay: time.Duration(rand.IntN(3)) * time.Millisecond,
			})
		}
	}
}

func TestClose_EndsClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	for range 3 {
		nc, err := net.Dial("tcp", n.Addr())
		n.ok(err)
		t.Cleanup(func() { nc.Close() })
	}
	n.await("the connections", func() bool { return n.Count(sbserver.OpConnect, "") == 3 })
	n.ok(n.Close())
	if _, err := net.Dial("tcp", n.Addr()); err == nil {
		t.Error("the server accepts connections after Close")
	}
}

func TestServeConn_OnAPipe(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	client, server := net.Pipe()
	n.ServeConn(server)
	c, err := amqp.NewConn(n.ctx, client, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	putToken(n, c, "amqp://host/q")
	s, err := c.NewSession(n.ctx, nil)
	n.ok(err)
	sender, err := s.NewSender(n.ctx, "q", nil)
	n.ok(err)
	n.ok(sender.Send(n.ctx, amqp.NewMessage([]byte("a")), nil))
	c.Close() // a pipe has no orderly end for go-amqp
	n.ok(n.Kill())
	client, server = net.Pipe()
	n.ServeConn(server)
	if _, err := client.Write([]byte("A")); err == nil {
		t.Error("a server that does not run took a connection")
	}
	n.ok(n.Restart())
	n.receive(n.receiver("q"), "a")
}
