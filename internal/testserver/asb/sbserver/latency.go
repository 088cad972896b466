//go:build darwin || linux

package sbserver

import (
	"errors"
	"net"
	"sync"
	"time"
)

// late is a connection on which everything that the server writes arrives later, in
// order, as over a network.
type late struct {
	net.Conn
	by      time.Duration
	written chan struct{} // wakes the writer
	ended   chan struct{} // closed when the writer has ended

	mu     sync.Mutex // guards the fields below
	chunks []chunk    // written and not yet due
	failed error
	closed bool
}

// chunk has the bytes of one call of Write.
type chunk struct {
	bytes []byte
	due   time.Time
}

// delayed returns nc with delayed writes. It ends with Close.
func delayed(nc net.Conn, by time.Duration) net.Conn {
	l := &late{Conn: nc, by: by, written: make(chan struct{}, 1), ended: make(chan struct{})}
	go l.write()
	return l
}

// Write implements net.Conn. It returns at once. A later call returns the error of the
// network.
func (l *late) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, net.ErrClosed
	case l.failed != nil:
		return 0, l.failed
	}
	l.chunks = append(l.chunks, chunk{append([]byte(nil), b...), time.Now().Add(l.by)})
	l.wake()
	return len(b), nil
}

func (l *late) wake() {
	select {
	case l.written <- struct{}{}:
	default:
	}
}

// lastWrites is how long Close waits, in addition to the delay, for a client that does
// not read.
const lastWrites = time.Second

// Close implements net.Conn. It waits until everything has been written.
func (l *late) Close() error {
	l.mu.Lock()
	l.closed = true
	l.wake()
	l.mu.Unlock()
	if err := l.SetWriteDeadline(time.Now().Add(l.by + lastWrites)); err != nil {
		return errors.Join(err, l.Conn.Close())
	}
	<-l.ended
	return l.Conn.Close()
}

// write writes chunks when they are due, until Close or an error.
func (l *late) write() {
	defer close(l.ended)
	for {
		l.mu.Lock()
		chunks, last := l.chunks, l.closed
		l.chunks = nil
		l.mu.Unlock()
		for _, c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := l.Conn.Write(c.bytes); err != nil {
				l.mu.Lock()
				l.failed = err
				l.mu.Unlock()
				return
			}
		}
		if last && len(chunks) == 0 {
			return
		}
		if len(chunks) == 0 {
			<-l.written
		}
	}
}
