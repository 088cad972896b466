package rabbitmq_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Whichever host is tried first.
func TestHosts_DeadOneIsPassedOver(t *testing.T) {
	t.Parallel()
	s := newestSite(t)
	s.provisioned(t, rabbitmq.Config{}, "billing")
	dead, err := loopback.Reserve() // no server listens on it
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dead.Release(); err != nil {
			t.Error(err)
		}
	}()
	for range 10 { // the first is chosen at random
		transport := s.open(t, rabbitmq.Config{URLs: []string{
			testserver.Via(s.PasswordURL(s.vhost), dead.Addr()), s.PasswordURL(s.vhost),
		}})
		w := &watch{}
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
		mustSend(t, transport, numbered("billing", 0, 1)...)
		if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
			t.Error(err)
		}
		if all := w.all(); len(all) > 0 {
			t.Errorf("a dead host beside a good one is an outage: %v", all)
		}
		if err := transport.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// When the connected host dies another takes over, and the first one does when that dies
// too.
func TestHosts_AnotherTakesOver(t *testing.T) {
	t.Parallel()
	s := newestSite(t)
	var hosts []*proxy.Proxy
	var urls []string
	for range 2 {
		p, err := proxy.New(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		hosts = append(hosts, p)
		urls = append(urls, testserver.Via(s.PasswordURL(s.vhost), p.Addr()))
	}
	transport := s.provisioned(t, unheard(rabbitmq.Config{URLs: urls}), "billing")
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
	for round := range 6 {
		down, other := hosts[round%2], hosts[(round+1)%2]
		if err := other.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := down.Refuse(); err != nil {
			t.Fatal(err)
		}
		down.Cut()
		awaitSend(t, transport, numbered("billing", round, 1)...)
		for {
			d := next(t, r, 1)[0]
			if err := d.Complete(t.Context()); err != nil {
				continue // its connection was cut
			}
			if string(d.Incoming().Body) == string(numbered("billing", round, 1)[0].Body) {
				break
			}
		}
		if other.Connections() == 0 {
			t.Errorf("round %d: no client is connected to the remaining host", round)
		}
	}
}

// The host that cannot be reached may be the right one.
func TestHosts_RefusalOfOneHidesNoOutage(t *testing.T) {
	t.Parallel()
	b, s := through(t)
	s.provisioned(t, rabbitmq.Config{}, "billing")
	wrong, err := url.Parse(s.PasswordURL(s.vhost))
	if err != nil {
		t.Fatal(err)
	}
	wrong.Path, wrong.RawPath = "/nowhere", ""
	if err := b.proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, rabbitmq.Config{URLs: []string{wrong.String(), b.url}})
	w := &watch{}
	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, ConnectionChanged: w.ConnectionChanged})
		if err == nil {
			err = r.Close(ctx)
		}
		opened <- err
	}()
	awaitTrue(t, "the outage is told", func() bool { return len(w.all()) > 1 })
	if err := b.proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * patience):
		t.Error("OpenReceiver does not return")
	}
}
