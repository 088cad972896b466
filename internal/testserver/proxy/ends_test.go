//go:build darwin || linux

package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

const (
	patience = 5 * time.Minute       // for what must happen
	quiet    = 50 * time.Millisecond // for what must not
)

// listen starts a listener that stands for a server.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// start starts a proxy for a server.
func start(t *testing.T, server net.Listener) *Proxy {
	t.Helper()
	p, err := New(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// end is one end of a connection.
type end struct {
	t    *testing.T
	name string
	*net.TCPConn
}

func newEnd(t *testing.T, name string, c net.Conn) end {
	t.Cleanup(func() { c.Close() })
	return end{t, name, c.(*net.TCPConn)}
}

func dial(t *testing.T, p *Proxy) end {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return newEnd(t, "the client", c)
}

func accept(t *testing.T, l *net.TCPListener) end {
	t.Helper()
	must(t, l.SetDeadline(time.Now().Add(patience)))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return newEnd(t, "the server", c)
}

// connect returns the two ends of a connection through the proxy.
func connect(t *testing.T, p *Proxy, l *net.TCPListener) (client, server end) {
	t.Helper()
	client = dial(t, p)
	return client, accept(t, l)
}

func (e end) send(s string) {
	e.t.Helper()
	if _, err := io.WriteString(e, s); err != nil {
		e.t.Errorf("%s sends %q: %v", e.name, s, err)
	}
}

// sendsNoMore ends what this end sends. It still receives.
func (e end) sendsNoMore() {
	e.t.Helper()
	must(e.t, e.CloseWrite())
}

// crashes closes the connection with a reset.
func (e end) crashes() {
	e.t.Helper()
	must(e.t, e.SetLinger(0))
	must(e.t, e.Close())
}

// gets reads what must come.
func (e end) gets(want string) {
	e.t.Helper()
	must(e.t, e.SetReadDeadline(time.Now().Add(patience)))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(e, got); err != nil || string(got) != want {
		e.t.Fatalf("%s gets %q, %v; want %q", e.name, got[:n], err, want)
	}
}

// getsNothing watches that nothing comes, not even the end.
func (e end) getsNothing() {
	e.t.Helper()
	must(e.t, e.SetReadDeadline(time.Now().Add(quiet)))
	got := make([]byte, 100)
	if n, err := e.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		e.t.Fatalf("%s gets %q, %v; want nothing yet", e.name, got[:n], err)
	}
}

// getsEnd reads the end of the connection, and returns what comes before.
func (e end) getsEnd(want string) {
	e.t.Helper()
	must(e.t, e.SetReadDeadline(time.Now().Add(patience)))
	if got, err := io.ReadAll(e); err != nil || string(got) != want {
		e.t.Fatalf("%s gets %q, %v; want %q and the end", e.name, got, err, want)
	}
}

// isReset reads that the connection was reset, with nothing before.
func (e end) isReset() {
	e.t.Helper()
	must(e.t, e.SetReadDeadline(time.Now().Add(patience)))
	if got, err := io.ReadAll(e); len(got) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		e.t.Fatalf("%s gets %q, %v; want a reset", e.name, got, err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, subject string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, subject)
		}
	}
}

func awaitConnections(t *testing.T, p *Proxy, want int) {
	t.Helper()
	await(t, "the number of connections", func() bool { return p.Connections() == want })
}

func awaitStrike(t *testing.T, struck <-chan struct{}) {
	t.Helper()
	select {
	case <-struck:
	case <-time.After(patience):
		t.Fatalf("the fault did not strike within %v", patience)
	}
}
