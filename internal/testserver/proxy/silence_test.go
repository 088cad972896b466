//go:build darwin || linux

package proxy

import (
	"errors"
	"io"
	"testing"
	"time"
)

func TestSilence_ForwardsNothing(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	leaving, left := connect(t, p, l)
	crashing, crashed := connect(t, p, l)
	client.send("before")
	server.gets("before")
	p.Silence()
	client.send("one")
	server.send("1")
	leaving.Close()
	crashing.crashes()
	for _, e := range []end{client, server, left, crashed} {
		e.getsNothing()
	}
	second, accepted := connect(t, p, l)
	second.send("hello")
	accepted.gets("hello")
	accepted.send("welcome")
	second.gets("welcome")
	server.send("2") // still
	client.getsNothing()
}

func TestSilenceServer_ForwardsRequestsOnly(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	p.SilenceServer()
	server.send("1")
	client.send("one")
	server.gets("one")
	client.getsNothing()
	client.sendsNoMore()
	must(t, server.SetReadDeadline(time.Now().Add(patience)))
	if n, err := server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %d bytes and %v; want the client's end", n, err)
	}
}
