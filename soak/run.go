//go:build darwin || linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// A run soaks one subject.
type run struct {
	subject subject
	load    time.Duration // the duration of the load, with faults
	fault   time.Duration // the duration of a fault that has a length
	calm    time.Duration // the pause after each fault
	window  int           // the number of incomplete orders at a time
	pace    time.Duration // the duration of a handler
	kills   [2]time.Duration
	seed    uint64
	logs    string // a directory for this run only
	// patience is the time limit for any event that has to happen. It is long, because the
	// speed of the machine is not tested.
	patience time.Duration
	// lastPatience is the time limit at the end, when no message is handled any more but
	// messages are left.
	lastPatience time.Duration
	out          io.Writer

	// chosen, if not nil, selects the faults to strike.
	chosen func(fault) bool

	system  system
	ledger  *ledger
	log     *slog.Logger
	started time.Time
}

// result has the figures and findings of a run.
type result struct {
	subject  subject
	version  string
	took     time.Duration
	kills    int // of workers
	outcomes []outcome
	counts   counts
	findings []finding
}

func (r *result) isBroken() bool {
	for i := range r.findings {
		if r.findings[i].isBroken() {
			return true
		}
	}
	return false
}

// outcome is the effect of one fault.
type outcome struct {
	fault    string
	took     time.Duration
	during   int           // handlers that ended without an error during the fault
	waiting  int           // orders that were incomplete when the fault ended
	recovery time.Duration // from the end of the fault to the end of the first handler that began after it; negative: there was none
	pause    time.Duration // the longest time without a completion, until the recovery
}

// flow is the number of handlers that have to end between two faults.
const flow = 100

// do runs the load, the kills and the faults, and then compares. An error means that the
// soak itself failed.
func (r *run) do(ctx context.Context) (_ *result, err error) {
	r.started = time.Now()
	r.ledger = newLedger()
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(r.logs, "soak.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // its content is printed too
	r.log = slog.New(slog.NewTextHandler(file, nil))
	r.out = io.MultiWriter(r.out, file)

	if r.system, err = r.subject.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.system.close()) }()
	r.printf("%s: %s, %d workers, seed %d, logs in %s", r.subject.name, r.system.version(), workers, r.seed, r.logs)

	direct, err := r.system.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, direct.Close(context.WithoutCancel(ctx))) }()
	reader, err := r.provision(ctx, direct)
	if err != nil {
		return nil, err
	}
	result := &result{subject: r.subject, version: r.system.version()}
	if result.kills, result.outcomes, err = r.strain(ctx); err != nil {
		return nil, err
	}
	if err := r.collect(ctx, reader); err != nil {
		return nil, err
	}
	result.took = time.Since(r.started)
	result.counts = r.ledger.counts()
	result.findings = r.ledger.verdict(r.subject.guarantees)
	for i := range result.findings {
		r.printf("  %v", &result.findings[i])
	}
	return result, nil
}

func (r *run) printf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// unreadQueue is the error queue of the endpoint that reads the error queue.
const unreadQueue = "unread"

// provision creates the queues, and returns the endpoint that will read the error queue.
func (r *run) provision(ctx context.Context, t core.Transport) (*core.Endpoint, error) {
	j := &job{transport: t, guarantees: r.subject.guarantees}
	all, err := j.endpoints(r.log)
	if err != nil {
		return nil, err
	}
	reader, err := core.New(errorQueue, t, core.Config{
		Logger: r.log, Transactions: core.TransactionReceiveOnly,
		Recoverability: core.Recoverability{ErrorQueue: unreadQueue},
	})
	if err != nil {
		return nil, err
	}
	address, err := t.Address(r.subject.queue(orders))
	if err != nil {
		return nil, err
	}
	core.HandleDefault(reader, func(_ context.Context, m *core.Message) error {
		r.ledger.addMoved(idOf(m.ID), movedCopy{m.Headers.Get(headers.FailedQ) == address, headers.ParseAttempts(m.Headers.Get(headers.Attempts))})
		return nil
	})
	for _, ep := range append(all, reader) {
		err = errors.Join(err, ep.Provision(ctx))
	}
	return reader, errors.Join(err, r.system.prepare(ctx, r.subject.mode, r.ledger))
}

