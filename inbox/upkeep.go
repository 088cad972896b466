package inbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// upkeep is the background work of an Inbox: it marks entries whose messages have left,
// many at a time, and removes old entries. Both happen only while messages are handled.
type upkeep struct {
	store     Store
	log       *slog.Logger
	retention time.Duration

	nextClean atomic.Int64 // Unix nanoseconds

	mu      sync.Mutex
	sent    []Key
	timer   *time.Timer // until the keys in sent are marked; nil if sent is empty or being marked
	marking bool
	failing bool // the newest attempt to mark failed
	closed  bool
	running sync.WaitGroup // marking and removing
}

const (
	markDelay      = 500 * time.Millisecond // longest delay of a mark
	markBatch      = 500                    // size from which a batch does not wait
	markRetryDelay = 5 * time.Second
	maxUnmarked    = 20_000 // the oldest are dropped above this: a duplicate of one sends its messages once more
	markTimeout    = 10 * time.Second

	removeBatch   = 1000
	removeTimeout = time.Minute
	removePause   = 100 * time.Millisecond // between batches
	firstClean    = time.Minute
)

func newUpkeep(c Config) *upkeep {
	u := &upkeep{store: c.Store, log: c.Logger, retention: c.Retention}
	u.nextClean.Store(time.Now().Add(firstClean + rand.N(firstClean)).UnixNano()) // not all processes at the same time
	return u
}

// interval is the time between two removals.
func (u *upkeep) interval() time.Duration {
	d := min(max(u.retention/100, time.Second), time.Hour)
	return d + rand.N(d/4)
}

// mark records that the messages of an entry have left.
func (u *upkeep) mark(key Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.sent = append(u.sent, key)
	switch {
	case u.marking || u.failing && u.timer != nil:
		u.sent = u.sent[max(len(u.sent)-maxUnmarked, 0):]
	case len(u.sent) >= markBatch:
		u.startMarkingLocked()
	case u.timer == nil:
		u.markInLocked(markDelay)
	}
}

func (u *upkeep) markInLocked(d time.Duration) {
	u.timer = time.AfterFunc(d, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if !u.closed && !u.marking && len(u.sent) > 0 {
			u.startMarkingLocked()
		}
	})
}

// startMarkingLocked marks the entries in sent, in a goroutine.
func (u *upkeep) startMarkingLocked() {
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	u.marking = true
	u.running.Go(func() {
		for u.markBatch() {
		}
	})
}

// markBatch marks a batch, and reports whether to mark another one at once.
func (u *upkeep) markBatch() bool {
	u.mu.Lock()
	keys := u.sent
	u.sent = nil
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), markTimeout)
	defer cancel()
	err := u.store.MarkSent(ctx, keys)

	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		if !u.failing {
			u.log.Warn("sent messages cannot be marked in the inbox; the inbox tries again. Until then they are sent once more if the message that they answer is redelivered", "error", err)
		}
		u.sent = append(keys, u.sent...)
		u.sent = u.sent[max(len(u.sent)-maxUnmarked, 0):]
	}
	u.failing = err != nil
	if err == nil && len(u.sent) >= markBatch && !u.closed {
		return true
	}
	u.marking = false
	if len(u.sent) > 0 && !u.closed {
		d := markDelay
		if u.failing {
			d = markRetryDelay
		}
		u.markInLocked(d)
	}
	return false
}

// clean removes old entries, if their removal is due.
func (u *upkeep) clean() {
	due, now := u.nextClean.Load(), time.Now()
	if now.UnixNano() < due || !u.nextClean.CompareAndSwap(due, now.Add(u.interval()).UnixNano()) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.running.Go(u.removeAll)
	}
}

// removeAll removes the entries whose retention has ended, in batches.
func (u *upkeep) removeAll() {
	for !u.isClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		removed, err := u.store.Remove(ctx, u.retention, removeBatch)
		cancel()
		switch {
		case err != nil:
			u.log.Warn("old entries cannot be removed from the inbox; it is tried again later", "error", err)
			return
		case removed < removeBatch:
			return
		}
		time.Sleep(removePause)
	}
}

func (u *upkeep) isClosed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// close waits for marking and removing in progress, and marks the remaining entries.
func (u *upkeep) close(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	u.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		u.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	u.mu.Lock()
	keys := u.sent
	u.sent = nil
	u.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	return u.store.MarkSent(ctx, keys)
}
