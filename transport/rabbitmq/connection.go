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
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/wire"
)

const (
	// authFailureDelay: RabbitMQ closes a connection without an error 3 s after it has
	// refused the credentials, to slow down guessing. A close without an error after
	// authFailureDelay or later counts as such a refusal.
	authFailureDelay = 2 * time.Second
	// grace is how long to wait for the end of an operation whose result is no longer
	// needed.
	grace = 2 * time.Second
)

// connection is a connection to the broker.
type connection struct {
	*amqp.Connection
	netConn *wire.Conn
}

// connManager manages a connection for one purpose. It opens the connection when it is
// needed, and again after a loss.
type connManager struct {
	t         *Transport
	name      string // as the broker shows it
	onConnect func(*connection)

	mu         sync.Mutex // guards the fields below
	conn       *connection
	connecting *connectAttempt
	nextHost   int // the host to try first
	closed     bool
}

// connectAttempt is an attempt to connect. All goroutines that need the connection wait for
// it.
type connectAttempt struct {
	done chan struct{} // closed when conn or err is set
	conn *connection
	err  error
}

// newConnManager returns a connManager. It calls onConnect, unless that is nil, with each
// connection before the connection is used.
func newConnManager(t *Transport, name string, onConnect func(*connection)) *connManager {
	return &connManager{t: t, name: name, onConnect: onConnect, nextHost: rand.N(len(t.hosts))}
}

// get returns the connection. If there is none, it tries each host once.
func (m *connManager) get(ctx context.Context) (*connection, error) {
	m.mu.Lock()
	switch {
	case m.closed:
		m.mu.Unlock()
		return nil, core.ErrClosed
	case m.conn != nil && !m.conn.IsClosed():
		defer m.mu.Unlock()
		return m.conn, nil
	}
	a := m.connecting
	if a == nil {
		a = &connectAttempt{done: make(chan struct{})}
		if !m.t.life.Go(func() { m.connect(a) }) {
			m.mu.Unlock()
			return nil, core.ErrClosed
		}
		m.connecting = a
	}
	m.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connected reports whether there is a connection, as far as is known.
func (m *connManager) connected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn != nil && !m.conn.IsClosed()
}

func (m *connManager) connect(a *connectAttempt) {
	defer close(a.done)
	m.mu.Lock()
	first := m.nextHost
	m.mu.Unlock()
	a.conn, a.err = m.dial(first)
	if a.err == nil && m.onConnect != nil {
		m.onConnect(a.conn)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connecting = nil
	if m.closed && a.err == nil {
		closeConnection(a.conn, time.Now().Add(grace))
		a.conn, a.err = nil, core.ErrClosed
	}
	m.conn = a.conn
	if a.err == nil {
		m.t.reconnected.wake()
	}
}

// dial tries every host, starting at index first. If any failure may be an outage, the
// error is transient.
func (m *connManager) dial(first int) (*connection, error) {
	var outage, refused []error
	for i := range m.t.hosts {
		at := (first + i) % len(m.t.hosts)
		h := m.t.hosts[at]
		conn, err := m.t.dial(*h, m.name)
		if err == nil {
			m.mu.Lock()
			m.nextHost = at
			m.mu.Unlock()
			return conn, nil
		}
		err = fmt.Errorf("connect to %s: %w", h.addr, err)
		if amqperror.IsTransient(err) {
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
// because a failure of the broker or the network during the login can look the same. Once a
// connection has been made, a refusal is an outage: credentials are being changed, or a
// certificate, and waiting helps.
func (t *Transport) dial(h brokerHost, name string) (*connection, error) {
	conn, err := t.dialOnce(h, name)
	if errors.Is(err, amqp.ErrCredentials) && !amqperror.IsTransient(err) {
		conn, err = t.dialOnce(h, name)
	}
	switch {
	case err == nil:
		t.hasConnected.Store(true)
	case t.hasConnected.Load():
		err = amqperror.NewOutage(err)
	}
	return conn, err
}

func (t *Transport) dialOnce(h brokerHost, name string) (*connection, error) {
	ctx, cancel := context.WithTimeout(t.life.Context(), h.timeout)
	defer cancel()
	expires, err := t.logIn(ctx, &h.uri)
	if err != nil {
		return nil, err
	}
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
			return nil, amqperror.OfDial(err, h.uri.Username, false)
		}
		conn = secure
	}
	network := wire.NewConn(conn)
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
		if network.PeerSpeaksTLS() && h.tls == nil {
			return nil, amqperror.NewRefused(fmt.Errorf("the port speaks TLS; begin the URL with amqps://: %w", err))
		}
		if alert := network.Alert(); alert != nil { // the library keeps only its text
			err = alert
		}
		return nil, amqperror.OfDial(err, h.uri.Username, time.Since(began) >= authFailureDelay)
	}
	network.SetFrameMax(opened.Config.FrameSize)
	made := &connection{opened, network}
	if !expires.IsZero() {
		t.renew(made, h.uri, expires)
	}
	return made, nil
}

// close closes the connection, and waits for the broker until the deadline at most.
func (m *connManager) close(deadline time.Time) {
	m.mu.Lock()
	m.closed = true
	conn := m.conn
	m.mu.Unlock()
	if conn != nil {
		closeConnection(conn, deadline)
	}
}

func closeConnection(conn *connection, deadline time.Time) {
	_ = conn.CloseDeadline(deadline) // the connection is closed even after an error
}

// broadcast wakes up all callers that wait at that moment: those that pause before their
// next attempt to connect, when any connection has been made.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// pause waits before the next attempt to connect, and returns early if another connection
// to the broker is made. An error says that the caller or the transport has ended.
func (t *Transport) pause(ctx context.Context, d time.Duration) error {
	return transport.Sleep(ctx, t.life.Context(), d, t.reconnected.wait())
}

// retryOutages retries an operation while the broker cannot be reached.
func (t *Transport) retryOutages(ctx context.Context, o *transport.Outages, try func() error) error {
	return t.retry(ctx, o, amqperror.IsTransient, try)
}

// retry retries an operation while its errors may pass.
func (t *Transport) retry(ctx context.Context, o *transport.Outages, mayPass func(error) bool, try func() error) error {
	explained := func() error { return amqperror.Explain(try()) } // for observers
	return o.Retry(ctx, explained, mayPass, func(d time.Duration) error { return t.pause(ctx, d) })
}

// deadline returns how long to wait for the broker at a close.
func deadline(ctx context.Context) time.Time {
	awaitTrue := time.Now().Add(grace)
	if d, ok := ctx.Deadline(); ok && d.Before(awaitTrue) {
		return d
	}
	if ctx.Err() != nil {
		return time.Now()
	}
	return awaitTrue
}
