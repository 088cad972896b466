package featureswitch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/featureswitch"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// shop is an endpoint that notes the messages that it has handled, in a bubble.
type shop struct {
	*testing.T
	transport *inmemory.Transport
	endpoint  *core.Endpoint

	mu      sync.Mutex
	handled []string // "refund 1": type, number of the attempt
}

func newSwitch(t *testing.T, c featureswitch.Config) *featureswitch.Switch {
	t.Helper()
	if c.Name == "" {
		c.Name = "refunds"
	}
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := featureswitch.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens a transport that has changed capabilities.
func open(t *testing.T, change func(c *core.Capabilities)) *inmemory.Transport {
	t.Helper()
	caps := inmemory.Everything()
	if change != nil {
		change(&caps)
	}
	transport, err := inmemory.New(inmemory.Config{Capabilities: &caps})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	return transport
}

// inShop runs body with an endpoint that has the middleware.
func inShop(t *testing.T, middleware core.Middleware, change func(c *core.Capabilities), body func(s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{T: t, transport: open(t, change)}
		ep, err := core.New("shop", s.transport, core.Config{
			Transactions:   core.TransactionReceiveOnly,
			Middleware:     []core.Middleware{middleware},
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
			Logger:         slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.endpoint = ep
		for _, messageType := range []string{"refund", "order"} {
			core.Handle(ep, core.NewMessageType[string](messageType), func(_ context.Context, m *core.Message, _ string) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.handled = append(s.handled, fmt.Sprint(m.Type, " ", m.Attempt))
				return nil
			})
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		body(s)
	})
}

func (s *shop) send(messageTypes ...string) {
	s.Helper()
	for _, messageType := range messageTypes {
		if err := s.endpoint.Send(s.Context(), "shop", core.NewMessageType[string](messageType).Of("x")); err != nil {
			s.Fatal(err)
		}
	}
	synctest.Wait()
}

// expect checks the messages that were handled since the last call.
func (s *shop) expect(when string, want ...string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.handled)
	slices.Sort(want)
	if !slices.Equal(s.handled, want) {
		s.Errorf("%s: handled %q, want %q", when, s.handled, want)
	}
	s.handled = nil
}

// left checks how many messages a queue holds, in any state.
func (s *shop) left(queue string, want int) {
	s.Helper()
	synctest.Wait()
	depth, err := s.transport.Depth(s.Context(), queue)
	if err != nil {
		s.Fatal(err)
	}
	if depth.Ready+depth.Locked+depth.Delayed != want {
		s.Errorf("queue %q holds %+v, want %d", queue, depth, want)
	}
}

func TestSwitch_OffAnswers(t *testing.T) {
	for answer, want := range map[featureswitch.Answer]struct{ queue, failed, dead int }{
		featureswitch.Leave:   {queue: 1},
		featureswitch.Discard: {},
		featureswitch.Skip:    {},
		featureswitch.Defer:   {queue: 1},
		featureswitch.Reject:  {dead: 1},
		featureswitch.Fail:    {failed: 1},
	} {
		t.Run(answer.String(), func(t *testing.T) {
			s := newSwitch(t, featureswitch.Config{State: featureswitch.Off, Off: answer})
			inShop(t, s.For("refund"), nil, func(shop *shop) {
				shop.send("refund", "order")
				time.Sleep(10 * time.Second)
				shop.expect("while it is off", "order 1")
				shop.left("shop", want.queue)
				shop.left("error", want.failed)
				shop.left(inmemory.DeadLetterQueue("shop"), want.dead)
				if err := s.Set(featureswitch.On); err != nil {
					t.Fatal(err)
				}
				shop.send("refund")
				time.Sleep(time.Minute)
				all := []string{"refund 1"}
				if want.queue > 0 {
					all = append(all, "refund 1")
				}
				shop.expect("when it is on", all...)
				shop.left("shop", 0)
			})
		})
	}
}

// A feature that is off stops no other type, and has its messages after their pause when it is
// switched on. With WholeEndpoint it stops the others too.
func TestSwitch_OthersAreHandled(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("the whole endpoint: ", whole), func(t *testing.T) {
			s := newSwitch(t, featureswitch.Config{State: featureswitch.Off, WholeEndpoint: whole, Pause: time.Hour})
			inShop(t, s.For("refund"), nil, func(shop *shop) {
				for range 3 {
					shop.send("refund", "refund")
					time.Sleep(time.Minute)
					shop.send("order")
					if whole {
						shop.expect("while it is off")
					} else {
						shop.expect("while it is off", "order 1")
					}
					_ = s.Set(featureswitch.On)
					shop.expect("when it is on, in the pause")
					time.Sleep(time.Hour)
					if whole {
						shop.expect("after the pause", "refund 1", "refund 1", "order 1")
					} else {
						shop.expect("after the pause", "refund 1", "refund 1")
					}
					_ = s.Set(featureswitch.Off)
				}
				shop.left("error", 0)
			})
		})
	}
}

