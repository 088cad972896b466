package core

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// This file is about messages that stay in their queue (PutBack, R64).
//
// Where the broker counts failures alone, a delivery that is released is the same message
// with the same count. Where it counts every delivery, that would cost the message an
// attempt, and bring it nearer to the broker's own limit: there it is replaced by a copy, as
// if it had been refused (Refuse).

// Pause is what follows a message that is put back.
type Pause struct {
	// Length is for how long, or 0: 1 s at first, and twice as long each time that a pause
	// has passed and a message is put back again, up to 30 s. A message that ends in any other
	// way lets it begin with 1 s again; with PauseMessage one of the same type.
	Length time.Duration
	// Scope is what waits.
	Scope PauseScope
	// Context ends the pause early when it ends, or is nil. Where it has ended before, the
	// pause is at most 1 s.
	Context context.Context
}

// PauseScope says what waits while a Pause lasts.
type PauseScope int

const (
	// PauseEndpoint: this instance of the endpoint takes no message from its queues. The
	// message is available at once, to other instances; where the broker counts every
	// delivery, after 1 s. Attempts in progress go on.
	PauseEndpoint PauseScope = iota
	// PauseMessage: the message alone waits, and others are handled. It takes no slot. This
	// instance keeps it for the pause, so that it has its place in the queue, and releases it
	// then. At 1,000 messages it fetches no further ones until one is released; those that it
	// has fetched by then come on top.
	//
	// Where the broker counts every delivery (Capabilities.CountsReleases), and in
	// TransactionSendsAtomicWithReceive, a copy is delivered after the pause instead: any
	// number of messages can wait, but an end of Context reaches none of them. Without
	// delayed delivery that is not possible, and the endpoint waits.
	PauseMessage
	// PauseCopy is PauseMessage with a copy that is delivered after the pause on every
	// broker, at the end of the queue, so that any number of messages can wait and none holds
	// up others. A message of a group from a queue that keeps groups stays in its place.
	// Without delayed delivery it is PauseMessage.
	PauseCopy
)

const (
	firstPutBackPause = time.Second
	lastPutBackPause  = 30 * time.Second

	// putBackHandOver is how late a copy is available to other instances. A copy without a
	// delay could reach this instance's receiver before the broker has heard that it takes no
	// more: it would hold the copy, and give it back, which counts.
	putBackHandOver = time.Second

	// mostPutBack bounds the messages that are kept for their pause.
	mostPutBack = mostUnfinished

	// mostPutBackTypes bounds the message types whose pauses are remembered.
	mostPutBackTypes = 1000
)

// PutBack leaves the message in its queue, because it cannot be handled here and now: the
// feature is switched off, this instance is not ready. The message has not been tried. This
// is neither a failure nor a success, not for RateLimit, and no deferral: nothing is
// counted (UnacceptableMessagePutBacks may count it), RequeueLimit does not bound it, and
// what handlers sent is dropped. Nor does it begin a new round of attempts. If err is nil, so is the result.
//
// Where the broker counts failures only, the message keeps its place, its id and its
// headers, and any number of pauses is possible. Where it counts every delivery
// (Capabilities.CountsReleases) a copy takes its place at the end of the queue, as with
// Refuse. So the broker's own delivery limit is not reached there either, except by a
// message of a group, which stays in its place and is counted.
//
// Middleware that is given such an error answers with it at once (R53). In
// TransactionNone, where nothing can be given back, the message goes to the error queue.
func PutBack(err error, pause Pause) error {
	if err == nil {
		return nil
	}
	pause.Length = max(pause.Length, 0)
	return &Verdict{Kind: VerdictPutBack, Err: err, Pause: pause}
}

