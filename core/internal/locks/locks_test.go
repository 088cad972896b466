package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("lock lost")

// delivery has a lock that each renewal extends.
type delivery struct {
	lasts time.Duration // a renewed lock; 0: it does not move
	takes time.Duration // a renewal
	err   error         // of the renewal

	mu          sync.Mutex
	began       time.Time
	lockedUntil time.Time
	renewed     []time.Duration // when each renewal began
}

func newDelivery(lock time.Duration) *delivery {
	now := time.Now()
	return &delivery{lasts: lock, began: now, lockedUntil: now.Add(lock)}
}

func (d *delivery) LockedUntil() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lockedUntil
}

func (d *delivery) Renew(ctx context.Context) error {
	d.mu.Lock()
	d.renewed = append(d.renewed, time.Since(d.began))
	d.mu.Unlock()
	if d.takes > 0 {
		select {
		case <-time.After(d.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil && d.lasts > 0 {
		d.lockedUntil = time.Now().Add(d.lasts)
	}
	return d.err
}

// renewals returns when each renewal began.
func (d *delivery) renewals() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.renewed)
}

// start runs a renewer until the end of the test.
func start(t *testing.T) *Renewer {
	r := New(t.Context(), errLost)
	go r.Run()
	t.Cleanup(func() { r.Stop(time.Minute) })
	return r
}

func TestWatch_RenewsHalfwayUntilForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := start(t), newDelivery(10*time.Second)
		l := r.Watch(d)
		time.Sleep(12 * time.Second)
		r.Forget(l)
		r.Forget(nil)
		time.Sleep(time.Minute)
		if got, want := d.renewals(), []time.Duration{5 * time.Second, 10 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("renewed after %v, want %v", got, want)
		}
		if l.IsLost() {
			t.Error("a forgotten lock is lost")
		}
	})
}

func TestWatch_LockWithoutEnd(t *testing.T) {
	if l := New(t.Context(), errLost).Watch(&delivery{}); l != nil {
		t.Errorf("a lock that does not end is watched: %v", l)
	}
}

// A lock that is due before those that the renewer waits for wakes it.
func TestWatch_ShorterLockLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		long := newDelivery(time.Hour)
		r.Watch(long)
		synctest.Wait()
		short := newDelivery(2 * time.Second)
		r.Watch(short)
		time.Sleep(1500 * time.Millisecond)
		if n := len(short.renewals()); n != 1 {
			t.Errorf("the shorter lock is renewed %d times, want 1", n)
		}
	})
}

func TestRenew_Failures(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []time.Duration // of the first renewals
		lost time.Duration   // after which the lock is lost
	}{
		"the lock is lost":             {fmt.Errorf("renew: %w", errLost), []time.Duration{5 * time.Second}, 5 * time.Second},
		"another error is tried again": {errors.New("outage"), []time.Duration{5 * time.Second, 6250 * time.Millisecond}, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, d := start(t), newDelivery(10*time.Second)
			d.err = test.err
			began := time.Now()
			l := r.Watch(d)
			if !l.Begin(t.Context()) {
				t.Fatalf("%s: the lock is lost at the beginning", name)
			}
			<-l.Done()
			if got := time.Since(began).Round(100 * time.Millisecond); got != test.lost {
				t.Errorf("%s: the context ended after %v, want %v", name, got, test.lost)
			}
			if cause := context.Cause(l); !errors.Is(cause, errLost) || !l.IsLost() {
				t.Errorf("%s: cause %v, lost %t", name, cause, l.IsLost())
			}
			if got := d.renewals(); !slices.Equal(got[:min(len(got), len(test.want))], test.want) {
				t.Errorf("%s: renewed after %v, want %v first", name, got, test.want)
			}
			n := len(d.renewals())
			time.Sleep(time.Minute)
			if len(d.renewals()) != n {
				t.Errorf("%s: a lost lock is renewed", name)
			}
		})
	}
}

// A renewal that succeeds without moving the lock is not repeated without a pause.
func TestRenew_LockThatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := start(t), newDelivery(time.Second)
		d.lasts = 0
		r.Watch(d)
		time.Sleep(2 * time.Second)
		if n := len(d.renewals()); n < 2 || n > 200 {
			t.Errorf("renewed %d times in 2 s, want at most every %v", n, minRenewalInterval)
		}
	})
}

func TestRenew_EndsWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := start(t), newDelivery(10*time.Second)
		d.takes = time.Hour
		l := r.Watch(d)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if !l.IsLost() {
			t.Error("a lock whose renewal hangs is not lost when it has ended")
		}
	})
}