// Without delayed delivery no message can wait alone, so the endpoint pauses.
func TestSwitch_WithoutDelayedDelivery(t *testing.T) {
	s := newSwitch(t, featureswitch.Config{State: featureswitch.Off})
	inShop(t, s.For("refund"), func(c *core.Capabilities) { c.DelayedDelivery = false }, func(shop *shop) {
		shop.send("refund")
		shop.send("order")
		shop.expect("in the pause")
		_ = s.Set(featureswitch.On)
		time.Sleep(30 * time.Second)
		shop.expect("after the pause", "refund 1", "order 1")
		shop.left("error", 0)
	})
}

// Where the broker counts every delivery the messages are back after the pause, and have lost
// no attempt.
func TestSwitch_WhereEachDeliveryIsCounted(t *testing.T) {
	s := newSwitch(t, featureswitch.Config{State: featureswitch.Off})
	inShop(t, s.For("refund"), func(c *core.Capabilities) { c.CountsReleases = true }, func(shop *shop) {
		shop.send("refund")
		for range 60 {
			shop.send("order")
			shop.expect("while it is off", "order 1")
			time.Sleep(time.Minute)
		}
		_ = s.Set(featureswitch.On)
		time.Sleep(31 * time.Second)
		shop.expect("when it is on", "refund 1")
		shop.left("error", 0)
	})
}

func TestSwitch_Lookup(t *testing.T) {
	for _, unknown := range []featureswitch.State{featureswitch.Unknown, featureswitch.On, featureswitch.Off} {
		t.Run("unknown is "+unknown.String(), func(t *testing.T) {
			var state atomic.Int32
			s := newSwitch(t, featureswitch.Config{Lookup: func() featureswitch.State { return featureswitch.State(state.Load()) }, Unknown: unknown, Pause: time.Hour})
			inShop(t, s.Middleware(), nil, func(shop *shop) {
				shop.send("refund")
				if unknown == featureswitch.On {
					shop.expect("unknown", "refund 1")
				} else {
					shop.expect("unknown")
				}
				shop.left("error", map[featureswitch.State]int{featureswitch.Unknown: 1}[unknown])
				state.Store(int32(featureswitch.Off))
				shop.send("order")
				shop.expect("off")
				state.Store(int32(featureswitch.On))
				shop.expect("on, in the pause")
				time.Sleep(time.Hour)
				if unknown == featureswitch.Off {
					shop.expect("on", "refund 1", "order 1")
				} else {
					shop.expect("on", "order 1")
				}
				if err := s.Set(featureswitch.Off); err == nil || !strings.Contains(err.Error(), "switched by Lookup") {
					t.Errorf("Set returned %v", err)
				}
			})
		})
	}
}

