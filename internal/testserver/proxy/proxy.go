//go:build darwin || linux

// Package proxy forwards connections between a client and a server and fails as networks do:
// it stalls, cuts and refuses connections, and loses data in transit at bytes that a test
// names.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
)

// Proxy forwards each connection to its address to a server. Until it is told to fail it
// behaves like the network: half-closed connections and resets are passed on unchanged. A
// client is connected before the server is, so the client sees a refusal by the server as a
// reset.
//
// The methods may be called concurrently.
type Proxy struct {
	target string
	port   *loopback.Port
	links  sync.WaitGroup
	rate   atomic.Int64 // bytes per second; 0: no limit

	switching sync.Mutex // held while connections become accepted or refused
	acceptor  *acceptor  // nil: connections are refused
	closed    bool

	mu      sync.Mutex
	open    map[*link]bool
	flowing chan struct{} // closed unless stalled
	faults  []*fault      // the faults that wait for their request
}

// acceptor is one period of accepting connections.
type acceptor struct {
	listener net.Listener
	done     chan struct{}
}

// New starts a proxy for the server at target, which need not run yet. The caller must call
// Close.
func New(target string) (*Proxy, error) {
	port, err := loopback.Reserve()
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{target: target, port: port, open: map[*link]bool{}, flowing: make(chan struct{})}
	close(p.flowing)
	if err := p.Accept(); err != nil {
		return nil, errors.Join(err, port.Release())
	}
	return p, nil
}

// Addr returns the address to connect to, such as "127.0.0.1:40000".
func (p *Proxy) Addr() string { return p.port.Addr() }

// Connections returns how many clients are connected.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// Stall partitions the network until Resume. Data sent after Stall has returned does not
// arrive, on open connections and on new ones, but is not lost either. Neither side notices:
// connections can be made, and the end of a connection does not reach the other side.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default:
	}
}

// Resume ends Stall: all connections continue where they were.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// Throttle limits each connection to bytesPerSecond in each direction, until the next call; 0
// means no limit.
func (p *Proxy) Throttle(bytesPerSecond int) { p.rate.Store(int64(bytesPerSecond)) }

// pace waits for the time that n bytes take on a throttled network.
func (p *Proxy) pace(ctx context.Context, n int) {
	rate := p.rate.Load()
	if rate <= 0 || n <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// awaitFlow returns when the network is not stalled, or with an error when ctx has ended.
func (p *Proxy) awaitFlow(ctx context.Context) error {
	p.mu.Lock()
	flowing := p.flowing
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-flowing:
		return nil
	}
}

// Cut resets all connections on both sides, and returns when they are closed. Data in transit
// is lost. Clients can connect again at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.open))
	for l := range p.open {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
	for _, l := range links {
		<-l.ended
	}
}

// Silence makes the open connections dead without an error, as a machine or a firewall does
// that has lost their state: no further data from either side arrives, nor the end of a
// connection. New connections work.
func (p *Proxy) Silence() { p.silence(true) }

// SilenceServer does the same only to data from the server: data from the client still
// arrives.
func (p *Proxy) SilenceServer() { p.silence(false) }

func (p *Proxy) silence(clients bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.serverIsSilent.Store(true)
		if clients {
			l.clientIsSilent.Store(true)
		}
	}
}

// Refuse has new connections refused until Accept, as by a machine without a server. Open
// connections stay.
func (p *Proxy) Refuse() error {
	p.switching.Lock()
	defer p.switching.Unlock()
	return p.refuse()
}

func (p *Proxy) refuse() error {
	if p.acceptor == nil {
		return nil
	}
	err := p.acceptor.listener.Close()
	<-p.acceptor.done
	p.acceptor = nil
	if err != nil {
		return fmt.Errorf("proxy: refuse connections: %w", err)
	}
	return nil
}

// Accept ends Refuse.
func (p *Proxy) Accept() error {
	p.switching.Lock()
	defer p.switching.Unlock()
	switch {
	case p.closed:
		return errors.New("proxy: accept connections: the proxy is closed")
	case p.acceptor != nil:
		return nil
	}
	listener, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("proxy: accept connections: %w", err)
	}
	a := &acceptor{listener: listener, done: make(chan struct{})}
	p.acceptor = a
	go func() {
		defer close(a.done)
		p.accept(listener)
	}()
	return nil
}

// accept opens a link for each connection until the listener is closed.
func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			time.Sleep(time.Millisecond) // too many open files, some of which will be closed
			continue
		}
		l := newLink(p, client.(*net.TCPConn))
		p.mu.Lock()
		p.open[l] = true
		p.mu.Unlock()
		p.links.Go(l.run)
	}
}

// forget is called when a link has closed its connections.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
	for _, f := range p.faults {
		delete(f.seen, l)
	}
}

// Close resets all connections and refuses new ones for good. When it returns, all goroutines
// have ended. A second call does nothing.
func (p *Proxy) Close() error {
	p.switching.Lock()
	defer p.switching.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.refuse()
	p.Cut()
	p.links.Wait()
	return errors.Join(err, p.port.Release())
}
