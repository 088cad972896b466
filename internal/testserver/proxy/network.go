package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
)

// Network has a proxy in front of each address that clients dial. It is for servers with
// several addresses whose certificates clients check. It implements conformance.Network, and
// its methods may be called concurrently.
type Network struct {
	mu      sync.Mutex
	proxies map[string]*Proxy
	cut     bool
	stalled bool
}

// NewNetwork returns a working network, and closes it at the end of the test.
func NewNetwork(t testing.TB) *Network {
	n := &Network{proxies: map[string]*Proxy{}}
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, p := range n.proxies {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// Dial connects to an address through the network.
func (n *Network) Dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	p, err := n.to(addr)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, kind, p.Addr())
}

// to returns the proxy in front of an address.
func (n *Network) to(addr string) (*Proxy, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.proxies[addr]; p != nil {
		return p, nil
	}
	p, err := New(addr)
	if err != nil {
		return nil, err
	}
	n.proxies[addr] = p
	if n.cut {
		err = p.Refuse()
	}
	if n.stalled {
		p.Stall()
	}
	return p, err
}

// Cut ends every connection, and refuses new ones until restore is called.
func (n *Network) Cut(t testing.TB) (restore func()) {
	set := func(cut bool, change func(*Proxy) error) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cut = cut
		var errs []error
		for _, p := range n.proxies {
			errs = append(errs, change(p))
		}
		return errors.Join(errs...)
	}
	err := set(true, func(p *Proxy) error {
		err := p.Refuse()
		p.Cut()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := set(false, (*Proxy).Accept); err != nil {
			t.Error(err)
		}
	}
}

// Partition lets nothing arrive until heal is called.
func (n *Network) Partition(testing.TB) (heal func()) {
	set := func(stalled bool, change func(*Proxy)) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stalled = stalled
		for _, p := range n.proxies {
			change(p)
		}
	}
	set(true, (*Proxy).Stall)
	return func() { set(false, (*Proxy).Resume) }
}

// Silence loses all further data on the connections that are open now.
func (n *Network) Silence() { n.each((*Proxy).Silence) }

// SilenceBroker loses all further data from the servers on the connections that are open now.
// The name is that of conformance.Line.
func (n *Network) SilenceBroker() { n.each((*Proxy).SilenceServer) }

func (n *Network) each(change func(*Proxy)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.proxies {
		change(p)
	}
}
