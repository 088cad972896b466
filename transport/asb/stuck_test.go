//go:build darwin || linux

package asb_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/asb"
)

// These tests make the SDK's calls go on after their contexts have ended: for ever, or for two minutes.

// bound is how long a call may take in these tests: longer than the adapter waits for the SDK, and less than two minutes.
const bound = 115 * time.Second

// bounded fails the test if a call does not return within bound.
func bounded[T any](t *testing.T, name string, call func() T) T {
	t.Helper()
	returned := make(chan T, 1)
	go func() { returned <- call() }()
	select {
	case v := <-returned:
		return v
	case <-time.After(bound):
		t.Fatalf("%s has not returned", name)
		panic("unreachable")
	}
}

// notReturned is a part of the error of a call that was given up.
const notReturned = "the SDK has not returned"

// sendStalled sends messages until the SDK does not return from one, because the window is closed, and returns the error.
func (s *site) sendStalled(t *testing.T, transport *asb.Transport, queue string) error {
	t.Helper()
	for {
		s.CloseWindows(queue)
		err := bounded(t, "Send", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return transport.Send(ctx, core.Outgoing{ID: "stalled", Queue: queue})
		})
		if err != nil && strings.Contains(err.Error(), notReturned) {
			return err
		}
	}
}

func TestSend_IsGivenUpWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "slow")
	send(t, transport, "q", "before")
	send(t, transport, "slow", "before")
	// The other messages on the connection keep it until they are answered.
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Entity: "slow", Delay: 30 * time.Second})
	slow := make(chan error, 1)
	go func() { slow <- transport.Send(t.Context(), core.Outgoing{ID: "slow", Queue: "slow"}) }()
	await(t, "the slow message is sent", func() bool { return s.Count(sbserver.OpSend, "slow") == 2 })
	connections := s.Connections()
	err := s.sendStalled(t, transport, "q")
	if failed, ok := errors.AsType[*core.SendError](err); !ok || failed.Results[0].State != core.SendUnknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Send returned %v; want an unknown outcome and the error of the context", err)
	}
	send(t, transport, "q", "after it")
	if s.Connections() == connections {
		t.Error("the connection was not replaced")
	}
	select {
	case err := <-slow:
		t.Errorf("the slow message was answered too early, with %v, to tell", err)
	default:
	}
	if err := bounded(t, "the slow Send", func() error { return <-slow }); err != nil {
		t.Errorf("a message that another one's connection was taken from: %v", err)
	}
}

// isRunning reports whether a goroutine is in a function. Tests that call it are not parallel.
func isRunning(function string) bool {
	stacks := make([]byte, 16<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(function+"("))
}

// go-amqp v1.7.0 waits for ever where the context ends before the message is written, and the link before the caller
// has been told: Sender.send returns credit to a link that has ended. Even the end of the connection does not end it.
func TestSend_IsGivenUpWhereItsLinkEndsAtTheSameTime(t *testing.T) {
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	for range 2000 { // on one processor the two rarely meet
		send(t, transport, "q", "before")
		s.CloseWindows("q")
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan error, 1)
		go func() { sent <- transport.Send(ctx, core.Outgoing{ID: "id", Queue: "q"}) }()
		await(t, "the SDK sends", func() bool { return isRunning("go-amqp.(*Sender).send") || len(sent) > 0 })
		s.DetachLinks("q", amqp10.Errorf(amqp10.ErrDetachForced, "idle"))
		cancel()
		s.OpenWindows("q")
		if err := bounded(t, "Send", func() error { return <-sent }); err != nil && strings.Contains(err.Error(), notReturned) {
			send(t, transport, "q", "after it")
			return
		}
	}
	t.Fatal("the SDK has always returned; to fix: remove the test if a new version does")
}

// grace is how long the adapter waits for the SDK after the end of a context.
const grace = 5 * time.Second

// checkStalled checks that a call of the SDK was given up since.
func checkStalled(t *testing.T, began time.Time) {
	t.Helper()
	if took := time.Since(began); took < grace {
		t.Errorf("it took %v: the SDK has returned", took)
	}
}

func TestRenew_IsRepeatedWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "a", "b")
	taken := take(t, openReceiver(t, transport, "q", 2), 2)
	s.CloseWindows("q/$management")
	complete(t, taken[0])
	began := time.Now()
	if err := bounded(t, "Renew", func() error { return taken[1].Renew(t.Context()) }); err != nil {
		t.Error(err)
	}
	checkStalled(t, began)
	complete(t, taken[1])
}

func TestSettle_IsRepeatedWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "a", "b")
	taken := take(t, openReceiver(t, transport, "q", 2), 2)
	s.CloseWindows("q/$management")
	complete(t, taken[0])
	s.DetachLinks("q", amqp10.Errorf(amqp10.ErrDetachForced, "idle"))
	began := time.Now()
	if err := bounded(t, "Complete", func() error { return taken[1].Complete(t.Context()) }); err != nil {
		t.Error(err)
	}
	checkStalled(t, began)
	if n := s.Count(sbserver.OpComplete, "q"); n != 2 {
		t.Errorf("the service has %d completions, want 2", n)
	}
}

