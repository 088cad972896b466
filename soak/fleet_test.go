//go:build darwin || linux

package main

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is a system whose workers follow a test's script. Its other methods are not
// called.
type scripted struct {
	system
	play func(n int, w *scriptedWorker)

	mu      sync.Mutex
	started int
}

func (s *scripted) startWorker(options workerOptions, _ io.Writer) (worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	w := &scriptedWorker{record: options.record, done: make(chan struct{})}
	go s.play(s.started, w)
	return w, nil
}

type scriptedWorker struct {
	record func(fact)
	once   sync.Once
	done   chan struct{}
	atStop error // how it ends when it is asked to
	failed error
}

// end ends the worker, once.
func (w *scriptedWorker) end(err error) {
	w.once.Do(func() {
		w.failed = err
		close(w.done)
	})
}

func (w *scriptedWorker) ready() { w.record(fact{kind: factReady, at: time.Now()}) }

func (w *scriptedWorker) kill() error {
	w.end(errors.New("signal: killed"))
	return nil
}

func (w *scriptedWorker) stop() error {
	w.end(w.atStop)
	return nil
}

func (w *scriptedWorker) ended() <-chan struct{} { return w.done }

func (w *scriptedWorker) err() error { return w.failed }

// play runs a fleet whose workers are scripted until all are ready, kills the first one
// if it shall, and returns the ledger when all have ended.
func play(t *testing.T, killed bool, script func(n int, w *scriptedWorker)) *ledger {
	t.Helper()
	l := newLedger()
	f := &fleet{system: &scripted{play: script}, ledger: l, logs: t.TempDir(), facts: &factLog{}, log: slog.New(slog.DiscardHandler)}
	f.start()
	if err := f.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if killed {
		if ok, err := f.kill(&f.slots[0]); err != nil || !ok {
			t.Fatalf("kill = %t, %v", ok, err)
		}
		if err := f.awaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	return l
}

// texts returns the entries about workers that did not end as they should.
func (l *ledger) texts() string {
	return strings.Join([]string{strings.Join(l.ended, ","), strings.Join(l.deaths, ","), strings.Join(l.failedEnds, ",")}, "|")
}

func TestFleet_WorkerThatIsKilledIsReplaced(t *testing.T) {
	l := play(t, true, func(_ int, w *scriptedWorker) { w.ready() })
	if l.ready != workers+1 || l.texts() != "||" {
		t.Errorf("%d workers were ready, ledger %q", l.ready, l.texts())
	}
}

func TestFleet_RefusedWorkerIsRestarted(t *testing.T) {
	l := play(t, false, func(n int, w *scriptedWorker) {
		if n == 1 {
			w.record(fact{kind: factRefused, text: "connection refused"})
			w.end(errors.New("exit status 1"))
			return
		}
		w.ready()
	})
	if l.ready != workers || l.refused != 1 || l.texts() != "||" {
		t.Errorf("%d workers were ready, %d refused, ledger %q", l.ready, l.refused, l.texts())
	}
}

func TestFleet_WorkerThatEndsByItselfIsReported(t *testing.T) {
	l := play(t, false, func(n int, w *scriptedWorker) {
		if n == 1 {
			w.end(errors.New("exit status 2"))
			return
		}
		w.ready()
	})
	if !strings.Contains(l.texts(), "|a worker ended by itself: exit status 2; its log is ") {
		t.Errorf("the ledger has %q", l.texts())
	}
	l = play(t, false, func(n int, w *scriptedWorker) {
		if n == 1 { // before it is ready, because the fleet may be stopped when all are
			w.record(fact{kind: factEnded, text: "RunAll returned EOF"})
		}
		w.ready()
		if n == 1 {
			w.end(errors.New("exit status 1"))
		}
	})
	if l.texts() != "RunAll returned EOF||" {
		t.Errorf("the ledger has %q", l.texts())
	}
}

func TestFleet_WorkerThatDoesNotEndInOrderIsReported(t *testing.T) {
	l := play(t, false, func(n int, w *scriptedWorker) {
		if n == 1 {
			w.atStop = errors.New("exit status 1")
		}
		w.ready()
	})
	if !strings.HasPrefix(l.texts(), "||exit status 1; its log is ") {
		t.Errorf("the ledger has %q", l.texts())
	}
}