func TestForget_DuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := start(t), newDelivery(10*time.Second)
		d.takes, d.err = time.Second, errLost
		l := r.Watch(d)
		time.Sleep(5500 * time.Millisecond)
		r.Forget(l) // it was settled, which is why the renewal finds no lock
		time.Sleep(time.Minute)
		if l.IsLost() {
			t.Error("the lock of a settled delivery is lost")
		}
	})
}

// Renewals that hang must not let other locks end.
func TestRun_MoreRenewalsThanAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		var all []*delivery
		for range 3 * maxRenewals {
			d := newDelivery(10 * time.Second)
			d.takes = 4 * time.Second
			all = append(all, d)
			r.Watch(d)
		}
		time.Sleep(5*time.Second + renewalSlotTimeout/2)
		began := 0
		for _, d := range all {
			began += len(d.renewals())
		}
		if began != maxRenewals {
			t.Errorf("%d renewals at the same time, want %d", began, maxRenewals)
		}
		time.Sleep(renewalSlotTimeout)
		for i, d := range all {
			if n := len(d.renewals()); n != 1 {
				t.Fatalf("lock %d is renewed %d times, want 1: it waits for renewals that hang", i, n)
			}
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := New(t.Context(), errLost), newDelivery(10*time.Second)
		d.takes = time.Hour
		go r.Run()
		r.Watch(d)
		time.Sleep(6 * time.Second)
		if !r.Stop(time.Second) {
			t.Error("a renewal in progress did not end with the renewer")
		}
	})
}

func TestStop_DoesNotWaitLongerThanTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := New(t.Context(), errLost), &deaf{newDelivery(10 * time.Second)}
		go r.Run()
		r.Watch(d)
		time.Sleep(6 * time.Second)
		began := time.Now()
		if r.Stop(time.Second) || time.Since(began) != time.Second {
			t.Errorf("Stop returned after %v, want false after a second", time.Since(began))
		}
		time.Sleep(time.Hour)
	})
}

// deaf has renewals that do not end with their context.
type deaf struct{ *delivery }

func (d *deaf) Renew(context.Context) error {
	time.Sleep(time.Minute)
	return nil
}

// newContext returns the context of an attempt below parent.
func newContext(t *testing.T, parent context.Context) *Context {
	t.Helper()
	l := New(t.Context(), errLost).Watch(newDelivery(time.Hour))
	if !l.Begin(parent) {
		t.Fatal("the lock is lost at the beginning")
	}
	return l
}

func TestContext_FollowsItsParent(t *testing.T) {
	type key struct{}
	deadline := time.Now().Add(time.Hour)
	withValue := context.WithValue(t.Context(), key{}, "value")
	parent, cancel := context.WithDeadline(withValue, deadline)
	l := newContext(t, parent)
	if at, ok := l.Deadline(); !ok || !at.Equal(deadline) || l.Value(key{}) != "value" || l.Err() != nil {
		t.Errorf("deadline %v, value %v, error %v; want those of the parent", at, l.Value(key{}), l.Err())
	}
	cancel()
	if err := l.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the parent's end: %v", err)
	}
	<-l.Done()
}

func TestContext_ItsChildrenEnd(t *testing.T) {
	cause := errors.New("parent ended")
	for name, test := range map[string]struct {
		end  func(l *Context, parent context.CancelCauseFunc)
		want error
	}{
		"with the attempt":              {func(l *Context, _ context.CancelCauseFunc) { l.End() }, context.Canceled},
		"when the lock is lost":         {func(l *Context, _ context.CancelCauseFunc) { l.lose(errLost) }, errLost},
		"with the parent, for a reason": {func(_ *Context, parent context.CancelCauseFunc) { parent(cause) }, cause},
	} {
		parent, cancel := context.WithCancelCause(t.Context())
		l := newContext(t, parent)
		child, stop := context.WithCancel(l)
		test.end(l, cancel)
		<-child.Done()
		if got := context.Cause(child); !errors.Is(got, test.want) {
			t.Errorf("%s: the cause is %v, want %v", name, got, test.want)
		}
		stop()
		cancel(nil)
	}
}

// A handler may use its context after it has returned.
func TestContext_AfterTheAttempt(t *testing.T) {
	l := newContext(t, t.Context())
	l.End()
	if err := l.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	<-l.Done()
	l.lose(errLost)
	if cause := context.Cause(l); !errors.Is(cause, context.Canceled) {
		t.Errorf("the lock was lost after the end, and the cause is %v", cause)
	}
}

func TestBegin_LostLock(t *testing.T) {
	l := New(t.Context(), errLost).Watch(newDelivery(time.Hour))
	l.lose(errLost)
	if l.Begin(t.Context()) {
		t.Error("an attempt begins without its lock")
	}
}