func TestSession_IsLostWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock, SessionQueues: []string{"q"}}, "q")
	send(t, transport, "q", "a", "b")
	r := openReceiver(t, transport, "q", 2)
	taken := take(t, r, 2)
	s.CloseWindows("q/$management")
	complete(t, taken[0])
	began := time.Now()
	if err := bounded(t, "Renew", func() error { return taken[1].Renew(t.Context()) }); err == nil {
		t.Error("Renew succeeded")
	}
	checkStalled(t, began)
	if err := bounded(t, "Complete", func() error { return taken[1].Complete(t.Context()) }); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Complete returned %v; want %v, since its connection was replaced", err, core.ErrLockLost)
	}
	complete(t, take(t, r, 1)[0])
}

// loseEnd loses the end of a receiver's link. The SDK waits for it for two minutes, and then returns the messages that
// came before, here "second". The receiver has returned "first"; taken gets the messages that it returns. Its transport is for
// no other calls: they would wait for such ends too.
func (s *site) loseEnd(t *testing.T, mode core.TransactionMode, lock time.Duration) (r core.Receiver, first core.Delivery, taken <-chan core.Delivery) {
	other := s.provisioned(t, asb.Config{LockDuration: lock}, "q")
	network := proxy.NewNetwork(t)
	r, err := openConfigured(t, s.configured(asb.Config{}, network)).OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: mode, MaxInFlight: 3, MaxDeliveries: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan core.Delivery)
	go func() {
		for dst := make([]core.Delivery, 3); len(dst) > 0; { // in None a link has a request only for a Receive
			n, err := r.Receive(t.Context(), dst)
			if err != nil {
				return // it is closed
			}
			for _, d := range dst[:n] {
				received <- d
			}
			dst = dst[n:]
		}
	}()
	send(t, other, "q", "first")
	first = <-received
	await(t, "the SDK waits for the second one", func() bool { return isRunning("azservicebus.(*Receiver).fetchMessages") })
	heal := network.Partition(t) // so that the message and the end of its link arrive together
	asked := s.Count(sbserver.OpDeliver, "q")
	send(t, other, "q", "second")
	await(t, "it is delivered", func() bool { return s.Count(sbserver.OpDeliver, "q") > asked })
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.DetachLinks("q", amqp10.Errorf(amqp10.ErrDetachForced, "idle"))
	s.LoseEnds()
	heal()
	await(t, "the SDK waits for the end of the link's session", func() bool { return isRunning("amqpwrap.(*AMQPSessionWrapper).Close") })
	return r, first, received
}

// awaitReturn waits until the SDK receives no more, since the connection has ended.
func awaitReturn(t *testing.T) {
	t.Helper()
	bounded(t, "the SDK", func() bool {
		await(t, "it returns", func() bool { return !isRunning("azservicebus.(*Receiver).ReceiveMessages") })
		return true
	})
}

func TestReceive_UsesAnotherConnectionWhereTheEndOfALinkIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until calls of the SDK are given up: not in short runs")
	}
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionNone} {
		t.Run(mode.String(), func(t *testing.T) {
			s := startSite(t, sbserver.Config{})
			r, first, taken := s.loseEnd(t, mode, longestLock)
			send(t, s.open(t, asb.Config{}), "q", "third")
			var bodies []string
			for range 2 {
				d := bounded(t, "Receive", func() core.Delivery { return <-taken })
				if n := d.Incoming().DeliveryCount; n != 1 {
					t.Errorf("%q was received with the count %d; want 1", d.Incoming().Body, n)
				}
				complete(t, d)
				bodies = append(bodies, string(d.Incoming().Body))
			}
			if slices.Sort(bodies); !slices.Equal(bodies, []string{"second", "third"}) {
				t.Errorf("%q were received; want the second and the third one", bodies)
			}
			complete(t, first)
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			awaitReturn(t)
		})
	}
}

func TestClose_EndsWhereTheEndOfALinkIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until calls of the SDK are given up: not in short runs")
	}
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionNone} {
		t.Run(mode.String(), func(t *testing.T) {
			s := startSite(t, sbserver.Config{})
			r, first, _ := s.loseEnd(t, mode, 5*time.Second)
			complete(t, first)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := bounded(t, "Close", func() error { return r.Close(ended) }); err != nil {
				t.Error(err)
			}
			awaitReturn(t)
			second := take(t, openReceiver(t, s.open(t, asb.Config{}), "q", 1), 1)[0]
			if body := string(second.Incoming().Body); body != "second" {
				t.Errorf("%q was received; want %q", body, "second")
			}
			complete(t, second)
		})
	}
}

