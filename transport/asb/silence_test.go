//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestRenew_IsRepeatedWhereItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"plain", "sessions"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{SessionQueues: []string{"sessions"}}, queue)
			send(t, transport, queue, "message")
			d := take(t, openReceiver(t, transport, queue, 1), 1)[0]
			s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpRenewLock, sbserver.OpRenewSession}, Action: sbserver.Silence})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for d.Renew(ctx) != nil { // the engine renews again, as long as the lock holds
				if ctx.Err() != nil {
					t.Fatal("it waited for the answer until its context ended")
				}
			}
		})
	}
}

func TestComplete_LeavesRepetitionsToTheEngine(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "message")
	d := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Times: -1, Action: sbserver.Refuse})
	if err := d.Complete(t.Context()); err == nil || errors.Is(err, core.ErrLockLost) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the service is busy, and Complete returned %v", err)
	}
	if n := s.Count(sbserver.OpComplete, "q"); n > 3 {
		t.Errorf("it was tried %d times, between which the SDK pauses for ever longer; want 3 at most: on the link, and twice by its lock", n)
	}
	remove()
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSettle_DoesNotOutliveItsContextWhileAnotherCallOpensALink(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "a", "b")
	taken := take(t, openReceiver(t, transport, "q", 2), 2)
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpPeek}, Times: -1, Action: sbserver.Silence}) // which the receiver's links begin with
	s.CutConnections()
	asked := s.Count(sbserver.OpPeek, "q")
	patient := make(chan error, 1)
	go func() { patient <- taken[0].Complete(t.Context()) }()
	await(t, "the first call opens a link", func() bool { return s.Count(sbserver.OpPeek, "q") > asked })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := taken[1].Complete(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second call returned %v", err)
	}
	select {
	case err := <-patient:
		t.Errorf("the first call returned %v before the second one", err)
	default:
	}
	remove()
	if err := <-patient; err != nil {
		if err := taken[0].Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// changes notes the changes that it is told of.
type changes struct {
	mu   sync.Mutex
	lost []error
}

func (c *changes) ConnectionChanged(change core.ConnectionChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !change.Connected {
		c.lost = append(c.lost, change.Err)
	}
}

func (c *changes) outages() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func TestReceiver_ReportsAServiceThatDoesNotAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a request has taken too long: not in short runs")
	}
	t.Parallel()
	for _, queue := range []string{"plain", "sessions"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{SessionQueues: []string{"sessions"}}, queue)
			var told changes
			if _, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
				Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10, ConnectionChanged: told.ConnectionChanged,
			}); err != nil {
				t.Fatal(err)
			}
			s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpPeek, sbserver.OpListSessions}, Times: -1, Action: sbserver.Silence})
			s.CutConnections()
			before := 0
			await(t, "the connection is lost", func() bool { before = len(told.outages()); return before > 0 })
			await(t, "the request that is not answered is told of", func() bool {
				for _, err := range told.outages() {
					if errors.Is(err, context.DeadlineExceeded) {
						return true
					}
				}
				return false
			})
		})
	}
}

func TestReceiver_CloseEndsWithItsContextWhereTheServiceIsSilent(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"plain", "sessions"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			cfg := asb.Config{SessionQueues: []string{"sessions"}}
			send(t, s.provisioned(t, cfg, queue), queue, "a", "b", "c")
			network := proxy.NewNetwork(t)
			transport := openConfigured(t, s.configured(cfg, network))
			r := openReceiver(t, transport, queue, 5)
			take(t, r, 3)
			network.Silence()
			ctx, cancel := context.WithCancel(t.Context())
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = r.Close(ctx)
			}()
			await(t, "it is closing", func() bool {
				_, err := r.Receive(t.Context(), make([]core.Delivery, 1))
				return errors.Is(err, core.ErrClosed)
			})
			select {
			case <-closed:
				t.Error("it was closed before the messages were given back")
			default:
			}
			cancel()
			select {
			case <-closed:
			case <-time.After(8 * time.Second): // in which neither the links' grace nor the connection's silence ends
				t.Error("Close went on after its context had ended")
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = transport.Close(ended)
		})
	}
}

// Neither side is told of a line that falls silent: the connection's idle time-out has to find out.
func TestConnection_ThatHasFallenSilentIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for more than the minute after which a silent connection is noticed: not in short runs")
	}
	t.Parallel()
	for name, silence := range map[string]func(*proxy.Network){"nothing arrives": (*proxy.Network).Silence, "no answer arrives": (*proxy.Network).SilenceBroker} {
		for _, queue := range []string{"plain", "sessions"} {
			t.Run(name+", "+queue, func(t *testing.T) {
				t.Parallel()
				s := startSite(t, sbserver.Config{})
				cfg := asb.Config{SessionQueues: []string{"sessions"}, LockDuration: 5 * time.Second} // until then the service keeps messages for the old connection
				other := s.provisioned(t, cfg, queue)
				network := proxy.NewNetwork(t)
				transport := openConfigured(t, s.configured(cfg, network))
				r := openReceiver(t, transport, queue, 5)
				send(t, transport, queue, "before")
				complete(t, take(t, r, 1)[0])
				silence(network)
				sent := make(chan error, 1)
				go func() {
					sent <- transport.Send(t.Context(), core.Outgoing{ID: "lost", Queue: queue, Body: []byte("lost")})
				}()
				send(t, other, queue, "after it")
				for {
					d := take(t, r, 1)[0]
					body := string(d.Incoming().Body)
					await(t, body+" is consumed", func() bool { return d.Complete(t.Context()) == nil || time.Now().After(d.LockedUntil()) })
					if body == "after it" {
						break
					}
				}
				select {
				case err := <-sent:
					if sendErr, ok := errors.AsType[*core.SendError](err); !ok || sendErr.Results[0].State != core.SendUnknown {
						t.Errorf("Send returned %v; whether the service has the message is not known", err)
					}
				case <-time.After(patience):
					t.Error("Send has not returned")
				}
				await(t, "another connection is used", func() bool {
					return transport.Send(t.Context(), core.Outgoing{ID: "on another connection", Queue: queue}) == nil
				})
			})
		}
	}
}
