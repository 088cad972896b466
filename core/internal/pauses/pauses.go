// Package pauses computes the pauses after messages that were put back: of an endpoint,
// and of single messages.
package pauses

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	minPause = time.Second
	maxPause = 30 * time.Second

	// maxTypes limits the message types whose pauses are remembered.
	maxTypes = 1000
)

// Pauses has the pauses of one Run.
type Pauses struct {
	// Wait lets the endpoint wait for d from now, and EndWait ends that early. They are
	// called one at a time, and must not call Pauses.
	Wait    func(d time.Duration)
	EndWait func()

	active   atomic.Bool // whether there is something to end
	mu       sync.Mutex
	endpoint pause            // of the endpoint
	messages map[string]pause // of messages, by their type: at most maxTypes
	// earlyEnds are the contexts that end the current pause of the endpoint early.
	earlyEnds []earlyEnd
}

// pause is the newest pause of a scope.
type pause struct {
	length time.Duration // if it grows
	until  time.Time
}

type earlyEnd struct {
	done <-chan struct{}
	stop func() bool
}

// next returns the pause that follows, and whether it begins now or is part of one that
// began earlier.
func (p pause) next(requested time.Duration, now time.Time) (next pause, begins bool) {
	begins = !now.Before(p.until)
	if requested == 0 && begins {
		p.length = min(max(2*p.length, minPause), maxPause)
	}
	if requested == 0 {
		p.length = max(p.length, minPause) // after one with a length
	}
	if length := cmp.Or(requested, p.length); begins || requested > 0 {
		if until := now.Add(length); until.After(p.until) {
			p.until = until
		}
	}
	return p, begins
}

// BeginMessage records the pause of a message of a type. A requested length of 0 is one
// that grows; if end, which may be nil, has ended, the pause is at most a second. It returns
// the length for this message, and whether a new pause of the type begins with it.
func (p *Pauses) BeginMessage(messageType string, requested time.Duration, end context.Context) (length time.Duration, begins bool) {
	now := time.Now()
	requested, _ = limit(requested, end)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.Store(true)
	current, begins := p.messages[messageType].next(requested, now)
	p.recordMessageLocked(messageType, current)
	return cmp.Or(requested, current.length), begins
}

// BeginEndpoint does so for the whole endpoint, which it lets wait. The end of end ends the
// pause early.
func (p *Pauses) BeginEndpoint(requested time.Duration, end context.Context) (length time.Duration, begins bool) {
	now := time.Now()
	requested, ended := limit(requested, end)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.Store(true)
	p.endpoint, begins = p.endpoint.next(requested, now)
	if begins {
		p.forgetEndsLocked()
	}
	length = p.endpoint.until.Sub(now)
	p.Wait(length)
	if end != nil && !ended {
		p.endWithLocked(end)
	}
	return length, begins
}

// limit shortens a pause whose context has ended before it began.
func limit(requested time.Duration, end context.Context) (limited time.Duration, ended bool) {
	if end == nil || end.Err() == nil {
		return requested, false
	}
	return min(cmp.Or(requested, minPause), minPause), true
}

// recordMessageLocked records the pause of a message type. As senders choose the types,
// there may be too many: then the pause of another type is forgotten and starts again
// with the first length.
func (p *Pauses) recordMessageLocked(messageType string, newest pause) {
	if p.messages == nil {
		p.messages = map[string]pause{}
	}
	p.messages[messageType] = newest
	for other := range p.messages {
		if len(p.messages) <= maxTypes {
			break
		}
		if other != messageType {
			delete(p.messages, other)
		}
	}
}

// endWithLocked ends the endpoint's pause when ctx ends.
func (p *Pauses) endWithLocked(ctx context.Context) {
	done := ctx.Done()
	if done == nil {
		return
	}
	for _, e := range p.earlyEnds {
		if e.done == done {
			return
		}
	}
	p.earlyEnds = append(p.earlyEnds, earlyEnd{done, context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.endpoint = pause{}
		p.EndWait()
	})})
}

func (p *Pauses) forgetEndsLocked() {
	for _, e := range p.earlyEnds {
		e.stop()
	}
	p.earlyEnds = nil
}

// Reset is called after a message that ended in another way: pauses of the endpoint, and
// of messages of this type, start again with the first length.
func (p *Pauses) Reset(messageType string) {
	if !p.active.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoint.length = 0
	delete(p.messages, messageType)
	p.active.Store(len(p.messages) > 0 || time.Now().Before(p.endpoint.until))
}

// Stop forgets the contexts that end pauses early.
func (p *Pauses) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetEndsLocked()
}
