package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// startPauses are between the tries of an endpoint to reach its broker before its first
// message.
var startPauses = pauses{250 * time.Millisecond, 10 * time.Second}

// open does all that comes before the first message, and waits for a broker that cannot be
// reached (Config.WaitForBroker): then it calls waiting, which may be nil, at least once. It
// returns nil and nil if it was asked to end before it was done.
func (ep *Endpoint) open(ctx context.Context, waiting func()) (*runner, error) {
	if err := ep.registry.seal(); err != nil {
		return nil, err
	}
	if ep.config.SendOnly {
		return nil, fmt.Errorf("core: run endpoint %q: it is send-only, so there is nothing to run", ep.name)
	}
	r, err := ep.begin(ctx)
	if err != nil {
		return nil, err
	}
	ep.resolved.warnings(ep.log.endpoint, ep.caps, ep.registry.types())
	ep.logNest()
	if err = r.loadPark(); err == nil {
		err = r.connectEventually(waiting)
	}
	if err == nil {
		return r, nil
	}
	if err = fmt.Errorf("core: run endpoint %q: %w", ep.name, err); ctx.Err() != nil || r.isEnded() {
		err = nil // it was asked to end
	}
	ep.finish(r, err)
	return nil, err
}

// connectEventually connects, again and again while the broker cannot be reached and
// Config.WaitForBroker allows.
func (r *runner) connectEventually(waiting func()) error {
	limit, began := r.ep.config.WaitForBroker, time.Now()
	var told *ConnectionChange
	for tries := 1; ; tries++ {
		var err error
		if r.receiver, err = r.ep.connect(r.fetch, connectionWatch{r}); err == nil {
			break
		}
		if limit < 0 || r.fetch.Err() != nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		pause := startPauses.after(tries)
		pause = pause/2 + rand.N(pause) // instances that start together do not all try together
		if limit > 0 {
			left := limit - time.Since(began)
			if left <= 0 {
				return fmt.Errorf("waited for %v (Config.WaitForBroker): %w", limit, err)
			}
			pause = min(pause, left)
		}
		told = &ConnectionChange{Err: err, Since: began, RetryIn: pause}
		connectionWatch{r}.note(told)
		if waiting != nil {
			waiting()
		}
		if err := r.sleepBeforeStart(pause); err != nil {
			return err
		}
	}
	// The receiver may know of another outage by now, or have told of the end of this one.
	if told != nil && r.connection.Load() == told {
		connectionWatch{r}.note(&ConnectionChange{Connected: true, Since: began})
	}
	r.connectedOnce.Store(true)
	return nil
}

// sleepBeforeStart returns an error if the Run was ended meanwhile.
func (r *runner) sleepBeforeStart(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.fetch.Done():
		return r.fetch.Err()
	}
}

// start is an endpoint of RunAll that connects.
type start struct {
	tried  chan struct{} // closed once it has connected, failed or begun to wait
	done   chan struct{} // closed once it has connected or failed
	runner *runner       // nil if it failed, or was asked to end
	err    error
	waits  bool // for its broker, when tried was closed
}

// begin connects an endpoint on a goroutine, and returns when it has tried once.
func (s *start) begin(ctx context.Context, ep *Endpoint) {
	s.tried, s.done = make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(s.done)
		s.runner, s.err = ep.open(ctx, func() { once.Do(func() { s.waits = true; close(s.tried) }) })
		once.Do(func() { close(s.tried) })
	}()
}

// failed returns the error of an endpoint that has tried once, and waits for nothing.
func (s *start) failed() error {
	if s.waits {
		return nil
	}
	<-s.done
	return s.err
}
