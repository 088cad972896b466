package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/core/internal/unreachable"
	"github.com/reprise-go/reprise/internal/bounded"
)

// A message that cannot be moved because its destination cannot be reached is stored in
// the endpoint's own queue with a delay, complete as it is to be moved, and with a note
// of its destination. A later delivery needs only the note: it outlives the process, and
// another instance can carry out the decision as well. No handler runs again, no slot and
// no lock are kept, and no delivery count rises (R25).

// undeliveredNote is the value of headers.Undelivered.
type undeliveredNote struct {
	// Queue is the destination. Only a queue of the endpoint's configuration is accepted:
	// the right to send to the endpoint is not the right to send elsewhere.
	Queue string `json:"queue"`
	// Audit: it is an audit copy, which is given up after maxAuditRetryTime.
	Audit bool `json:"audit,omitempty"`
	// Report: its sender asks for a report of the outcome (reportOutcome).
	Report bool `json:"report,omitempty"`
	// Tries is the number of failed tries to deliver it.
	Tries int `json:"tries"`
	// Since is the time of the first failed try.
	Since string `json:"since"`
	// converted: it was an audit copy, and goes to the error queue.
	converted bool
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
	text, ok := h.Lookup(headers.Undelivered)
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
	if now := time.Now(); parseTimeOrZero(n.Since).After(now) { // a sender has forged it
		n.Since = headers.FormatTime(now)
	}
	return n, true
}

// canStore reports whether messages for a queue may be stored in the endpoint's own
// queue until it can be reached.
func (r *resolvedConfig) canStore(queue string) bool {
	return r.rules.caps.DelayedDelivery && r.mode != TransactionNone && r.isConfiguredQueue(queue)
}

// storedCopy returns a message as it is stored until its destination can be reached.
func (n undeliveredNote) storedCopy(out Outgoing, r *rules, queues *unreachable.Queues) Outgoing {
	out.Queue = r.ownAddress
	out.Headers.Set(headers.Undelivered, n.String())
	out.Delay = queues.StoredDelay(n.Tries)
	if r.caps.MaxDelay > 0 {
		out.Delay = min(out.Delay, r.caps.MaxDelay)
	}
	out.Reason = ReasonUndelivered
	return out
}

// reportUnreachable records that a queue of the endpoint cannot be reached, and reports it
// once for each probe. replacement is the queue that takes its messages until it can, or "".
func (r *runner) reportUnreachable(queue, replacement string, cause error, began time.Time) {
	isNew, since := r.ep.unreachable.RecordFailure(queue, cause, began)
	switch at := since.UTC().Format(time.RFC3339); {
	case !isNew:
	case replacement != "":
		r.raiseCritical(fmt.Errorf("queue %q cannot be reached since %s; until it can, messages for it go to the error queue %q: %w", queue, at, replacement, cause))
	default:
		r.raiseCritical(fmt.Errorf("queue %q cannot be reached since %s; messages for it are kept until it can (%d so far): %w", queue, at, r.ep.undelivered(), cause))
	}
}

// reportReached records that a queue of the endpoint can be reached.
func (r *runner) reportReached(queue string) {
	if since, wasUnreachable := r.ep.unreachable.RecordReached(queue); wasUnreachable {
		r.ep.log.endpoint.Info("queue can be reached again; messages for it are delivered", "queue", queue, "unreachable_since", since)
	}
}

// reportStored logs and counts a message that was stored.
func (r *runner) reportStored(ctx context.Context, stored *Outgoing, note undeliveredNote) {
	r.ep.unreachable.AddStored(note.key(stored.ID), time.Now().Add(stored.Delay))
	r.ep.log.moved.LogAttrs(ctx, slog.LevelWarn, "message is stored in the endpoint's own queue until its destination can be reached",
		slog.String("message_id", stored.ID), slog.String("queue", note.Queue), slog.Int("tries", note.Tries),
		slog.String("since", note.Since), slog.Duration("retry_in", stored.Delay))
}