// Skip in the options of one handler leaves the others alone.
func TestSwitch_SkipsOneHandler(t *testing.T) {
	s := newSwitch(t, featureswitch.Config{State: featureswitch.Off, Off: featureswitch.Skip})
	none := func(next core.HandlerFunc) core.HandlerFunc { return next }
	inShop(t, core.MiddlewareFunc(none), nil, func(shop *shop) {
		ep, err := core.New("audit", shop.transport, core.Config{Provision: core.ProvisionAlways, Transactions: core.TransactionReceiveOnly, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"first", "second"} {
			var options []core.HandleOptions
			if name == "first" {
				options = append(options, core.HandleOptions{Middleware: []core.Middleware{s.Middleware()}})
			}
			core.Handle(ep, orderType, func(context.Context, *core.Message, string) error {
				shop.mu.Lock()
				defer shop.mu.Unlock()
				shop.handled = append(shop.handled, name)
				return nil
			}, options...)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		synctest.Wait()
		for state, want := range map[featureswitch.State][]string{featureswitch.Off: {"second"}, featureswitch.On: {"first", "second"}} {
			_ = s.Set(state)
			if err := ep.Send(t.Context(), "audit", orderType.Of("x")); err != nil {
				t.Fatal(err)
			}
			shop.expect(state.String(), want...)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSwitch_Errors(t *testing.T) {
	s := newSwitch(t, featureswitch.Config{State: featureswitch.Off, Off: featureswitch.Fail})
	inShop(t, s.Middleware(), nil, func(shop *shop) {
		err := shop.endpoint.Invoke(t.Context(), orderType.Of("x"))
		if !errors.Is(err, featureswitch.ErrOff) || !strings.Contains(err.Error(), `feature "refunds"`) {
			t.Errorf("Invoke returned %v", err)
		}
		states := shop.endpoint.Health().Middleware
		if len(states) != 1 || states[0].Kind != "feature switch" || states[0].Name != "refunds" || states[0].State != "off" {
			t.Errorf("Health has %+v", states)
		}
		if err := s.Set(featureswitch.Unknown); err == nil {
			t.Error("Set took Unknown")
		}
	})
}

func TestNew_RefusesInvalidConfigurations(t *testing.T) {
	lookup := func() featureswitch.State { return featureswitch.On }
	for text, c := range map[string]featureswitch.Config{
		"Name is empty":                        {State: featureswitch.On},
		"neither State nor Lookup":             {Name: "x"},
		"Lookup decides":                       {Name: "x", State: featureswitch.On, Lookup: lookup},
		"State is State(7)":                    {Name: "x", State: 7},
		"the state is always known":            {Name: "x", State: featureswitch.On, Unknown: featureswitch.On},
		"Unknown is State(-1)":                 {Name: "x", Lookup: lookup, Unknown: -1},
		"Off is Answer(9)":                     {Name: "x", State: featureswitch.On, Off: 9},
		"cannot be negative":                   {Name: "x", State: featureswitch.On, Pause: -1},
		"Pause and WholeEndpoint are for":      {Name: "x", State: featureswitch.On, Off: featureswitch.Discard, Pause: 1},
		"WholeEndpoint are for Leave":          {Name: "x", State: featureswitch.On, Off: featureswitch.Defer, WholeEndpoint: true},
		"Delay is for Defer, but Off is Leave": {Name: "x", State: featureswitch.On, Delay: 1},
	} {
		if _, err := featureswitch.New(c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("New returned %v, want %q", err, text)
		}
	}
}

// An endpoint on which a switch cannot work does not start.
func TestSwitch_RefusesTheEndpoint(t *testing.T) {
	for text, test := range map[string]struct {
		off        featureswitch.Answer
		mode       core.TransactionMode
		middleware func(s *featureswitch.Switch) core.Middleware
	}{
		"in transaction mode None they have left it": {featureswitch.Leave, core.TransactionNone, (*featureswitch.Switch).Middleware},
		"nothing can be deferred":                    {featureswitch.Defer, core.TransactionNone, (*featureswitch.Switch).Middleware},
		"for no message types":                       {featureswitch.Skip, core.TransactionReceiveOnly, func(s *featureswitch.Switch) core.Middleware { return s.For() }},
	} {
		s := newSwitch(t, featureswitch.Config{State: featureswitch.On, Off: test.off})
		_, err := core.New("shop", open(t, nil), core.Config{Transactions: test.mode, Middleware: []core.Middleware{test.middleware(s)}})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("core.New returned %v, want %q", err, text)
		}
	}
}
