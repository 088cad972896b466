//go:build darwin || linux

package proxy

import (
	"bytes"
	"slices"
)

// A fault strikes one connection: the first whose client sends a pattern.
type fault struct {
	kind    kind
	request []byte           // strikes the connection on which a client sends this
	seen    map[*link][]byte // the end of what clients have sent, where request may have begun
	until   []byte           // the end of the reply that is lost
	replied []byte           // the end of what the server has replied, where until may have begun
	struck  chan struct{}
}

type kind int

const (
	loseRequest kind = iota
	cutAfter
	loseReply
)

// LoseRequest resets, on both sides, the next connection on which a client sends
// pattern: the server gets nothing of the chunk that completes it. The channel is
// closed when that has happened. A nil pattern stands for anything at all.
//
// For this method, CutAfter and LoseReply: a pattern counts when all of it is sent
// after the call, in however many chunks. Several faults wait side by side, also
// for the same pattern; a chunk that completes two strikes with the one that was
// asked for first. The pattern must not be changed afterwards.
func (p *Proxy) LoseRequest(pattern []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: loseRequest, request: pattern})
}

// CutAfter closes the next connection on which a client sends pattern, as soon as
// the server was sent the chunk that completes it: the client gets no answer to that
// chunk, however quick the server is, and sees a reset, while the server sees the end
// of the connection after the request, and may carry it out before or after the client
// has come back. The channel is closed when that has happened.
func (p *Proxy) CutAfter(pattern []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: cutAfter, request: pattern})
}

// LoseReply loses the reply to a request that the server has carried out: on the
// next connection on which a client sends request, nothing more that the server
// sends arrives, and when it has sent until, the connection is reset on both sides.
// The channel is closed when that has happened. With until nil that is when it has
// sent anything, which can be before it has finished if the request is long. Both
// nil: the next request on any connection.
func (p *Proxy) LoseReply(request, until []byte) (struck <-chan struct{}) {
	return p.arm(&fault{kind: loseReply, request: request, until: until})
}

func (p *Proxy) arm(f *fault) <-chan struct{} {
	f.seen = map[*link][]byte{}
	f.struck = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f.struck
}

// verdict says what is to be done with a chunk: whether it passes, and whether a
// fault strikes after it.
type verdict struct {
	pass   bool
	strike *fault
}

// request judges what a client has sent.
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

// reply judges what the server has sent.
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
	if complete, f.replied = find(f.until, f.replied, chunk); complete {
		return verdict{strike: f}
	}
	return verdict{}
}

// due returns the fault whose request a chunk completes, which no longer waits, or
// nil.
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

// find reports whether a chunk completes the pattern, and returns what is to be
// kept before the next one.
func find(pattern, before, chunk []byte) (complete bool, after []byte) {
	all := slices.Concat(before, chunk)
	return bytes.Contains(all, pattern), all[max(0, len(all)-max(0, len(pattern)-1)):]
}
