package core

import (
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/internal/bounded"
)

// maxUndeliverableQueues limits the remembered queues with a critical error.
const maxUndeliverableQueues = 1000

// undeliverableQueues are the queues about which one Run raised a critical error.
type undeliverableQueues struct {
	mu       sync.Mutex
	reported map[string]bool
}

// first reports whether a queue has had no critical error yet.
func (u *undeliverableQueues) first(queue string) bool {
	queue = bounded.Key(queue)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reported[queue] {
		return false
	}
	if u.reported == nil || len(u.reported) >= maxUndeliverableQueues {
		u.reported = map[string]bool{}
	}
	u.reported[queue] = true
	return true
}

// messageUndeliverable is ReceiverConfig.MessageUndeliverable: an Error line at a
// message's first failed try and when it is moved, and a critical error at the first move
// for each queue, or the first that failed. Messages that the broker moved are no
// critical error, because they may be another endpoint's. Users' code, log handlers
// included, must not block the adapter.
func (c connectionReporter) messageUndeliverable(e Undeliverable) {
	r, log := c.r, c.r.ep.log.endpoint
	r.hookCalls.Add(func() {
		switch {
		case e.Messages > 0:
			log.Error("delayed messages could not be put into their queues, and are in another one", "messages", e.Messages, "moved_to", e.MovedTo, "error", e.Err)
		case e.MovedTo != "":
			log.Error("delayed message was moved to the error queue, because it cannot be put into its queue",
				"message_id", e.MessageID, "queue", e.Queue, "error_queue", e.MovedTo, "tries", e.Tries, "error", e.Err)
			if r.undeliverableQueues.first(e.Queue) {
				r.raiseCritical(fmt.Errorf("delayed messages for queue %q cannot be put there and are moved to %q, the first one (%s) after %d tries: %w",
					e.Queue, e.MovedTo, bounded.Name(e.MessageID), e.Tries, e.Err))
			}
		case e.MoveErr != nil:
			log.Error("delayed message can be put neither into its queue nor into the error queue; it is tried again",
				"message_id", e.MessageID, "queue", e.Queue, "tries", e.Tries, "retry_in", e.RetryIn, "error", e.Err, "move_error", e.MoveErr)
			if r.undeliverableQueues.first(e.Queue) {
				r.raiseCritical(fmt.Errorf("delayed messages for queue %q can be put neither there (%w) nor into the error queue: %w", e.Queue, e.Err, e.MoveErr))
			}
		case e.Tries <= 1:
			log.Error("delayed message cannot be put into its queue; it is tried again",
				"message_id", e.MessageID, "queue", e.Queue, "retry_in", e.RetryIn, "error", e.Err)
		default:
			log.Debug("delayed message still cannot be put into its queue; it is tried again",
				"message_id", e.MessageID, "queue", e.Queue, "tries", e.Tries, "retry_in", e.RetryIn, "error", e.Err)
		}
	})
	for _, o := range r.ep.observers.undeliverable {
		r.hookCalls.Add(func() { o.MessageUndeliverable(e) })
	}
}
