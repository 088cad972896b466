package rabbitmq

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// coalescingConn is the network connection that the client library uses.
//
// It closes itself when reading fails, above all because of missing heartbeats: the library
// closes the connection only after its pending write has returned, which never happens in a
// stalled network.
//
// The library writes each frame at once. A caller with many frames corks the connection
// while it writes, and they are written together.
type coalescingConn struct {
	net.Conn
	gotFirstByte   atomic.Bool
	peerSpeaksTLS  atomic.Bool                 // the broker began with a TLS alert
	alert          atomic.Pointer[net.OpError] // the TLS alert with which the broker closed the connection
	readFailed     chan struct{}               // closed when reading has failed
	markReadFailed func()
	frames         frameReader

	mu       sync.Mutex // guards the fields below, and is held during a write
	corks    int
	buffered []byte
}

// newCoalescingConn wraps a connection that has not been read from or written to.
func newCoalescingConn(conn net.Conn) *coalescingConn {
	c := &coalescingConn{Conn: conn, readFailed: make(chan struct{})}
	c.markReadFailed = sync.OnceFunc(func() { close(c.readFailed) })
	return c
}

// mostBuffered is how many bytes are buffered while a connection is corked.
const mostBuffered = 32 << 10

// Read implements net.Conn. It does not return headers that the client library refuses.
func (c *coalescingConn) Read(p []byte) (int, error) { return c.frames.read(rawConn{c}, p) }

// rawConn reads from a coalescingConn without rewriting.
type rawConn struct{ *coalescingConn }

// Read implements io.Reader.
func (c rawConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.gotFirstByte.Swap(true) {
		c.peerSpeaksTLS.Store(p[0] == tlsAlert)
	}
	if err != nil {
		if alert, ok := tlsAlertOf(err); ok {
			c.alert.Store(alert)
		}
		c.markReadFailed()
		_ = c.Close() // reading has failed already
	}
	return n, err
}

// tlsAlert is the first byte that a TLS server sends to a client without TLS. AMQP begins a
// frame with a type of at most 8.
const tlsAlert = 0x15

// Write implements net.Conn.
func (c *coalescingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.buffered)+len(p) > mostBuffered {
		if err := c.flushLocked(); err != nil {
			return 0, err
		}
	}
	if c.corks == 0 || len(p) > mostBuffered {
		n, err := c.Conn.Write(p)
		if err != nil && !c.gotFirstByte.Load() {
			// A broker that refuses the certificate has sent its alert before it closed the
			// connection.
			select {
			case <-c.readFailed:
			case <-time.After(time.Second):
			}
		}
		return n, err
	}
	c.buffered = append(c.buffered, p...)
	return len(p), nil
}

// cork buffers further writes, up to mostBuffered, until uncork. Several callers may cork a
// connection at the same time. A caller must not wait for an answer before it has uncorked
// it.
func (c *coalescingConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corks++
}

// uncork writes everything buffered, also for other callers. If the write fails the
// connection is lost, which its reader notices.
func (c *coalescingConn) uncork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corks--
	if c.flushLocked() != nil {
		_ = c.Close()
	}
}

// flushLocked writes the buffered bytes.
func (c *coalescingConn) flushLocked() error {
	if len(c.buffered) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buffered)
	c.buffered = c.buffered[:0]
	return err
}