// idOf returns the order with a message id, or -1.
func idOf(messageID string) int {
	number, ok := strings.CutPrefix(messageID, orderPrefix)
	id, err := strconv.Atoi(number)
	if !ok || err != nil {
		return -1
	}
	return id
}

// strain runs workers, load, kills and faults until all faults have been struck, and
// returns when all work is done, or there is no more progress.
func (r *run) strain(ctx context.Context) (kills int, outcomes []outcome, err error) {
	facts, err := newFactLog(filepath.Join(r.logs, "facts.txt"))
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, facts.close()) }()
	f := &fleet{
		system: r.system, ledger: r.ledger, facts: facts, logs: r.logs, log: r.log,
		options: workerOptions{guarantees: r.subject.guarantees, pace: r.pace},
	}
	f.start()
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := r.awaitWorkers(ctx, f); err != nil {
		return 0, nil, err
	}

	through, err := r.system.openThrough()
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, through.Close(context.WithoutCancel(ctx))) }()
	sender, err := core.New("sender", through, core.Config{SendOnly: true, Logger: r.log})
	if err != nil {
		return 0, nil, err
	}
	sending, giveUp := context.WithCancel(ctx)
	defer giveUp()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		(&load{ledger: r.ledger, from: sender, window: r.window, guarantees: r.subject.guarantees}).run(sending)
	}()

	killing, stopKilling := context.WithCancel(ctx)
	defer stopKilling()
	var killer sync.WaitGroup
	var killErr error
	killer.Go(func() {
		killErr = f.killAtRandom(killing, rand.New(rand.NewPCG(r.seed, 1)), r.kills[0], r.kills[1])
	})
	outcomes, err = r.strike(ctx)
	stopKilling()
	killer.Wait()
	r.ledger.stop()
	if err = errors.Join(err, killErr); err != nil {
		return f.kills, outcomes, err
	}
	select {
	case <-sent:
	case <-time.After(r.patience):
		r.ledger.addStalled(fmt.Sprintf("the sender could not send for %v", r.patience))
		giveUp()
		<-sent
	}
	if err := r.awaitWorkers(ctx, f); err != nil {
		return f.kills, outcomes, err
	}
	return f.kills, outcomes, r.drain(ctx)
}

func (r *run) awaitWorkers(ctx context.Context, f *fleet) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return f.awaitReady(ctx)
}

// strike strikes all faults in random order, repeatedly until the time for load has
// passed, and each at least once.
func (r *run) strike(ctx context.Context) (outcomes []outcome, err error) {
	var faults []fault
	for _, f := range r.system.faults() {
		if r.chosen == nil || r.chosen(f) {
			faults = append(faults, f)
		}
	}
	if len(faults) == 0 {
		return nil, errors.New("no fault has such a name")
	}
	dice := rand.New(rand.NewPCG(r.seed, 2))
	end := time.Now().Add(r.load)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		for _, n := range dice.Perm(len(faults)) {
			if ctx.Err() != nil {
				return outcomes, context.Cause(ctx)
			}
			if round > 0 && time.Now().After(end) {
				return outcomes, nil
			}
			if !r.awaitFlow(ctx) {
				r.ledger.addStalled(fmt.Sprintf("fewer than %d handlers came to their end within %v after the fault %q", flow, r.patience, nameOfLast(outcomes)))
				return outcomes, nil
			}
			o, err := r.strikeOne(ctx, faults[n])
			if err != nil {
				return outcomes, fmt.Errorf("fault %q: %w", faults[n].name, err)
			}
			outcomes = append(outcomes, o)
			r.printf("  %4.0f s  %s", time.Since(r.started).Seconds(), o)
			pause(ctx, r.calm)
		}
	}
	return outcomes, nil
}

func nameOfLast(outcomes []outcome) string {
	if len(outcomes) == 0 {
		return "none"
	}
	return outcomes[len(outcomes)-1].fault
}

