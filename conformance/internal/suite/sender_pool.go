package suite

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// senderPool is sent by several goroutines, one message after the other. Each message is
// sent again until it is accepted.
type senderPool struct {
	t      *caseT
	wg     sync.WaitGroup
	wakeup chan struct{} // holds a value when more messages were accepted

	mu sync.Mutex
	// doubtful has the ids of the accepted messages. The value is true if an earlier Send
	// failed to say whether the message had been accepted.
	doubtful map[string]bool
}

func (t *caseT) startSenders(transport core.Transport, queue string, senders, each int) *senderPool {
	l := &senderPool{t: t, wakeup: make(chan struct{}, 1), doubtful: map[string]bool{}}
	for i := range senders {
		msgs := t.messages(queue, each)
		for j := range msgs {
			msgs[j].Body = fmt.Appendf(nil, "%d of sender %d", j, i)
		}
		t.goInGroup(&l.wg, func() {
			for _, m := range msgs {
				l.send(transport, m)
			}
		})
	}
	t.Cleanup(l.wg.Wait)
	return l
}

func (l *senderPool) send(transport core.Transport, m core.Outgoing) {
	doubtful := false
	for pause := time.Millisecond; l.t.ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		err := l.t.trySend(transport, m)
		if err == nil {
			l.mu.Lock()
			l.doubtful[m.ID] = doubtful
			l.mu.Unlock()
			select {
			case l.wakeup <- struct{}{}:
			default:
			}
			return
		}
		sent, ok := errors.AsType[*core.SendError](err)
		switch {
		case !ok || len(sent.Results) != 1:
			l.t.fail("Send's error in an outage matches *core.SendError, with a result for each message", "%v", err)
			return
		case sent.Results[0].State != core.SendRefused:
			doubtful = true
		}
		l.t.sleep(pause)
	}
}

func (l *senderPool) recordAccepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.doubtful)
}

// awaitAccepted waits until n messages were accepted.
func (l *senderPool) awaitAccepted(n int) {
	timer := time.NewTimer(l.t.timeout())
	defer timer.Stop()
	for l.recordAccepted() < n {
		select {
		case <-l.wakeup:
		case <-timer.C:
			l.t.stop("Send accepts messages, before and after an outage", "%d were, and then no more within %v", l.recordAccepted(), l.t.timeout())
		}
	}
}

// wait waits until all messages are sent.
func (l *senderPool) wait() {
	if !l.t.returnsInTime(l.wg.Wait) {
		l.t.stop("Send works again after the outage", "%d messages were accepted, and then no more within %v", l.recordAccepted(), l.t.timeout())
	}
}
