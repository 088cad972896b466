package batch

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// Runners are the goroutines that make requests. Each is reused: the SDK's calls are
// nested so deeply that the stack of a new goroutine grows several times during its first
// request.
type Runners struct {
	life *transport.Lifecycle
	jobs chan func()

	mu   sync.Mutex // guards idle
	idle int        // goroutines that wait for a job
}

const (
	// maxIdleRunners is the most goroutines that wait for a job. Others end after their
	// job.
	maxIdleRunners = 32
	// runnerIdleTime is how long a goroutine waits for the next job before it ends.
	runnerIdleTime = time.Second
)

// NewRunners returns runners whose goroutines end with the transport.
func NewRunners(life *transport.Lifecycle) *Runners {
	return &Runners{life: life, jobs: make(chan func(), maxIdleRunners)}
}

// run runs job in a goroutine that the transport's Close waits for. After Close it does
// not run job, and returns false.
func (r *Runners) run(job func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle > 0 && r.life.Err(context.Background()) == nil {
		r.idle--
		r.jobs <- job // does not block: its capacity is that of the idle goroutines
		return true
	}
	return r.life.Go(func() { r.work(job) })
}

// work runs a job, and then further ones, until there is none for runnerIdleTime.
func (r *Runners) work(job func()) {
	timer := time.NewTimer(runnerIdleTime)
	defer timer.Stop()
	for {
		job()
		if !r.becomeIdle() {
			return
		}
		timer.Reset(runnerIdleTime)
		select {
		case job = <-r.jobs:
			continue
		case <-timer.C:
		case <-r.life.Context().Done():
		}
		if r.leave() {
			return
		}
		job = <-r.jobs // a job was assigned at the same moment
	}
}

// becomeIdle counts a goroutine as idle, and reports whether it may wait for a job.
func (r *Runners) becomeIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle == maxIdleRunners {
		return false
	}
	r.idle++
	return true
}

// leave reports whether a goroutine that has received no job may end. It must not end if
// every waiting goroutine has been assigned a job.
func (r *Runners) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle == 0 {
		return false
	}
	r.idle--
	return true
}
