package otelreprise

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/internal/bounded"
)

// maxPrevious is the most failed attempts that are remembered for a retry in this
// process.
const maxPrevious = 1000

// previousAttempts remembers the newest failed attempts, by copy of a message. It is for
// immediate retries and in-place retries, which write nothing into the message.
type previousAttempts struct {
	mu    sync.Mutex
	spans map[attemptedCopy]trace.SpanContext
	order []attemptedCopy // a ring; next is the oldest one once it is full
	next  int
}

// attemptedCopy is one stored copy of a message.
type attemptedCopy struct{ queue, nativeID string }

func (p *previousAttempts) remember(copied attemptedCopy, span trace.SpanContext) {
	if copied.nativeID == "" || !span.IsValid() {
		return
	}
	copied.nativeID = bounded.Key(copied.nativeID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spans == nil {
		p.spans = map[attemptedCopy]trace.SpanContext{}
	}
	if _, known := p.spans[copied]; !known {
		if len(p.order) < maxPrevious {
			p.order = append(p.order, copied)
		} else {
			delete(p.spans, p.order[p.next])
			p.order[p.next] = copied
			p.next = (p.next + 1) % maxPrevious
		}
	}
	p.spans[copied] = span
}

func (p *previousAttempts) find(copied attemptedCopy) (trace.SpanContext, bool) {
	if len(copied.nativeID) > bounded.MaxKey { // a shorter one need not be copied
		copied.nativeID = bounded.Key(copied.nativeID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	span, ok := p.spans[copied]
	return span, ok
}
