package rabbitmq

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is the network connection that the client library uses.
//
// It closes itself when reading fails, above all because of missing heartbeats: the library
// closes the connection only after its pending write has returned, which never happens in a
// stalled network.
//
// The library writes each frame at once. A caller with many frames holds the wire while it
// writes, and they are written together.
type wire struct {
	net.Conn
	greeted  atomic.Bool
	alerting atomic.Bool                 // the broker began with a TLS alert
	alert    atomic.Pointer[net.OpError] // the TLS alert with which the broker closed the connection
	over     chan struct{}               // closed when reading has failed
	end      func()
	frames   frameReader

	mu    sync.Mutex // guards the fields below, and is held during a write
	holds int
	kept  []byte
}

// newWire returns the wire of a connection that has not been read from or written to.
func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, over: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.over) })
	return w
}

// mostKept is how many bytes are buffered while a wire is held.
const mostKept = 32 << 10

// Read implements net.Conn. It does not return headers that the client library refuses.
func (w *wire) Read(p []byte) (int, error) { return w.frames.read(rawWire{w}, p) }

// rawWire reads from a wire without rewriting.
type rawWire struct{ *wire }

// Read implements io.Reader.
func (w rawWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.greeted.Swap(true) {
		w.alerting.Store(p[0] == tlsAlert)
	}
	if err != nil {
		if alert, ok := tlsAlertOf(err); ok {
			w.alert.Store(alert)
		}
		w.end()
		_ = w.Close() // reading has failed already
	}
	return n, err
}

// tlsAlert is the first byte that a TLS server sends to a client without TLS. AMQP begins a
// frame with a type of at most 8.
const tlsAlert = 0x15

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept)+len(p) > mostKept {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if w.holds == 0 || len(p) > mostKept {
		n, err := w.Conn.Write(p)
		if err != nil && !w.greeted.Load() {
			// A broker that refuses the certificate has sent its alert before it closed the
			// connection.
			select {
			case <-w.over:
			case <-time.After(time.Second):
			}
		}
		return n, err
	}
	w.kept = append(w.kept, p...)
	return len(p), nil
}

// hold buffers further writes, up to mostKept, until letGo. Several callers may hold a wire
// at the same time. A caller must not wait for an answer while it holds one.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}

// letGo writes everything buffered, also that of other holders. If the write fails the
// connection is lost, which its reader notices.
func (w *wire) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds--
	if w.flush() != nil {
		_ = w.Close()
	}
}

// flush writes the buffered bytes. mu is held.
func (w *wire) flush() error {
	if len(w.kept) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.kept)
	w.kept = w.kept[:0]
	return err
}
