//go:build darwin || linux

package proxy

import (
	"io"
	"strings"
	"sync"
	"testing"
)

func TestLoseRequest_ServerSeesNothing(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	other, otherServer := connect(t, p, l)
	struck := p.LoseRequest([]byte("commit"))
	client.send("insert")
	server.gets("insert")
	server.send("done")
	client.gets("done")
	client.send("com") // a pattern may come in pieces
	server.gets("com")
	other.send("mit") // and each connection has its own
	otherServer.gets("mit")
	client.send("mit")
	awaitStrike(t, struck)
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	client.isReset()
	server.isReset()

	other.send("commit")
	otherServer.gets("commit")
}

func TestCutAfter_OnceForwarded(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	struck := p.CutAfter([]byte("commit"))
	client.send("insert; commit;")
	awaitStrike(t, struck)
	client.isReset()
	server.getsEnd("insert; commit;")

	client, server = connect(t, p, l)
	client.send("commit")
	server.gets("commit")
	server.send("done")
	client.gets("done")
}

// However soon the server answers.
func TestCutAfter_AnswerIsLost(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	for range 200 {
		client, server := connect(t, p, l)
		var answering sync.WaitGroup
		answering.Go(func() { _, _ = io.Copy(server, server) })
		struck := p.CutAfter([]byte("commit"))
		client.send("commit")
		awaitStrike(t, struck)
		client.isReset()
		answering.Wait()
	}
}

func TestLoseReply_ServerHasAnswered(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	struck := p.LoseReply([]byte("commit"), []byte("COMMIT"))
	client.send("insert;")
	server.gets("insert;")
	server.send("INSERT 1")
	client.gets("INSERT 1")
	client.send("delete; commit;")
	server.gets("delete; commit;")
	server.send("DELETE 1")
	client.send("and more")
	server.gets("and more")
	client.getsNothing()
	server.send("COM")
	client.getsNothing()
	server.send("MIT")
	awaitStrike(t, struck)
	client.isReset()
	server.isReset()

	client, server = connect(t, p, l)
	client.send("commit;")
	server.gets("commit;")
	server.send("COMMIT")
	client.gets("COMMIT")
}

func TestFault_AtAnyBytes(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	server.send("welcome")
	client.gets("welcome")
	struck := p.LoseReply(nil, nil)
	client.send("x")
	server.gets("x")
	client.getsNothing()
	server.send("y")
	awaitStrike(t, struck)
	client.isReset()

	client, server = connect(t, p, l)
	struck = p.LoseRequest(nil)
	client.send("x")
	awaitStrike(t, struck)
	server.isReset()

	client, server = connect(t, p, l)
	struck = p.CutAfter(nil)
	client.send("x")
	awaitStrike(t, struck)
	server.getsEnd("x")
}

func TestFault_SeveralInOrder(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	first, second, other := p.LoseRequest([]byte("commit")), p.CutAfter([]byte("commit")), p.LoseRequest([]byte("rollback"))
	a, _ := connect(t, p, l)
	a.send("commit")
	awaitStrike(t, first)
	a.isReset()
	b, server := connect(t, p, l)
	select {
	case <-second:
		t.Error("one chunk was struck by two faults")
	default:
	}
	b.send("commit")
	awaitStrike(t, second)
	server.getsEnd("commit")
	c, _ := connect(t, p, l)
	c.send("rollback")
	awaitStrike(t, other)
	c.isReset()
}

func TestFault_WaitsForLaterBytes(t *testing.T) {
	t.Parallel()
	l := listen(t)
	p := start(t, l)
	client, server := connect(t, p, l)
	client.send("commit com")
	server.gets("commit com")
	struck := p.LoseRequest([]byte("commit"))
	client.send("mit")
	server.gets("mit")
	server.send("done")
	client.gets("done")
	client.send("commit")
	awaitStrike(t, struck)
}

func TestPattern_AcrossReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		chunks  string // between spaces
		want    string // the chunks that complete the pattern, as + or -
	}{
		{"commit", "commit", "+"},
		{"commit", "; commit;", "-+"},
		{"commit", "c o m m i t", "-----+"},
		{"commit", "com com mit mit", "--+-"},
		{"commit", "commit commit", "++"},
		{"commit", "commitcommit x commi t", "+--+"},
		{"aa", "a a a", "-++"},
		{"a", "a b a", "+-+"},
		{"", "a b", "++"},
	} {
		var before []byte
		var got strings.Builder
		for chunk := range strings.SplitSeq(c.chunks, " ") {
			var complete bool
			complete, before = find([]byte(c.pattern), before, []byte(chunk))
			if complete {
				got.WriteByte('+')
			} else {
				got.WriteByte('-')
			}
		}
		if got.String() != c.want {
			t.Errorf("%q is found in %q as %s, want %s", c.pattern, c.chunks, &got, c.want)
		}
	}
}
