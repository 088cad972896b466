package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A message that cannot be moved because its destination cannot be reached is stored in
// the endpoint's own queue with a delay, complete as it is to be moved, and with a note
// of its destination. A later delivery needs only the note: it outlives the process, and
// another instance can carry out the decision as well. No handler runs again, no slot and
// no lock are kept, and no delivery count rises (R25).

// undeliveredNote is the value of HeaderUndelivered.
type undeliveredNote struct {
	// Queue is the destination. Only a queue of the endpoint's configuration is accepted:
	// the right to send to the endpoint is not the right to send elsewhere.
	Queue string `json:"queue"`
	// Audit: it is an audit copy, which is given up after maxAuditRetryTime.
	Audit bool `json:"audit,omitempty"`
	// Tries is the number of failed tries to deliver it.
	Tries int `json:"tries"`
	// Since is the time of the first failed try.
	Since string `json:"since"`
}

// maxAuditRetryTime limits the time for which the delivery of an audit copy is tried. A
// lost copy is no lost message, but an unlimited number of copies would fill the
// endpoint's queue.
const maxAuditRetryTime = time.Hour

func (n undeliveredNote) String() string {
	text, err := json.Marshal(n)
	if err != nil {
		return "" // unreachable: strings and integers always encode
	}
	return string(text)
}

// readNote reads the header. A header that cannot be read counts as none.
func readNote(h Headers) (n undeliveredNote, ok bool) {
	text, ok := h.Lookup(HeaderUndelivered)
	if !ok { // as a rule, and it costs no allocation
		return undeliveredNote{}, false
	}
	return parseNote(text)
}

func parseNote(text string) (undeliveredNote, bool) {
	var n undeliveredNote
	if json.Unmarshal([]byte(text), &n) != nil || n.Queue == "" {
		return undeliveredNote{}, false
	}
	n.Tries = min(max(n.Tries, 1), 1000)
	return n, true
}

// canStore reports whether messages for a queue may be stored in the endpoint's own
// queue until it can be reached.
func (ep *Endpoint) canStore(queue string) bool {
	return ep.caps.DelayedDelivery && ep.mode != TransactionNone && ep.isConfiguredQueue(queue)
}

// storedCopy returns a message as it is stored until its destination can be reached.
func (ep *Endpoint) storedCopy(out Outgoing, note undeliveredNote) Outgoing {
	out.Queue = ep.address
	out.Headers.Set(HeaderUndelivered, note.String())
	out.Delay = ep.unreachable.StoredDelay(note.Tries)
	if ep.caps.MaxDelay > 0 {
		out.Delay = min(out.Delay, ep.caps.MaxDelay)
	}
	out.Reason = ReasonUndelivered
	return out
}

// reportUnreachable records that a queue of the endpoint cannot be reached, and reports
// it once for each probe.
func (r *runner) reportUnreachable(queue string, cause error, began time.Time) {
	if isNew, since := r.ep.unreachable.RecordFailure(queue, cause, began); isNew {
		r.raiseCritical(fmt.Errorf("queue %q cannot be reached since %s; messages for it are kept until it can (%d so far): %w",
			queue, since.UTC().Format(time.RFC3339), r.ep.undelivered(), cause))
	}
}

// reportUnreachableDeadLetters does so for a dead-letter or invalid queue, which standard
// replaces.
func (r *runner) reportUnreachableDeadLetters(queue, standard string, cause error, began time.Time) {
	if isNew, since := r.ep.unreachable.RecordFailure(queue, cause, began); isNew {
		r.raiseCritical(fmt.Errorf("queue %q cannot be reached since %s; until it can, messages for it go to the error queue %q: %w",
			queue, since.UTC().Format(time.RFC3339), standard, cause))
	}
}

// reportReached records that a queue of the endpoint can be reached.
func (r *runner) reportReached(queue string) {
	if since, wasUnreachable := r.ep.unreachable.RecordReached(queue); wasUnreachable {
		r.ep.log.endpoint.Info("queue can be reached again; messages for it are delivered", "queue", queue, "unreachable_since", since)
	}
}

// store stores a failed message in the endpoint's own queue, with the headers that it
// is to have in the error queue.
func (r *runner) store(a *attempt, f *failure, d *decision) error {
	note := undeliveredNote{Queue: d.action.Queue, Tries: 1, Since: FormatTime(time.Now())}
	copied := *f
	copied.Headers.Set(HeaderUndelivered, note.String()) // so that other headers make room for it
	var stored Outgoing
	err := r.sendFailedCopy(a, &copied, d, func(headers Headers) error {
		stored = r.ep.storedCopy(failedCopy(a, &copied, "", headers, ReasonUndelivered), note)
		return r.replace(a, append(slices.Clone(d.handleFailedSends), stored))
	})
	if err == nil {
		r.reportStored(a.decisionContext(), &stored, note)
	}
	return err
}

