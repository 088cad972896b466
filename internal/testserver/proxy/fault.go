//go:build darwin || linux

package proxy

import (
	"bytes"
	"slices"
)

// A fault strikes one connection: the first one whose client sends a pattern.
type fault struct {
	kind     kind
	request  []byte           // strikes the connection on which a client sends this
	seen     map[*link][]byte // the last bytes that clients have sent, which may begin request
	replyEnd []byte           // the end of the reply to lose
	replied  []byte           // the last bytes of the server's reply, which may begin replyEnd
	struck   chan struct{}
}

type kind int

const (
	loseRequest kind = iota
	cutAfter
	loseReply
)

// LoseRequest resets, on both sides, the next connection on which a client sends pattern: the
// server gets nothing of the chunk that completes it. The channel is closed when that has
// happened. A nil pattern matches any data.
//
// For this method, CutAfter and LoseReply: a pattern matches only data sent after the call,
// in any number of chunks. Several faults can wait at the same time, also for the same
// pattern; a chunk that completes several patterns triggers only the fault that was requested
// first. The caller must not change the pattern afterwards.
func (p *Proxy) LoseRequest(pattern []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: loseRequest, request: pattern})
}

// CutAfter closes the next connection on which a client sends pattern, as soon as the server
// was sent the chunk that completes it. The client never gets an answer to that chunk and
// sees a reset. The server sees the end of the connection after the request, and may execute
// the request before or after the client has reconnected. The channel is closed when that has
// happened.
func (p *Proxy) CutAfter(pattern []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: cutAfter, request: pattern})
}

// LoseReply loses the reply to a request that the server has executed: on the next connection
// on which a client sends request, no further data from the server arrives, and when the
// server has sent replyEnd, the connection is reset on both sides. The channel is closed when
// that has happened. With a nil until the reset follows the server's first data, which a long
// request may trigger before the server has finished. If both are nil, the fault strikes the
// next request on any connection.
func (p *Proxy) LoseReply(request, replyEnd []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: loseReply, request: request, replyEnd: replyEnd})
}

func (p *Proxy) arm(f *fault) <-chan struct{} {
	f.seen = map[*link][]byte{}
	f.struck = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f.struck
}

// verdict decides about a chunk: whether it passes, and whether a fault strikes after it.
type verdict struct {
	pass   bool
	strike *fault
}

// request decides about data from the client.
func (l *link) request(chunk []byte) verdict {
	f := l.proxy.due(l, chunk)
	switch {
	case f == nil:
		return verdict{pass: true}
	case f.kind == loseRequest:
		return verdict{strike: f}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing = f // before the server can answer
	if f.kind == cutAfter {
		return verdict{pass: true, strike: f}
	}
	return verdict{pass: true}
}

// reply decides about data from the server.
func (l *link) reply(chunk []byte) verdict {
	l.mu.Lock()
	f := l.losing
	l.mu.Unlock()
	switch {
	case f == nil:
		return verdict{pass: true}
	case f.kind == cutAfter:
		return verdict{} // the connection is about to be closed
	}
	var complete bool
	if complete, f.replied = find(f.replyEnd, f.replied, chunk); complete {
		return verdict{strike: f}
	}
	return verdict{}
}

// due returns the fault whose request a chunk completes, and removes it from the waiting
// faults. It returns nil if there is none.
func (p *Proxy) due(l *link, chunk []byte) (due *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.faults[:0]
	for _, f := range p.faults {
		var complete bool
		complete, f.seen[l] = find(f.request, f.seen[l], chunk)
		if complete && due == nil {
			due = f
		} else {
			waiting = append(waiting, f)
		}
	}
	clear(p.faults[len(waiting):])
	p.faults = waiting
	return due
}

// find reports whether a chunk completes the pattern, and returns the bytes to keep for the
// next call.
func find(pattern, before, chunk []byte) (complete bool, after []byte) {
	all := slices.Concat(before, chunk)
	return bytes.Contains(all, pattern), all[max(0, len(all)-max(0, len(pattern)-1)):]
}
