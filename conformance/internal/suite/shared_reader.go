package suite

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// sharedReader is the transport with which all cases read queues. Opening one takes as
// long on some brokers as the rest of a case.
type sharedReader struct {
	mu        sync.Mutex
	t         *caseT // belongs to no case
	transport core.Transport
	failed    bool // it cannot be opened
}

// readerTransport returns a transport to read queues with, and a function that ends its
// use. All cases share it, except for two kinds, which open their own: cases in a
// bubble, which has its own channels, and cases that stop the broker or count
// connections or goroutines.
func (t *caseT) readerTransport() (transport core.Transport, done func()) {
	if t.suite.h.Synctest || t.exclusive || t.rule == "C14" {
		transport = t.open()
		return transport, func() { t.close(transport) }
	}
	l := &t.suite.sharedReader
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.transport == nil && l.t != nil && !l.failed {
		var opened core.Transport
		if l.t.runWatched(t.suite.h.Timeout, func() { opened = l.t.open() }) {
			l.transport = opened
		}
		l.failed = l.transport == nil
	}
	if l.transport == nil {
		transport = t.open() // which reports the error
		return transport, func() { t.close(transport) }
	}
	return l.transport, func() {}
}

// shareReader lets the cases share a transport until the test ends.
func (s *suite) shareReader(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.sharedReader.t = &caseT{
		TB: t, suite: s, testCase: &testCase{rule: "C1", title: "the transport opens"}, caps: s.caps, mode: s.caps.HighestTransaction(),
		result: &Result{}, ctx: ctx, label: fmt.Sprintf("%s/%d", s.run, s.names.Add(1)),
	}
	t.Cleanup(func() {
		cancel()
		s.sharedReader.t.runWatched(s.h.Timeout, s.sharedReader.t.cleanUp) // closing is checked by other cases
	})
}