// reportStored logs and counts a message that was stored.
func (r *runner) reportStored(ctx context.Context, stored *Outgoing, note undeliveredNote) {
	r.ep.unreachable.AddStored(note.key(stored.ID), time.Now().Add(stored.Delay))
	r.ep.log.moved.LogAttrs(ctx, slog.LevelWarn, "message is stored in the endpoint's own queue until its destination can be reached",
		slog.String("message_id", stored.ID), slog.String("queue", note.Queue), slog.Int("tries", note.Tries),
		slog.String("since", note.Since), slog.Duration("retry_in", stored.Delay))
}

// deliverStored delivers a stored message to its destination, or stores it again.
func (r *runner) deliverStored(w *worker, a *attempt, note undeliveredNote) {
	in := a.delivery.Incoming()
	out := in.copyTo(note.Queue, in.Headers, ReasonMoveToError)
	if note.Audit {
		out.Reason = ReasonAudit
	}
	switch {
	case r.ep.isConfiguredQueue(note.Queue):
	case note.Audit && r.ep.auditAddress != "": // the configuration has changed
		note.Queue, out.Queue = r.ep.auditAddress, r.ep.auditAddress
	default: // it has changed, or the note is not ours
		out.Queue = r.ep.rules.config.Failed.ErrorQueue
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelWarn, "the queue of a stored message is not one of the endpoint's configuration; it goes to the error queue",
			slog.String("message_id", in.ID), slog.String("queue", note.Queue), slog.String("error_queue", out.Queue))
		note.Queue = out.Queue
	}
	note.Audit = note.Audit && out.Queue == r.ep.auditAddress // failed messages are not given up
	out.Headers.Del(HeaderUndelivered)
	if r.tryDeliverStored(a, out, note) {
		return
	}
	w.ReleaseSlotEarly()
	r.retainDelivery(a, r.decisionBackoff(nil, out.ID), func() bool { return r.tryDeliverStored(a, out, note) })
}

// tryDeliverStored makes one try, and reports whether the delivery has ended.
func (r *runner) tryDeliverStored(a *attempt, out Outgoing, note undeliveredNote) (done bool) {
	if r.lockLost(a) {
		r.endLockLost(a)
		return true
	}
	since := parseTimeOrZero(note.Since)
	endProbe, cause := r.ep.unreachable.Blocked(out.Queue)
	if cause == nil {
		defer endProbe()
		began := time.Now()
		cause = r.replace(a, []Outgoing{out})
		switch {
		case cause == nil:
			r.reportReached(out.Queue)
			r.ep.unreachable.RemoveStored(note.key(out.ID))
			r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelInfo, "stored message was delivered",
				slog.String("message_id", out.ID), slog.String("queue", out.Queue), slog.Int("tries", note.Tries+1), slog.String("since", note.Since))
			return true
		case endsDelivery(cause):
			r.endDelivery(a, cause)
			return true
		case failedByQueue(cause, out.ID):
			r.reportUnreachable(out.Queue, cause, began)
		default:
			r.raiseCriticalContext(a.decisionContext(), fmt.Errorf("queue %q refuses stored message %s; it is stored further: %w", out.Queue, out.ID, cause))
		}
	}
	if note.Audit && time.Since(since) > maxAuditRetryTime {
		err := r.replace(a, nil)
		if err == nil || endsDelivery(err) {
			r.ep.unreachable.RemoveStored(note.key(out.ID))
			r.raiseCriticalContext(a.decisionContext(), fmt.Errorf("audit copy of message %s is given up after %v: %w", out.ID, maxAuditRetryTime, cause))
			return true
		}
		return false
	}
	if !r.ep.caps.DelayedDelivery {
		return false
	}
	note.Tries++
	stored := r.ep.storedCopy(out, note)
	switch err := r.replace(a, []Outgoing{stored}); {
	case err == nil:
		r.reportStored(a.decisionContext(), &stored, note)
		return true
	case endsDelivery(err):
		r.endDelivery(a, err)
		return true
	}
	return false
}

// key identifies a stored message for Health.
func (n undeliveredNote) key(id string) string {
	if n.Audit {
		return "audit/" + id
	}
	return id
}

// undelivered returns the number of messages known to this process that wait for their
// destination.
func (ep *Endpoint) undelivered() int {
	return ep.redeliveries.pendingDecisions() + ep.unreachable.StoredMessages()
}