// awaitFlow returns true when work goes on, or false if it does not.
func (r *run) awaitFlow(ctx context.Context) bool {
	_, before := r.ledger.progress()
	for deadline := time.Now().Add(r.patience); ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		if _, now := r.ledger.progress(); now >= before+flow {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
	return true // the state is unknown
}

func (r *run) strikeOne(ctx context.Context, f fault) (outcome, error) {
	began := time.Now()
	w := r.ledger.watch(began)
	err := f.strike(ctx, r.fault)
	ended := time.Now()
	recovered, waiting := w.faultEnded(ended)
	if err == nil {
		select {
		case <-recovered:
		case <-time.After(r.patience):
			r.ledger.addStalled(fmt.Sprintf("nothing was handled within %v after the fault %q", r.patience, f.name))
		}
	}
	o := outcome{fault: f.name, took: ended.Sub(began), waiting: waiting}
	o.during, o.recovery, o.pause = w.stop()
	return o, err
}

// String returns the outcome for a terminal.
func (o outcome) String() string {
	recovery := "no completion after it"
	if o.recovery >= 0 {
		recovery = fmt.Sprintf("first completion %.2f s after it", o.recovery.Seconds())
	}
	return fmt.Sprintf("%s: %.1f s, %d completions during it, %d orders waiting at its end, %s, longest pause %.2f s",
		o.fault, o.took.Seconds(), o.during, o.waiting, recovery, o.pause.Seconds())
}

// drain returns when all work is done, or there was no progress for lastPatience.
func (r *run) drain(ctx context.Context) error {
	type state struct{ incomplete, completed, left, moved int }
	var last state
	since := time.Now()
	for {
		depths, err := r.system.depths(ctx)
		if err != nil {
			return err
		}
		var now state
		now.incomplete, now.completed = r.ledger.progress()
		now.moved = depths[errorQueue]
		delete(depths, errorQueue)
		for _, n := range depths {
			now.left += n
		}
		if now != last {
			last, since = now, time.Now()
		}
		unchanged := time.Since(since)
		// The number in the error queue does not prove that every failing order is there:
		// an order that was perhaps sent twice may be there twice.
		if now.incomplete+now.left == 0 && now.moved >= r.ledger.failing() && unchanged >= r.system.staleness() {
			return nil
		}
		if unchanged > r.lastPatience {
			return nil
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// collect adds to the ledger the rows, the messages in the error queue, the messages left
// in other queues, and the secrets in logs. No worker runs any more.
func (r *run) collect(ctx context.Context, reader *core.Endpoint) error {
	limited, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var err error
	if r.subject.isAtomic() {
		err = r.system.rows(limited, r.ledger)
	}
	err = errors.Join(err, r.readErrorQueue(limited, reader))
	left, depthsErr := r.system.depths(limited)
	r.ledger.setLeft(left)
	err = errors.Join(err, depthsErr)
	if log := r.system.serverLog(); log != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(r.logs, "server.log"), []byte(log), 0o644))
	}
	return errors.Join(err, r.searchLogs())
}

// readErrorQueue runs the endpoint that reads the error queue until the queue is empty.
func (r *run) readErrorQueue(ctx context.Context, reader *core.Endpoint) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- reader.Run(running) }()
	for since := time.Now(); ; {
		select {
		case err := <-ended:
			return errors.Join(err, fmt.Errorf("endpoint %s ended too early", reader.Name()))
		case <-time.After(100 * time.Millisecond):
		}
		depths, err := r.system.depths(ctx)
		switch {
		case depths[errorQueue] > 0:
			since = time.Now()
		case err == nil && time.Since(since) < r.system.staleness():
		default:
			stop()
			return errors.Join(err, <-ended)
		}
	}
}

// searchLogs looks for secrets in the logs of the workers.
func (r *run) searchLogs() error {
	names, err := filepath.Glob(filepath.Join(r.logs, "*.log"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if filepath.Base(name) == "server.log" {
			continue // the server's log, not a worker's
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, secret := range r.system.secrets() {
			if bytes.Contains(text, []byte(secret)) {
				r.ledger.addLeak(name + " has the password")
			}
		}
	}
	return nil
}
