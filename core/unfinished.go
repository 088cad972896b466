package core

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/internal/bounded"
	"github.com/reprise-go/reprise/internal/lru"
)

// unfinished is the memory of all that is decided, or done, and not carried out. Where a failed
// message can be:
//
//	| where                              | its keeper                        | survives a kill                     | ends by
//	|------------------------------------|-----------------------------------|-------------------------------------|--------
//	| locked, an attempt in progress     | the worker, with a slot           | yes: it is redelivered              | carry returns
//	| kept: a try is due later           | kept or paused, with its delivery | yes; the decision does not          | a try, MaxLockTime/2, a lost lock, the stop
//	| remembered: it may be redelivered  | remembered, without a delivery    | as above; the decision survives Run | its redelivery here, 10 minutes
//	| a copy is out, or none is needed   | as kept; and settled              | yes, twice, with the same id        | Consume, or its redelivery here
//	| stored in the own queue            | the broker; any instance          | yes, with the decision              | its destination is reached
//	| waiting for a delayed retry        | the broker                        | yes; rounds of a group do not       | it is due
//	| in an error queue                  | an operator                       | yes                                 |
//	| in TransactionNone, not in a queue | this process alone                | no                                  | a copy is out, or a critical error
//
// The Endpoint owns it: its contents survive Run, because messages do. It is bounded
// under any load. All methods but begin may be called concurrently.
type unfinished struct {
	mu         sync.Mutex
	remembered *lru.Cache[string, *work]    // by NativeID (R25)
	settled    *lru.Cache[string, struct{}] // by NativeID (R28)
	// The length of remembered, so that the usual case takes no lock.
	count atomic.Int64

	// Of the Run in progress, with the timers of their tries. The pauses before immediate
	// retries are apart, because they are no sign of an outage.
	kept, paused *backlog.Backlog
}

func newUnfinished() *unfinished {
	return &unfinished{
		remembered: lru.New[string, *work](maxRememberedMessages),
		settled:    lru.New[string, struct{}](maxRememberedMessages),
	}
}

// begin prepares a Run. It must not be called beside other methods.
func (u *unfinished) begin(limit int, pump backlog.Pump, onFull func(now bool)) {
	u.kept = backlog.New(limit, pump, onFull)
	u.paused = backlog.New(limit, pump, nil) // further messages would probably fail too
}

// stop lets each kept work end, until the deadline.
func (u *unfinished) stop(deadline time.Time, log *slog.Logger) {
	if !u.paused.Stop(time.Until(deadline)) {
		log.Warn("a message that waited for its retry could not be given back in time; it is redelivered")
	}
	if !u.kept.Stop(time.Until(deadline)) {
		log.Warn("a settlement that was tried again has not returned; its message is redelivered")
	}
}

// rememberSettled records that the message has been dealt with, in case its settlement did
// not take effect.
func (u *unfinished) rememberSettled(nativeID string) {
	if nativeID == "" {
		return
	}
	u.mu.Lock()
	u.settled.Put(nativeKey(nativeID), struct{}{})
	u.mu.Unlock()
}

// wasSettled reports whether the message was dealt with before.
func (u *unfinished) wasSettled(nativeID string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.settled.Get(nativeKey(nativeID))
	return ok
}

// maxNativeKey is the size in bytes of the longest NativeID that is a key itself.
const maxNativeKey = 512

// nativeKey returns the key of a NativeID in a map that outlives the message: the id, or the
// hash of a long one.
func nativeKey(nativeID string) string {
	if len(nativeID) <= maxNativeKey {
		return nativeID
	}
	return bounded.Key(nativeID)
}

// maxRememberedBytes limits the bytes that are remembered of a decision: sends of
// HandleFailed, committed messages of handlers, and the message's id and type.
const maxRememberedBytes = 64 << 10

// remember records a decision that could not be carried out, in case the message is
// redelivered before that. It keeps neither the message, which the redelivery has, nor the
// error, which may be of any size. It does not keep a decision with too many bytes: then the
// handler runs again.
func (u *unfinished) remember(w *work) {
	in := w.attempt.delivery.Incoming()
	size := w.committed.bytes() + len(w.failure.messageID) + len(w.failure.messageType)
	for _, out := range w.hookSends {
		size += len(out.Body) + out.Headers.Bytes()
	}
	if size > maxRememberedBytes || in.NativeID == "" {
		u.forget(in)
		return
	}
	f := *w.failure
	f.setMessage(&Incoming{})
	f.refused = nil
	f.Err = snapshotError(f.Err)
	f.messageID, f.messageType = strings.Clone(f.messageID), strings.Clone(f.messageType) // parts of headers
	r := &work{
		walk: w.walk.Remembered(), failure: &f, decision: w.decision, announced: true, arrived: w.arrived,
		hookSends: in.withNative(w.hookSends, nil), committed: w.committed.withNative(in, nil),
	}
	r.decision.reason.err, r.decision.reason.cause = f.Err, nil
	r.rememberedAt = time.Now()
	key := nativeKey(in.NativeID)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remembered.Put(key, r)
	u.count.Store(int64(u.remembered.Len()))
}

// take returns the decision about a redelivered message, or nil. The goroutine with the
// message's earlier delivery may still try to carry it out: it stops, after the step that it
// is at.
func (u *unfinished) take(in *Incoming) *work {
	key := nativeKey(in.NativeID)
	if u.kept.HasCopies() {
		u.kept.Supersede(key)
	}
	if u.count.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expireLocked()
	r, ok := u.remembered.Get(key)
	if !ok {
		return nil
	}
	w, f := *r, *r.failure
	f.setMessage(in)
	w.failure, w.hookSends, w.committed = &f, in.withNative(w.hookSends, in.Native), w.committed.withNative(in, in.Native)
	w.walk.Redelivered()
	return &w
}

// expireLocked forgets decisions about messages that have not been redelivered for long.
func (u *unfinished) expireLocked() {
	for {
		key, r, ok := u.remembered.Oldest()
		if !ok || time.Since(r.rememberedAt) < pendingExpiry {
			break
		}
		u.remembered.Delete(key)
	}
	u.count.Store(int64(u.remembered.Len()))
}

// forget forgets the decision about a message, which was carried out.
func (u *unfinished) forget(in *Incoming) {
	if u.count.Load() == 0 {
		return
	}
	key := nativeKey(in.NativeID)
	u.mu.Lock()
	u.remembered.Delete(key)
	u.count.Store(int64(u.remembered.Len()))
	u.mu.Unlock()
}

// undelivered returns the number of remembered decisions.
func (u *unfinished) undelivered() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expireLocked()
	return u.remembered.Len()
}
