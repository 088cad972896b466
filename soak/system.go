//go:build darwin || linux

package main

import (
	"context"
	"io"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A system is the server of a subject, with faults. It is started for one run.
type system interface {
	// version names the server, such as "PostgreSQL 15.14".
	version() string

	// open opens a transport that no network fault reaches.
	open() (core.Transport, error)

	// openThrough opens a transport that all faults reach.
	openThrough() (core.Transport, error)

	// prepare creates the resources that workers need in addition to their queues.
	prepare(ctx context.Context, mode core.TransactionMode, l *ledger) error

	// startWorker starts a worker, which writes its log to log.
	startWorker(w workerOptions, log io.Writer) (worker, error)

	// faults returns the faults. Only one of them may be struck at a time.
	faults() []fault

	// depths returns the number of messages in each queue, including delivered and
	// delayed ones. Depths that do not change for staleness are those of one moment;
	// others may miss a message that is being moved from one queue to another.
	depths(ctx context.Context) (map[string]int, error)
	staleness() time.Duration

	// rows returns when the rows of the workers are in the ledger. It is called only in
	// SendsAtomicWithReceive, after all workers have ended.
	rows(ctx context.Context, l *ledger) error

	// serverLog returns the end of the server's log.
	serverLog() string

	// secrets returns texts that must not be in a log.
	secrets() []string

	close() error
}

// workerOptions are the options of every worker of a run.
type workerOptions struct {
	guarantees
	pace   time.Duration
	record func(fact)
}

// A worker runs the three endpoints until it ends.
type worker interface {
	// kill ends the worker as a crash does, and returns when it has ended.
	kill() error

	// stop asks the worker to shut down.
	stop() error

	// ended is closed when the worker has ended and all its facts are recorded.
	ended() <-chan struct{}

	// err returns nil if the worker shut down without an error. It is called after ended
	// is closed.
	err() error
}

// A fault is a failure that lasts for a while.
type fault struct {
	name string
	// strike causes the fault, and returns when it has ended. A fault that has a length
	// lasts for that long.
	strike func(ctx context.Context, length time.Duration) error
}

// lasting returns a strike that begins a fault and ends it after the length.
func lasting(begin, end func(ctx context.Context) error) func(context.Context, time.Duration) error {
	return func(ctx context.Context, length time.Duration) error {
		err := begin(ctx)
		if err == nil {
			pause(ctx, length)
		}
		if ended := end(context.WithoutCancel(ctx)); err == nil {
			err = ended
		}
		return err
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