// putBack carries out the verdict.
func (r *runner) putBack(w *worker, a *attempt, f *failure, d *decision) {
	scope, asCopy := r.possiblePause(d.pause.Scope, f)
	length, begins := r.putBacks.begin(d.pause, scope, f.MessageType)
	d.action.Delay = length
	r.ep.log.logPutBack(a.deciding(), f, d, scope, begins)
	r.announce(a, f, d, false) // before the message can be redelivered
	r.ep.noteSurvived(a.delivery.Incoming())
	if r.ep.config.Recoverability.UnacceptableMessagePutBacks {
		defer r.terminated(f.MessageID, f.FailedAt)
	}
	if asCopy {
		if r.putBackCopy(a, f, scope, length) {
			return
		}
	} else if scope == PauseMessage {
		r.keepFor(a, length, d.pause.Context)
		return
	}
	w.freeSlot()
	r.giveBackIn(a.deciding(), held{a.delivery, a.hold})
	a.end()
}

// possiblePause returns how a scope is fulfilled: PauseEndpoint or PauseMessage, and whether a copy
// takes the place of the message.
func (r *runner) possiblePause(scope PauseScope, f *failure) (possible PauseScope, asCopy bool) {
	asCopy = r.ep.caps.CountsReleases
	if scope == PauseEndpoint {
		return scope, asCopy
	}
	canWait := r.ep.caps.DelayedDelivery || f.inPlace
	switch {
	case asCopy, r.isAtomic(): // it cannot be kept
		if !canWait {
			return PauseEndpoint, asCopy
		}
		return PauseMessage, true
	default:
		return PauseMessage, scope == PauseCopy && canWait
	}
}

// putBackCopy replaces the message by a copy, or postpones one of a group, without counting
// it. It returns false where neither is possible.
func (r *runner) putBackCopy(a *attempt, f *failure, scope PauseScope, length time.Duration) bool {
	delay := length
	if scope == PauseEndpoint && !f.inPlace { // other instances may have it
		delay = 0
		if r.ep.caps.DelayedDelivery {
			delay = min(length, putBackHandOver)
		}
	}
	d := &decision{action: DelayedRetry(r.ep.rules.possibleDelay(delay, *f)), deferral: true, uncounted: true}
	replace := r.sendAgain
	if f.inPlace {
		replace = r.postpone
	}
	err := replace(a, f, d)
	if err != nil && hasEnded(err) {
		r.leaveEnded(a, err)
		return true
	}
	if err != nil {
		r.ep.log.putBack.LogAttrs(a.deciding(), slog.LevelWarn, "message could not be replaced by a copy; it is given back, which the broker counts as a delivery",
			append(failureAttrs(f), slog.Any("send_error", err))...)
	}
	return err == nil
}

// keepFor keeps the message without a slot, and releases it after the pause.
func (r *runner) keepFor(a *attempt, length time.Duration, early context.Context) {
	if longest := r.ep.caps.MaxLockTime; longest > 0 {
		length = min(length, longest/2)
	}
	if early != nil && early.Err() != nil {
		early = nil
	}
	a.end()
	release := func() { r.giveBackIn(a.deciding(), held{a.delivery, a.hold}) }
	r.kept.add(&unfinished{
		pause:  pauses{length, length},
		early:  early,
		try:    func() bool { release(); return true },
		giveUp: release,
	})
}

// keptFull stops fetching while as many messages are kept for their pause as can be.
func (r *runner) keptFull(full bool) {
	if !full {
		r.pump.ungate()
		return
	}
	r.pump.gate()
	r.ep.log.putBack.Warn("no messages are fetched until one of those that were put back is released: this instance keeps as many as it can", "messages", mostPutBack)
}

// logPutBack writes a line at Info when a pause begins, and at Debug for each other message
// that is put back in it.
func (l *loggers) logPutBack(ctx context.Context, f *failure, d *decision, scope PauseScope, begins bool) {
	level := slog.LevelDebug
	if begins {
		level = slog.LevelInfo
	}
	waits := "the endpoint"
	if scope == PauseMessage {
		waits = "the message"
	}
	l.about(ctx, l.putBack, level, f, []slog.Attr{slog.Duration("pause", d.action.Delay), slog.String("waits", waits)},
		"putting message back", "Putting message '%s' back; %s waits for %s.", f.MessageID, waits, clock(d.action.Delay))
}

