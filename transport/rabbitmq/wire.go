package rabbitmq

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a network connection as the client library uses it.
//
// It closes when nothing can be read from it any more, above all because no heartbeat
// came: the library closes it only after what writes to it has come back, which in a
// network that is stalled it does not.
//
// The library writes each frame at once. Whoever has many to write holds the wire
// meanwhile, and they are written together.
type wire struct {
	net.Conn
	greeted  atomic.Bool
	alerting atomic.Bool                 // the broker began with an alert of TLS
	alert    atomic.Pointer[net.OpError] // of TLS, with which the broker ended the connection
	over     chan struct{}               // closed when nothing can be read any more
	end      func()
	frames   frameReader

	mu    sync.Mutex // guards what follows, and is held while something is written
	holds int
	kept  []byte
}

// newWire returns the wire of a connection that nothing was read from or written to.
func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, over: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.over) })
	return w
}

// mostKept is how many bytes are kept while a wire is held.
const mostKept = 32 << 10

// Read implements net.Conn. It does not return headers that the client library refuses.
func (w *wire) Read(p []byte) (int, error) { return w.frames.read(rawWire{w}, p) }

// rawWire reads from a wire exactly what comes.
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
		_ = w.Close() // it has failed already
	}
	return n, err
}

// tlsAlert is the first byte of what a server of TLS says to who speaks something else. AMQP
// begins a frame with a type of at most 8.
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
			// A broker that refuses the certificate has said so before it hung up.
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

// hold keeps what is written from now on, up to mostKept, until letGo. Others may hold the
// same wire. Whoever holds one must not wait for an answer.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}

// letGo writes everything that was kept, also for others that hold the wire. If it fails the
// connection is lost, which its reader notices.
func (w *wire) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds--
	if w.flush() != nil {
		_ = w.Close()
	}
}

// flush writes what was kept. mu is held.
func (w *wire) flush() error {
	if len(w.kept) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.kept)
	w.kept = w.kept[:0]
	return err
}
