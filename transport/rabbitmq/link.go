package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

const (
	// silence: RabbitMQ closes a connection without an error 3 s after it has refused the
	// credentials, to slow down guessing. A close without an error after silence or later
	// counts as such a refusal.
	silence = 2 * time.Second
	// grace is how long to wait for the end of an operation whose result is no longer
	// needed.
	grace = 2 * time.Second
)

// connection is a connection to the broker.
type connection struct {
	*amqp.Connection
	wire *wire
}

// link is a connection for one purpose. It is opened when it is needed, and reopened after
// a loss.
type link struct {
	t    *Transport
	name string // as the broker shows it
	made func(*connection)

	mu      sync.Mutex // guards the fields below
	conn    *connection
	attempt *attempt
	next    int // the host to try first
	closed  bool
}

// attempt is an attempt to connect. All goroutines that need the connection wait for it.
type attempt struct {
	done chan struct{} // closed when conn or err is set
	conn *connection
	err  error
}

// newLink returns a link. It calls made, unless that is nil, with each connection before
// the connection is used.
func newLink(t *Transport, name string, made func(*connection)) *link {
	return &link{t: t, name: name, made: made, next: rand.N(len(t.hosts))}
}

// get returns the connection. If there is none, it tries each host once.
func (l *link) get(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, core.ErrClosed
	case l.conn != nil && !l.conn.IsClosed():
		defer l.mu.Unlock()
		return l.conn, nil
	}
	a := l.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		if !l.t.life.Go(func() { l.connect(a) }) {
			l.mu.Unlock()
			return nil, core.ErrClosed
		}
		l.attempt = a
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connected reports whether there is a connection, as far as is known.
func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && !l.conn.IsClosed()
}

func (l *link) connect(a *attempt) {
	defer close(a.done)
	l.mu.Lock()
	first := l.next
	l.mu.Unlock()
	a.conn, a.err = l.dial(first)
	if a.err == nil && l.made != nil {
		l.made(a.conn)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	if l.closed && a.err == nil {
		closeConnection(a.conn, time.Now().Add(grace))
		a.conn, a.err = nil, core.ErrClosed
	}
	l.conn = a.conn
	if a.err == nil {
		l.t.returning.wake()
	}
}

// dial tries every host, starting at index first. If any failure may be an outage, the
// error is transient.
func (l *link) dial(first int) (*connection, error) {
	var outage, refused []error
	for i := range l.t.hosts {
		at := (first + i) % len(l.t.hosts)
		h := l.t.hosts[at]
		conn, err := l.t.dial(*h, l.name)
		if err == nil {
			l.mu.Lock()
			l.next = at
			l.mu.Unlock()
			return conn, nil
		}
		err = fmt.Errorf("connect to %s: %w", h.addr, err)
		if transient(err) {
			outage = append(outage, err)
		} else {
			refused = append(refused, err)
		}
	}
	if len(outage) > 0 {
		return nil, errors.Join(outage...)
	}
	return nil, errors.Join(refused...)
}

// dial connects to a host. It accepts a refusal of the credentials only after a second one,
// because a failure of the broker or the network during the login can look the same.
func (t *Transport) dial(h endpoint, name string) (*connection, error) {
	conn, err := t.dialOnce(h, name)
	if errors.Is(err, amqp.ErrCredentials) && !transient(err) {
		conn, err = t.dialOnce(h, name)
	}
	return conn, err
}

func (t *Transport) dialOnce(h endpoint, name string) (*connection, error) {
	ctx, cancel := context.WithTimeout(t.life.Context(), h.timeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if h.tls != nil {
		secure := tls.Client(conn, h.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, refusedDial(err, false)
		}
		conn = secure
	}
	network := newWire(conn)
	properties := amqp.NewConnectionProperties()
	properties["connection_name"] = name
	properties["product"] = "Reprise"
	began := time.Now()
	opened, err := amqp.Open(network, amqp.Config{
		SASL:       h.sasl(),
		Vhost:      h.uri.Vhost,
		ChannelMax: h.uri.ChannelMax,
		Heartbeat:  h.heartbeat,
		Properties: properties,
		Locale:     "en_US",
	})
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no answer within %v: %w", h.timeout, ctx.Err())
		}
		if network.alerting.Load() && h.tls == nil {
			return nil, &refusedError{fmt.Errorf("the port speaks TLS; begin the URL with amqps://: %w", err)}
		}
		if alert := network.alert.Load(); alert != nil { // the library keeps only its text
			err = alert
		}
		return nil, refusedDial(err, time.Since(began) >= silence)
	}
	network.frames.frameMax.Store(int64(opened.Config.FrameSize))
	return &connection{opened, network}, nil
}

// close closes the connection, and waits for the broker until the deadline at most.
func (l *link) close(deadline time.Time) {
	l.mu.Lock()
	l.closed = true
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		closeConnection(conn, deadline)
	}
}

func closeConnection(conn *connection, deadline time.Time) {
	_ = conn.CloseDeadline(deadline) // the connection is closed even after an error
}

// returning is closed and replaced when any connection has been made, to wake up the
// callers that wait before their next attempt.
type returning struct {
	mu  sync.Mutex
	now chan struct{}
}

func (r *returning) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		r.now = make(chan struct{})
	}
	return r.now
}

func (r *returning) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		close(r.now)
		r.now = nil
	}
}

// pause waits before the next attempt to connect, and returns early if another connection
// to the broker is made. An error says that the caller or the transport has ended.
func (t *Transport) pause(ctx context.Context, d time.Duration) error {
	return transport.Sleep(ctx, t.life.Context(), d, t.returning.wait())
}
