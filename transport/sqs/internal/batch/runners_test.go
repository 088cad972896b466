package batch

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// idleRunners counts the goroutines that wait for a job.
func (r *Runners) idleRunners() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.idle
}

func TestRunners_ReuseGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := transport.NewLifecycle()
		r := NewRunners(life)
		const atOnce = 3
		var done atomic.Int64
		for range 10 {
			for range atOnce {
				if !r.run(func() { time.Sleep(runnerIdleTime / 2); done.Add(1) }) {
					t.Fatal("a job was refused")
				}
			}
			time.Sleep(runnerIdleTime * 3 / 4)
			synctest.Wait()
			if n := r.idleRunners(); n != atOnce {
				t.Fatalf("%d goroutines are idle after %d jobs, of which %d run at a time", n, done.Load(), atOnce)
			}
		}
		if done.Load() != 10*atOnce {
			t.Errorf("%d jobs are done, want %d", done.Load(), 10*atOnce)
		}
		time.Sleep(runnerIdleTime)
		synctest.Wait()
		if n := r.idleRunners(); n != 0 {
			t.Errorf("%d goroutines are idle after %v without a job", n, runnerIdleTime)
		}
		life.Close(t.Context(), nil)
	})
}

// As many goroutines may run at a time as there are jobs, and few of them wait for others.
func TestRunners_FewAreIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := transport.NewLifecycle()
		r := NewRunners(life)
		const jobs = 3 * maxIdleRunners
		end := make(chan struct{})
		var running atomic.Int64
		for range jobs {
			r.run(func() { running.Add(1); <-end })
		}
		synctest.Wait()
		if n := running.Load(); n != jobs {
			t.Errorf("%d of %d jobs run", n, jobs)
		}
		close(end)
		synctest.Wait()
		if n := r.idleRunners(); n != maxIdleRunners {
			t.Errorf("%d goroutines are idle, want %d", n, maxIdleRunners)
		}
		life.Close(t.Context(), nil)
	})
}

// Close waits for jobs, ends goroutines that are idle, and refuses further jobs.
func TestRunners_EndWithTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := transport.NewLifecycle()
		r := NewRunners(life)
		r.run(func() {})
		synctest.Wait()
		var done atomic.Bool
		r.run(func() { <-life.Context().Done(); time.Sleep(time.Minute); done.Store(true) })
		life.Close(t.Context(), nil)
		if !done.Load() {
			t.Error("Close did not wait for a job")
		}
		if r.run(func() { t.Error("a job runs after Close") }) {
			t.Error("a job was accepted after Close")
		}
	})
}

// A job that is given to a goroutine at the moment at which it ends is done.
func TestRunners_LoseNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := transport.NewLifecycle()
		r := NewRunners(life)
		const rounds = 200
		var done atomic.Int64
		var senders sync.WaitGroup
		for range 4 {
			senders.Go(func() {
				for range rounds {
					r.run(func() { done.Add(1) })
					time.Sleep(runnerIdleTime) // as long as the goroutine waits
				}
			})
		}
		senders.Wait()
		synctest.Wait()
		if n := done.Load(); n != 4*rounds {
			t.Errorf("%d of %d jobs are done", n, 4*rounds)
		}
		life.Close(t.Context(), nil)
	})
}
