//go:build darwin || linux

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a client's connection together with its connection to the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends with the link, or when it is cut
	cancel context.CancelFunc
	ended  chan struct{} // closed when both connections are closed

	clientIsSilent, serverIsSilent atomic.Bool // data from this side is lost

	mu     sync.Mutex
	server *net.TCPConn // nil until it is connected
	isCut  bool
	losing *fault // its request has passed, and its reply must not pass
	struck *fault // the fault that cut the link
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{proxy: p, client: client, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
}

// run connects to the server and forwards both ways, until both sides have closed or the link
// is cut.
func (l *link) run() {
	defer l.end()
	if err := l.connect(); err != nil {
		l.cut()
		return
	}
	var requests sync.WaitGroup
	requests.Go(func() { l.forward(l.server, l.client, &l.clientIsSilent, l.request) })
	l.forward(l.client, l.server, &l.serverIsSilent, l.reply)
	requests.Wait()
}

// connectTimeout is for a server on this machine.
const connectTimeout = 5 * time.Second

// connect connects to the server once the network is not stalled.
func (l *link) connect() error {
	if err := l.proxy.awaitFlow(l.ctx); err != nil {
		return err
	}
	// The link's context is not used here: if it ended after the connection was made, the
	// connection would be closed like any other instead of being reset.
	server, err := net.DialTimeout("tcp", l.proxy.target, connectTimeout)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server.(*net.TCPConn)
	if l.isCut {
		reset(l.server)
	}
	return nil
}

// forward copies data from src to dst until src sends no more. inspect decides about each
// chunk. While src is silent, its data is lost, and the end of its data too.
func (l *link) forward(dst, src *net.TCPConn, silent *atomic.Bool, inspect func(chunk []byte) verdict) {
	chunk := make([]byte, 64<<10)
	for {
		n, readErr := src.Read(chunk)
		l.proxy.pace(l.ctx, n)
		if l.proxy.awaitFlow(l.ctx) != nil {
			return // the link was cut
		}
		if silent.Load() {
			if readErr == nil {
				continue
			}
			return
		}
		if n > 0 {
			v := inspect(chunk[:n])
			if v.pass {
				if _, err := dst.Write(chunk[:n]); err != nil {
					l.cut()
					return
				}
			}
			if v.strike != nil {
				l.strike(v.strike)
				return
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			if err := dst.CloseWrite(); err != nil {
				l.cut()
			}
			return
		case readErr != nil:
			l.cut()
			return
		}
	}
}

// cut resets both connections. Goroutines that wait for them give up.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked(nil)
}

// strike cuts the link because of a fault.
func (l *link) strike(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked(f)
}

func (l *link) cutLocked(f *fault) {
	if l.isCut {
		return
	}
	l.isCut = true
	l.struck = f
	l.cancel()
	reset(l.client)
	if l.server == nil {
		return
	}
	if f != nil && f.kind == cutAfter {
		// A reset could overtake data that the server has not read yet.
		_ = l.server.Close()
		return
	}
	reset(l.server)
}

// reset closes a connection so that the other side sees an error instead of an end. It
// ignores that the other side may have closed it first.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// end closes the connections that are still open, and reports the end of the link.
func (l *link) end() {
	l.mu.Lock()
	_ = l.client.Close() // forward has told the other side already
	if l.server != nil {
		_ = l.server.Close()
	}
	struck := l.struck
	l.mu.Unlock()
	l.cancel()
	l.proxy.forget(l)
	close(l.ended)
	if struck != nil {
		close(struck.struck)
	}
}
