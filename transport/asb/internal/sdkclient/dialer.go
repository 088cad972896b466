package sdkclient

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// dialer opens the connections of one client of the SDK. The SDK's only hook for that is
// its option for web sockets.
//
// It adds a pause after failed attempts. The SDK renews the token of each link in the
// background, some minutes before it expires. If that fails because the service cannot be
// reached, it tries again at once, without a limit: it pauses only between the attempts
// of a request, of which the adapter allows one (azservicebus v1.11.0,
// startNegotiateClaimRenewer). That would be several thousand connections a second.
type dialer struct {
	cfg *Config

	mu      sync.Mutex // guards the fields below
	next    time.Time  // no attempt begins before
	open    map[*dialedConn]struct{}
	latest  context.Context // ends with the connection that was opened last; nil: none yet
	aborted bool
}

// dialedConn is a connection of a dialer.
type dialedConn struct {
	net.Conn
	dialer   *dialer
	ended    context.CancelFunc
	messages renamer
}

// Read implements net.Conn. The SDK reads all the time, and no more after an error
// (go-amqp v1.7.0, Conn.connReader).
func (c *dialedConn) Read(p []byte) (n int, err error) {
	if n, err = c.messages.Read(c.Conn, p); err != nil {
		c.ended()
	}
	return n, err
}

// Close implements net.Conn.
func (c *dialedConn) Close() error {
	c.ended()
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// dialPause is the time between a failed attempt and the next one of the same client.
const dialPause = time.Second / 2

// dial implements the SDK's option NewWebSocketConn.
func (d *dialer) dial(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	d.mu.Lock()
	wait, aborted := time.Until(d.next), d.aborted
	d.mu.Unlock()
	if aborted {
		return nil, abortedError{}
	}
	if wait > 0 {
		if err := transport.Sleep(ctx, context.Background(), wait, nil); err != nil {
			return nil, err
		}
	}
	conn, err := d.connect(ctx, args)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.next = time.Now().Add(dialPause)
		return nil, err
	case d.aborted:
		go func() { _ = conn.Close() }() // it was not used
		return nil, abortedError{}
	}
	if d.open == nil {
		d.open = map[*dialedConn]struct{}{}
	}
	alive, ended := context.WithCancel(context.Background())
	c := &dialedConn{Conn: conn, dialer: d, ended: ended}
	d.open[c], d.latest = struct{}{}, alive
	return c, nil
}

// connection returns a context that ends with the connection that was opened last. Before
// the first one it returns nil.
func (d *dialer) connection() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest
}

// abortedError is the error of a connection that is opened after its client was aborted.
type abortedError struct{}

func (abortedError) Error() string {
	return "the connection is closed, since the SDK has not returned from a call on it"
}

// NonRetriable marks the error for the SDK, which would renew tokens without a pause
// otherwise.
func (abortedError) NonRetriable() {}

// abort closes the open connections, without waiting, and refuses others.
func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.aborted = true
	for c := range d.open {
		go func() { _ = c.Close() }() // with TLS or web sockets this may wait for the service
	}
}

// connect opens a connection: by the application's function if there is one, else as the
// SDK does without the option (go-amqp v1.7.0, dialConn).
func (d *dialer) connect(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	if d.cfg.Options.NewWebSocketConn != nil {
		return d.cfg.Options.NewWebSocketConn(ctx, args)
	}
	addr, name, secure := d.cfg.dialed()
	tcp := &net.Dialer{Timeout: RequestTimeout}
	if !secure {
		return tcp.DialContext(ctx, "tcp", addr)
	}
	cfg := d.cfg.Options.TLSConfig.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = name
	}
	return (&tls.Dialer{NetDialer: tcp, Config: cfg}).DialContext(ctx, "tcp", addr)
}
