package transport_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// changes is an observer.
type changes struct{ all []core.ConnectionChange }

func (c *changes) ConnectionChanged(e core.ConnectionChange) { c.all = append(c.all, e) }

// Rule C15.
func TestOutages_DelaysBetweenAttemptsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &changes{}
		o := &transport.Outages{ConnectionChanged: seen.ConnectionChanged}
		down := errors.New("connection refused")
		began := time.Now()
		middle := 50 * time.Millisecond
		for range 12 {
			wait := o.Failed(down, time.Now())
			if wait < middle/2 || wait > middle*3/2 {
				t.Fatalf("the pause is %v, want %v to %v", wait, middle/2, middle*3/2)
			}
			middle = min(2*middle, 10*time.Second)
			last := seen.all[len(seen.all)-1]
			if last.Connected || !errors.Is(last.Err, down) || last.RetryIn != wait || !last.Since.Equal(began) {
				t.Fatalf("the observer is told %+v", last)
			}
			time.Sleep(wait)
		}
		o.End()
		if last := seen.all[len(seen.all)-1]; !last.Connected || !last.Since.Equal(began) {
			t.Errorf("at the end of the outage the observer is told %+v", last)
		}
		told := len(seen.all)
		o.End()
		if len(seen.all) != told {
			t.Error("a success outside an outage is told")
		}
		if wait := o.Failed(down, time.Now()); wait > 75*time.Millisecond {
			t.Errorf("the next outage begins with a pause of %v", wait)
		}
	})
}

// Rule C15.
func TestOutages_BeginWithTheFirstFailedAttempt(t *testing.T) {
	for _, c := range []struct{ took, since time.Duration }{
		{0, 0}, {3 * time.Second, 0}, {time.Minute, 0}, {2 * time.Hour, 2 * time.Hour}, // of a wait for messages
	} {
		synctest.Test(t, func(t *testing.T) {
			seen := &changes{}
			o := &transport.Outages{ConnectionChanged: seen.ConnectionChanged}
			began := time.Now()
			time.Sleep(c.took)
			o.Failed(errors.New("no answer"), began)
			o.Failed(errors.New("no answer"), time.Now())
			o.End()
			for _, change := range seen.all {
				if since := change.Since.Sub(began); since != c.since {
					t.Errorf("the outage whose first failed attempt took %v began after %v, want %v", c.took, since, c.since)
				}
			}
		})
	}
}

// Rule C15.
func TestOutages_SimultaneousFailuresAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &transport.Outages{}
		began := time.Now()
		time.Sleep(time.Second)
		for range 100 {
			if wait := o.Failed(nil, began); wait > 75*time.Millisecond {
				t.Fatalf("the pause is %v", wait)
			}
		}
	})
}

func TestOutages_Retry(t *testing.T) {
	down, refused := errors.New("connection refused"), errors.New("login refused")
	transient := func(err error) bool { return errors.Is(err, down) }
	for name, c := range map[string]struct {
		results []error // of try
		asleep  error   // of the first sleep
		ends    bool    // try ends the context
		want    error
		tries   int
		told    []bool // connected
	}{
		"success at once":           {results: []error{nil}, tries: 1},
		"success after an outage":   {results: []error{down, down, nil}, tries: 3, told: []bool{false, false, true}},
		"a permanent error":         {results: []error{down, refused}, want: refused, tries: 2, told: []bool{false}},
		"closed during the pause":   {results: []error{down}, asleep: core.ErrClosed, want: core.ErrClosed, tries: 1, told: []bool{false}},
		"context ended by that try": {results: []error{down}, ends: true, want: context.Canceled, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &changes{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries := 0
			o := &transport.Outages{ConnectionChanged: seen.ConnectionChanged}
			err := o.Retry(ctx, func() error {
				tries++
				if c.ends {
					cancel()
				}
				return c.results[tries-1]
			}, transient, func(d time.Duration) error {
				if d <= 0 {
					t.Errorf("a pause of %v", d)
				}
				return c.asleep
			})
			if !errors.Is(err, c.want) || tries != c.tries {
				t.Errorf("Retry returned %v after %d tries, want %v after %d", err, tries, c.want, c.tries)
			}
			var told []bool
			for _, change := range seen.all {
				told = append(told, change.Connected)
			}
			if !slices.Equal(told, c.told) {
				t.Errorf("the observer is told %v, want %v", told, c.told)
			}
		})
	}
}

// stalled is an observer that takes its time over the begin of an outage.
type stalled struct {
	begun chan struct{} // closed when it is told of the begin
	goOn  chan struct{}

	mu   sync.Mutex
	told []bool // whether there was a connection
}

func (s *stalled) ConnectionChanged(change core.ConnectionChange) {
	if !change.Connected {
		close(s.begun)
		<-s.goOn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, change.Connected)
}

// An outage that ends while the observer is told of its begin is told in that order, and an attempt
// that began before its end does not begin another one.
func TestOutages_ToldInTheirOrder(t *testing.T) {
	observer := &stalled{begun: make(chan struct{}), goOn: make(chan struct{})}
	o := transport.Outages{ConnectionChanged: observer.ConnectionChanged}
	began := time.Now()
	var both sync.WaitGroup
	both.Go(func() { o.Failed(errors.New("no connection"), began) })
	<-observer.begun
	both.Go(o.End)
	for range 1000 { // End has the time to tell, if it does not wait
		runtime.Gosched()
	}
	close(observer.goOn)
	both.Wait()
	if wait := o.Failed(errors.New("the old connection"), began); wait <= 0 {
		t.Errorf("the next attempt begins after %v", wait)
	}
	if want := []bool{false, true}; !slices.Equal(observer.told, want) {
		t.Errorf("the observer was told %v, want %v", observer.told, want)
	}
}
