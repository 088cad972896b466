// Package wire has the network connection that the AMQP client library uses. It writes
// frames together, and reads messages whose headers the library cannot decode.
package wire

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
)

// Conn is the network connection that the client library uses.
//
// It closes itself when reading fails, above all because of missing heartbeats: the library
// closes the connection only after its pending write has returned, which never happens in a
// stalled network.
//
// The library writes each frame at once. A caller with many frames corks the connection
// while it writes, and they are written together.
type Conn struct {
	net.Conn
	gotFirstByte   atomic.Bool
	peerSpeaksTLS  atomic.Bool
	alert          atomic.Pointer[net.OpError]
	readFailed     chan struct{} // closed when reading has failed
	markReadFailed func()
	frames         frameReader

	mu       sync.Mutex // guards the fields below, and is held during a write
	corks    int
	buffered []byte
}

// NewConn wraps a connection that has not been read from or written to.
func NewConn(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, readFailed: make(chan struct{})}
	c.markReadFailed = sync.OnceFunc(func() { close(c.readFailed) })
	return c
}

// PeerSpeaksTLS reports whether the broker's first answer was a TLS alert.
func (c *Conn) PeerSpeaksTLS() bool { return c.peerSpeaksTLS.Load() }

// Alert returns the TLS alert with which the broker closed the connection, or nil.
func (c *Conn) Alert() *net.OpError { return c.alert.Load() }

// SetFrameMax sets the negotiated maximum size of a frame, including the 8 bytes around the
// payload. Before the negotiation it is DefaultFrameMax.
func (c *Conn) SetFrameMax(n int) { c.frames.frameMax.Store(int64(n)) }

// maxBuffered is how many bytes are buffered while a connection is corked.
const maxBuffered = 32 << 10

// Read implements net.Conn. It does not return headers that the client library refuses.
func (c *Conn) Read(p []byte) (int, error) { return c.frames.read(rawConn{c}, p) }

// rawConn reads from a Conn without rewriting.
type rawConn struct{ c *Conn }

// Read implements io.Reader.
func (r rawConn) Read(p []byte) (int, error) {
	c := r.c
	n, err := c.Conn.Read(p)
	if n > 0 && !c.gotFirstByte.Swap(true) {
		c.peerSpeaksTLS.Store(p[0] == tlsAlert)
	}
	if err != nil {
		if alert, ok := amqperror.TLSAlert(err); ok {
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
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.buffered)+len(p) > maxBuffered {
		if err := c.flushLocked(); err != nil {
			return 0, err
		}
	}
	if c.corks == 0 || len(p) > maxBuffered {
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

// Cork buffers further writes, up to maxBuffered, until Uncork. Several callers may cork a
// connection at the same time. A caller must not wait for an answer before it has uncorked
// it.
func (c *Conn) Cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corks++
}

// Uncork writes everything buffered, also for other callers. If the write fails the
// connection is lost, which its reader notices.
func (c *Conn) Uncork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corks--
	if c.flushLocked() != nil {
		_ = c.Close()
	}
}

// flushLocked writes the buffered bytes.
func (c *Conn) flushLocked() error {
	if len(c.buffered) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buffered)
	c.buffered = c.buffered[:0]
	return err
}