// putBacks is the pauses of one Run.
type putBacks struct {
	pump *pump

	active   atomic.Bool // whether there is something to end
	mu       sync.Mutex
	endpoint putBackPause            // of the endpoint
	messages map[string]putBackPause // of messages, by their type: at most mostPutBackTypes
	// ends are the contexts that end the current pause of the endpoint early.
	ends []earlyEnd
}

// putBackPause is the newest pause of a scope.
type putBackPause struct {
	length time.Duration // where it grows
	until  time.Time
}

type earlyEnd struct {
	done <-chan struct{}
	stop func() bool
}

// next returns the pause that follows, and whether it begins now or is part of one that
// began earlier.
func (p putBackPause) next(asked time.Duration, now time.Time) (next putBackPause, begins bool) {
	begins = !now.Before(p.until)
	if asked == 0 && begins {
		p.length = min(max(2*p.length, firstPutBackPause), lastPutBackPause)
	}
	if asked == 0 {
		p.length = max(p.length, firstPutBackPause) // after one with a length
	}
	if length := cmp.Or(asked, p.length); begins || asked > 0 {
		if until := now.Add(length); until.After(p.until) {
			p.until = until
		}
	}
	return p, begins
}

// begin notes a pause. It returns the length for this message, and whether a new pause
// begins with it.
func (p *putBacks) begin(pause Pause, scope PauseScope, messageType string) (length time.Duration, begins bool) {
	now := time.Now()
	asked := pause.Length
	ended := pause.Context != nil && pause.Context.Err() != nil
	if ended {
		asked = min(cmp.Or(asked, firstPutBackPause), firstPutBackPause)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.Store(true)
	if scope == PauseMessage {
		current, begins := p.messages[messageType].next(asked, now)
		p.noteMessageLocked(messageType, current)
		return cmp.Or(asked, current.length), begins
	}
	p.endpoint, begins = p.endpoint.next(asked, now)
	if begins {
		p.forgetEndsLocked()
	}
	length = p.endpoint.until.Sub(now)
	p.pump.waitFor(waitPutBack, length) // before the message is given back
	if pause.Context != nil && !ended {
		p.endWithLocked(pause.Context)
	}
	return length, begins
}

// noteMessageLocked notes the pause of a message type. Where there are too many types,
// which senders name, another is forgotten: its pauses begin with the first again.
func (p *putBacks) noteMessageLocked(messageType string, pause putBackPause) {
	if p.messages == nil {
		p.messages = map[string]putBackPause{}
	}
	p.messages[messageType] = pause
	for other := range p.messages {
		if len(p.messages) <= mostPutBackTypes {
			break
		}
		if other != messageType {
			delete(p.messages, other)
		}
	}
}

// endWithLocked ends the endpoint's pause when ctx ends.
func (p *putBacks) endWithLocked(ctx context.Context) {
	done := ctx.Done()
	if done == nil {
		return
	}
	for _, e := range p.ends {
		if e.done == done {
			return
		}
	}
	p.ends = append(p.ends, earlyEnd{done, context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.endpoint = putBackPause{}
		p.pump.endWait(waitPutBack)
	})})
}

func (p *putBacks) forgetEndsLocked() {
	for _, e := range p.ends {
		e.stop()
	}
	p.ends = nil
}

// ended follows a message that ended in another way: pauses begin with the first again.
func (p *putBacks) ended(messageType string) {
	if !p.active.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoint.length = 0
	delete(p.messages, messageType)
	p.active.Store(len(p.messages) > 0 || time.Now().Before(p.endpoint.until))
}

// stop forgets the contexts that end pauses early.
func (p *putBacks) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetEndsLocked()
}