// storedNote returns the note of a message that the endpoint has stored. Any sender can write
// one: it is ignored if the message does not say that it failed at the endpoint's queue, or of
// an audit copy that the endpoint handled it, and the message is handled as any other.
func (c *carrier) storedNote(in *Incoming) (undeliveredNote, bool) {
	note, ok := readNote(in.Headers)
	if !ok {
		return note, false
	}
	key, own := headers.FailedQ, c.ep.address
	if note.Audit {
		key, own = headers.ProcessingEndpoint, c.ep.host.endpoint
	}
	if given := in.Headers.Get(key); given != own {
		c.ep.log.endpoint.Warn("message has the note of a stored one, but does not name this endpoint as the one that stored it; it is handled as any other",
			"message_id", in.ID, "header", key, "value", bounded.Name(given))
		return undeliveredNote{}, false
	}
	return note, true
}

// storedWork returns the work for a message that was stored, whose destination may have to
// be another one by now.
func (c *carrier) storedWork(w *worker, a *attempt, note undeliveredNote) *work {
	in := a.delivery.Incoming()
	switch {
	case c.ep.resolved.isConfiguredQueue(note.Queue):
	case note.Audit && c.ep.auditAddress != "": // the configuration has changed
		note.Queue = c.ep.auditAddress
	default: // it has changed, or the note is not ours
		standard := c.ep.rules.config.Failed.ErrorQueue
		c.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelWarn, "the queue of a stored message is not one of the endpoint's configuration; it goes to the error queue",
			slog.String("message_id", in.ID), slog.String("queue", note.Queue), slog.String("error_queue", standard))
		note.Queue = standard
	}
	note.converted = note.Audit && note.Queue != c.ep.auditAddress
	note.Audit = note.Audit && !note.converted // failed messages are not given up
	wk := &work{attempt: a, worker: w, note: note, decision: decision{errorQueue: c.ep.rules.config.Failed.ErrorQueue}}
	wk.walk.Facts = c.facts(wk)
	return wk
}

// planned returns the part of the note that its plan depends on.
func (n undeliveredNote) planned(errorQueue string) plan.Note {
	return plan.Note{
		Expired: n.Audit && time.Since(parseTimeOrZero(n.Since)) > maxAuditRetryTime,
		Custom:  !n.Audit && n.Queue != errorQueue,
	}
}

// storedMessage returns the stored message for a queue, in one form (R24). A failed one gets the
// identity of this endpoint, because a sender may have written the note, and the time
// of this delivery. Those that the application edited are left as they are.
func (c *carrier) storedMessage(w *work, queue string, form plan.Form) Outgoing {
	in := w.attempt.delivery.Incoming()
	out := in.copyTo(queue, in.Headers, ReasonMoveToError)
	switch {
	case w.note.Audit:
		out.Reason = ReasonAudit
	case w.note.converted: // it describes no failure of this endpoint
		out.Headers.deleteFunc(isFailureHeader)
		c.ep.host.write(&out.Headers)
		out.Headers.Set(headers.FailedQ, c.ep.address)
	case c.ep.config.Recoverability.EditFailed == nil:
		identity := c.ep.host.identity()
		for _, p := range append(identity[:], header{headers.TimeOfFailure, headers.FormatTime(time.Now())}) {
			if _, ok := out.Headers.Lookup(p.key); ok { // others did not fit
				out.Headers.Set(p.key, p.value)
			}
		}
	}
	switch form {
	case plan.Clean:
		out.sanitize()
	case plan.Bare:
		out.strip(in)
	}
	out.Headers.Del(headers.Undelivered)
	return out
}

// storedWasDelivered reports that a stored message has reached its destination.
func (c *carrier) storedWasDelivered(w *work, queue string) {
	in := w.attempt.delivery.Incoming()
	c.ep.unreachable.RemoveStored(w.note.key(in.ID))
	c.ep.log.moved.LogAttrs(w.attempt.decisionContext(), slog.LevelInfo, "stored message was delivered",
		slog.String("message_id", in.ID), slog.String("queue", queue), slog.Int("tries", w.note.Tries+1), slog.String("since", w.note.Since))
}

// giveUpStored reports that an expired audit copy is given up.
func (c *carrier) giveUpStored(w *work) {
	in := w.attempt.delivery.Incoming()
	c.ep.unreachable.RemoveStored(w.note.key(in.ID))
	c.run.raiseCriticalContext(w.attempt.decisionContext(), fmt.Errorf("audit copy of message %s is given up after %v: %w", bounded.Name(in.ID), maxAuditRetryTime, w.cause))
}

// key identifies a stored message for Health.
func (n undeliveredNote) key(id string) string {
	if n.Audit {
		return "audit/" + id
	}
	return id
}