// stallTokens lets no request on $cbs end on links that are opened from now on. Such a request holds the SDK's locks, so that
// it opens and closes no link.
func (s *site) stallTokens() (remove func()) {
	return s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpAttachSender}, Entity: "$cbs", Times: -1, Action: sbserver.CloseWindow})
}

// shortContext returns a context that ends soon.
func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestCalls_EndWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{SessionQueues: []string{"sessions"}}, "plain", "sessions")
	remove := s.stallTokens()
	transport := s.open(t, asb.Config{SessionQueues: []string{"sessions"}})
	t.Run("calls", func(t *testing.T) {
		for _, queue := range []string{"plain", "sessions"} {
			topology := core.Topology{InputQueue: queue, Queues: []string{queue}}
			receiver := core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10}
			for name, call := range map[string]func(ctx context.Context) error{
				"Send":         func(ctx context.Context) error { return transport.Send(ctx, core.Outgoing{ID: "id", Queue: queue}) },
				"Check":        func(ctx context.Context) error { return transport.Check(ctx, topology) },
				"Purge":        func(ctx context.Context) error { _, err := transport.Purge(ctx, queue); return err },
				"OpenReceiver": func(ctx context.Context) error { _, err := transport.OpenReceiver(ctx, receiver); return err },
			} {
				t.Run(name+", "+queue, func(t *testing.T) {
					t.Parallel()
					for began := time.Now(); time.Since(began) < grace; { // until a call gets so far
						began = time.Now()
						err := bounded(t, name, func() error { return call(shortContext(t)) })
						if err == nil {
							t.Fatal("it succeeded without a token")
						}
						if failed, ok := errors.AsType[*core.SendError](err); ok && failed.Results[0].State != core.SendRefused {
							t.Errorf("the error is %v; want that nothing was sent", err)
						}
					}
				})
			}
		}
	})
	remove()
	send(t, transport, "plain", "message")
	complete(t, take(t, openReceiver(t, transport, "plain", 1), 1)[0])
}

func TestClose_EndsWhereTheSDKDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "message")
	r := openReceiver(t, transport, "q", 1)
	d := take(t, r, 1)[0]
	s.stallTokens()
	asked := s.Count(sbserver.OpAttachSender, "$cbs")
	s.CutConnections()
	sender := s.open(t, asb.Config{})
	sent, completed := make(chan error, 1), make(chan error, 1)
	go func() { sent <- sender.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q"}) }()
	go func() { completed <- d.Complete(t.Context()) }()
	await(t, "links are opened", func() bool { return s.Count(sbserver.OpAttachSender, "$cbs") >= asked+2 })
	_ = bounded(t, "the receiver's Close", func() error { return r.Close(shortContext(t)) })
	_ = bounded(t, "Close of its transport", func() error { return transport.Close(shortContext(t)) })
	_ = bounded(t, "Close of the other one", func() error { return sender.Close(shortContext(t)) })
	if err := bounded(t, "Send", func() error { return <-sent }); err == nil {
		t.Error("Send succeeded without a token")
	}
	if err := bounded(t, "Complete", func() error { return <-completed }); err == nil {
		t.Error("Complete succeeded without a token")
	}
}

// An application's function for connections may not return, with the SDK's lock held.
func TestSend_EndsWhereADialDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{}, "a", "b")
	release := make(chan struct{})
	cfg := s.configured(asb.Config{}, nil)
	cfg.Client.NewWebSocketConn = func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		<-release
		return net.Dial("tcp", s.Addr())
	}
	transport := openConfigured(t, cfg)
	sent := make(chan error, 2)
	for _, queue := range []string{"a", "b"} {
		go func() { sent <- transport.Send(shortContext(t), core.Outgoing{ID: "id", Queue: queue}) }()
	}
	for range cap(sent) {
		err := bounded(t, "Send", func() error { return <-sent })
		if failed, ok := errors.AsType[*core.SendError](err); !ok || failed.Results[0].State != core.SendRefused {
			t.Errorf("Send returned %v; want that no message was sent", err)
		}
	}
	_ = bounded(t, "Close", func() error { return transport.Close(shortContext(t)) })
	opened, open := s.Count(sbserver.OpConnect, ""), s.Connections()
	close(release)
	await(t, "a connection is opened too late", func() bool { return s.Count(sbserver.OpConnect, "") > opened })
	await(t, "it is closed", func() bool { return s.Connections() <= open })
}

func TestSend_PanicsInTheCallersGoroutine(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	cfg := s.configured(asb.Config{}, nil)
	cfg.Client.NewWebSocketConn = func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) { panic("a mistake") }
	transport := openConfigured(t, cfg)
	defer func() {
		if reason, _ := recover().(string); !strings.Contains(reason, "a mistake") || !strings.Contains(reason, "stuck_test.go") {
			t.Errorf("it panics with %q; want the reason and the place", reason)
		}
	}()
	err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q"})
	t.Errorf("Send returned %v", err)
}
