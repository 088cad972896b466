//go:build darwin || linux

package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestProxy_Forwards(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	client.send("question")
	server.gets("question")
	server.send("answer")
	client.gets("answer")

	client.sendsNoMore()
	server.getsEnd("")
	server.send("after the end of questions")
	client.gets("after the end of questions")
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections while the server goes on, want 1", n)
	}
	server.Close()
	client.getsEnd("")
	awaitConnections(t, p, 0)
}

func TestProxy_ForwardsLargeStreamsBothWays(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	much := bytes.Repeat([]byte("0123456789"), 500_000)
	var all sync.WaitGroup
	all.Go(func() { client.send(string(much)); client.sendsNoMore() })
	all.Go(func() {
		if _, err := io.Copy(server, server); err != nil {
			t.Error(err)
		}
		server.sendsNoMore()
	})
	client.getsEnd(string(much))
	all.Wait()
}

func TestProxy_ForwardsAReset(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	for _, first := range []string{"client", "server"} {
		client, server := connect(t, p, l)
		if first == "server" {
			client, server = server, client
		}
		client.crashes()
		server.isReset()
		awaitConnections(t, p, 0)
	}
}

func TestProxy_MissingServer(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	l.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset did not come at once
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to no server: %v, want a reset", err)
	}
	awaitConnections(t, p, 0)
}

func TestStall_ForwardsLater(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	leaving, left := connect(t, p, l)
	crashing, crashed := connect(t, p, l)
	for range 2 { // the second time changes nothing
		p.Stall()
	}
	client.send("one,")
	server.send("1,")
	server.getsNothing()
	client.getsNothing()
	client.send("two,")
	server.send("2,")
	leaving.send("bye")
	leaving.Close()
	left.getsNothing()
	crashing.crashes()
	crashed.getsNothing()

	second := dial(t, p)
	second.send("hello")
	second.getsNothing()
	must(t, l.SetDeadline(time.Now().Add(quiet)))
	if c, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server accepts a new connection: %v, %v", c, err)
	}
	if n := p.Connections(); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}

	for range 2 { // the second time changes nothing
		p.Resume()
	}
	server.gets("one,two,")
	client.gets("1,2,")
	left.getsEnd("bye")
	crashed.isReset()
	accept(t, l).gets("hello")
}

func TestCut_EndsConnections(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	p.Cut() // nobody
	a, b := connect(t, p, l)
	c, d := connect(t, p, l)
	a.sendsNoMore()
	b.getsEnd("")
	p.Cut()
	if n := p.Connections(); n != 0 {
		t.Errorf("%d connections after Cut, want 0", n)
	}
	for _, e := range []end{a, c, d} {
		e.isReset()
	}
	if _, err := b.Write([]byte("x")); err == nil {
		_, err = b.Write([]byte("x"))
		if err == nil {
			t.Error("the server of a connection that was cut can write to it")
		}
	}

	client, server := connect(t, p, l)
	p.Stall()
	client.send("lost")
	second := dial(t, p)
	awaitConnections(t, p, 2)
	p.Cut()
	for _, e := range []end{client, server, second} {
		e.isReset()
	}
	p.Resume()
	client, server = connect(t, p, l)
	client.send("found")
	server.gets("found")
}

func TestCut_FullBuffers(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	must(t, client.SetWriteDeadline(time.Now().Add(patience)))
	wrote := make(chan error)
	go func() {
		for {
			if _, err := client.Write(make([]byte, 1<<20)); err != nil {
				wrote <- err
				return
			}
		}
	}()
	server.gets("\x00")
	p.Cut()
	if err := <-wrote; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the client's write returned %v, want a reset", err)
	}
}

func TestRefuse_NewConnections(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	for range 3 {
		for range 2 { // the second time changes nothing
			if err := p.Refuse(); err != nil {
				t.Fatal(err)
			}
		}
		if c, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection: %v, %v; want it refused", c, err)
		}
		client.send("an open one")
		server.gets("an open one")
		for range 2 {
			if err := p.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		a, b := connect(t, p, l)
		a.send("a new one")
		b.gets("a new one")
	}
}

func TestClose_EndsConnections(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p, err := New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, server := connect(t, p, l)
	p.Stall()
	second := dial(t, p)
	awaitConnections(t, p, 2)
	for range 2 { // the second time changes nothing
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []end{client, server, second} {
		e.isReset()
	}
	if err := p.Accept(); err == nil {
		t.Error("Accept of a closed proxy returned no error")
	}
	p.Resume()
	p.Cut()
	if err := p.Refuse(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Errorf("connected to a closed proxy: %v", c.RemoteAddr())
	}
}

// TestProxy_ConcurrentCalls is for the race detector, and for what waits for ever.
func TestProxy_ConcurrentCalls(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	var servers, clients, faults sync.WaitGroup
	servers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			servers.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until a fault ends it
			})
		}
	})
	deadline := time.Now().Add(time.Second)
	for range 8 {
		clients.Go(func() {
			for time.Now().Before(deadline) {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				for err = c.SetDeadline(deadline); err == nil; {
					if _, err = c.Write([]byte("commit")); err == nil {
						_, err = io.ReadFull(c, make([]byte, 6))
					}
				}
				c.Close()
			}
		})
	}
	for _, do := range []func(){
		func() { p.Stall(); p.Resume() },
		p.Cut,
		func() { must(t, errors.Join(p.Refuse(), p.Accept())) },
		func() { p.LoseRequest([]byte("it")) },
		func() { p.CutAfter([]byte("com")) },
		func() { p.LoseReply([]byte("commit"), []byte("mm")) },
		func() { p.Connections() },
	} {
		faults.Go(func() {
			for time.Now().Before(deadline) {
				do()
				time.Sleep(time.Millisecond)
			}
		})
	}
	faults.Wait()
	clients.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	l.Close()
	servers.Wait()
}

func TestThrottle_LimitsTheRate(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	const rate, size = 1 << 20, 512 << 10
	p.Throttle(rate)
	start := time.Now()
	server.send(string(bytes.Repeat([]byte("x"), size)))
	client.gets(string(bytes.Repeat([]byte("x"), size)))
	if took, minimum := time.Since(start), time.Second*size/rate; took < minimum {
		t.Errorf("%d bytes arrive within %v at %d bytes a second, want at least %v", size, took, rate, minimum)
	}
	p.Throttle(0)
	client.send("question")
	server.gets("question")
}
