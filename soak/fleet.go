//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// workers is the number of workers.
const workers = 4

// A fleet keeps workers running, and kills them.
type fleet struct {
	system  system
	ledger  *ledger
	facts   *factLog
	options workerOptions
	logs    string // the directory
	log     *slog.Logger

	slots [workers]slot
	all   sync.WaitGroup
	kills int

	mu  sync.Mutex
	err error // the first error of starting a worker
}

// slot is the place of consecutive workers.
type slot struct {
	mu       sync.Mutex
	worker   worker // nil between two workers
	ready    bool   // the endpoints of the worker receive
	killed   bool
	stopping bool
}

// start keeps all workers running, until stop.
func (f *fleet) start() {
	for n := range f.slots {
		f.all.Go(func() { f.keep(n) })
	}
}

// The pauses before a refused worker is restarted, like those of a supervisor.
const (
	restartPause    = 100 * time.Millisecond
	maxRestartPause = 2 * time.Second
)

// keep starts the worker of a slot, and restarts it each time that it has ended.
func (f *fleet) keep(n int) {
	s := &f.slots[n]
	pause := restartPause
	for start := 0; ; start++ {
		name := filepath.Join(f.logs, fmt.Sprintf("worker-%d-%04d.log", n, start))
		log, err := os.Create(name)
		if err != nil {
			f.fail(err)
			return
		}
		ok, wasReady := f.runWorker(s, name, log)
		_ = log.Close() // only the worker writes to it
		if !ok {
			return
		}
		if wasReady {
			pause = restartPause
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, maxRestartPause)
	}
}

// runWorker runs one worker until it ends. It returns false if no other worker should be
// started.
func (f *fleet) runWorker(s *slot, name string, log io.Writer) (restart, wasReady bool) {
	spoke := false // the worker has reported why it ended
	options := f.options
	options.record = func(fact fact) {
		s.mu.Lock()
		killed := s.killed
		s.mu.Unlock()
		if killed && fact.kind == factEnded {
			return // it was the kill
		}
		f.facts.write(filepath.Base(name), fact)
		f.ledger.record(fact)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch fact.kind {
		case factReady:
			s.ready = true
		case factEnded, factRefused:
			spoke = true
		}
	}
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return false, false
	}
	s.ready, s.killed = false, false
	w, err := f.system.startWorker(options, log)
	if err != nil {
		s.mu.Unlock()
		f.fail(fmt.Errorf("start a worker: %w", err))
		return false, false
	}
	s.worker = w
	s.mu.Unlock()

	<-w.ended()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker = nil
	switch {
	case s.killed, spoke:
	case s.stopping:
		if err := w.err(); err != nil {
			f.ledger.addFailedEnd(fmt.Sprintf("%v; its log is %s", err, name))
		}
	default:
		f.ledger.addDeath(fmt.Sprintf("a worker ended by itself: %v; its log is %s", w.err(), name))
	}
	wasReady = s.ready || s.killed // a worker that is not ready is not killed
	s.ready = false
	return !s.stopping, wasReady
}

func (f *fleet) fail(err error) {
	f.log.Error("the fleet is incomplete", "error", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// killAtRandom kills one worker at random intervals of shortest to longest, until ctx
// ends.
func (f *fleet) killAtRandom(ctx context.Context, dice *rand.Rand, shortest, longest time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shortest + time.Duration(dice.Int64N(int64(longest-shortest)))):
		}
		killed, err := f.kill(&f.slots[dice.IntN(workers)])
		if err != nil {
			return fmt.Errorf("kill a worker: %w", err)
		}
		if killed {
			f.kills++
		}
	}
}

// kill kills the worker of a slot, unless it is not ready yet.
func (f *fleet) kill(s *slot) (killed bool, err error) {
	s.mu.Lock()
	w := s.worker
	if w == nil || !s.ready {
		s.mu.Unlock()
		return false, nil
	}
	s.killed, s.ready = true, false
	s.mu.Unlock()
	return true, w.kill()
}

// awaitReady returns when all workers are ready, or an error when ctx ends.
func (f *fleet) awaitReady(ctx context.Context) error {
	for {
		ready := 0
		for n := range f.slots {
			s := &f.slots[n]
			s.mu.Lock()
			if s.worker != nil && s.ready {
				ready++
			}
			s.mu.Unlock()
		}
		if ready == workers {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d workers are ready: %w", ready, workers, context.Cause(ctx))
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// stop asks all workers to shut down, and waits for them. It returns the first error of
// starting a worker.
func (f *fleet) stop() error {
	var errs [workers]error
	var all sync.WaitGroup
	for n := range f.slots {
		s := &f.slots[n]
		s.mu.Lock()
		s.stopping = true
		w := s.worker
		s.mu.Unlock()
		if w != nil {
			all.Go(func() { errs[n] = w.stop() })
		}
	}
	all.Wait()
	f.all.Wait()
	return errors.Join(errors.Join(errs[:]...), f.err)
}
