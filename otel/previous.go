package otelreprise

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// mostPrevious is the most failed attempts that are remembered for a retry in this
// process.
const mostPrevious = 1000

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

func (p *previousAttempts) remember(of attemptedCopy, span trace.SpanContext) {
	if of.nativeID == "" || !span.IsValid() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spans == nil {
		p.spans = map[attemptedCopy]trace.SpanContext{}
	}
	if _, known := p.spans[of]; !known {
		if len(p.order) < mostPrevious {
			p.order = append(p.order, of)
		} else {
			delete(p.spans, p.order[p.next])
			p.order[p.next] = of
			p.next = (p.next + 1) % mostPrevious
		}
	}
	p.spans[of] = span
}

func (p *previousAttempts) of(copied attemptedCopy) (trace.SpanContext, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	span, ok := p.spans[copied]
	return span, ok
}
