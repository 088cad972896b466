package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// fate is the outcome of a message: how often it is attempted, and where it
// ends.
type fate struct {
	name     string
	attempts int
	end      string // the queue; "" where it is dropped
}

const soakRounds = (2 + 1) * (1 + 1) // two immediate retries, one delayed one

var fates = []fate{
	{"fails once", 2, "done"},
	{"fails always", soakRounds, "error"},
	{"panics once", 2, "done"},
	{"panics always", soakRounds, "error"},
	{"exits once", 2, "done"},
	{"unrecoverable", 1, "error"},
	{"discard", 1, ""},
	{"defer", 3, "done"},
	{"retry after", 2, "done"},
	{"second round", 4, "done"},
	{"undecodable", 0, "error"},
	{"unknown type", 0, "error"},
	{"custom queue", 1, "custom"},
	{"missing queue", 1, "error"},
	{"reject", 1, "letters"},
	{"slow", 1, "done"},
	{"send refused", 1, "error"},
}

// fateOf lets nine of ten messages succeed at once.
func fateOf(n int) fate {
	if n%10 != 0 {
		return fate{"good", 1, "done"}
	}
	return fates[n/10%len(fates)]
}

var errSoak = errors.New("soak failure")

// soak is one run over all messages.
type soak struct {
	t        *testing.T
	attempts []atomic.Uint32 // by number
	ends     []atomic.Uint32 // how often a message reached an end
	window   chan struct{}   // a place for each message in progress
}

func (s *soak) end(n int, where string) {
	if where != fateOf(n).end {
		s.t.Errorf("message %d (%s) ended in %q", n, fateOf(n).name, where)
	}
	if s.ends[n].Add(1) == 1 {
		<-s.window
	}
}

const (
	headerNumber = "Number"
	// soakLock never ends in a run: a busy machine can stop a process for as long as a short
	// lock lasts. Locks that end and are renewed are tested in bubbles.
	soakLock = time.Hour
	// soakPatience is for messages that never end; the speed of the machine is not tested.
	soakPatience = 10 * time.Minute
)

func (s *soak) handle(_ context.Context, m *core.Message, body int) error {
	n := body
	fate := fateOf(n)
	last := int(s.attempts[n].Add(1)) == fate.attempts
	switch fate.name {
	case "fails always":
		return fmt.Errorf("message %d: %w", n, errSoak)
	case "panics always":
		panic(errSoak)
	case "unrecoverable":
		return core.GiveUp(errSoak)
	case "discard":
		s.end(n, "")
		return core.Discard(errors.New("soak"))
	case "custom queue":
		return core.GiveUpTo(errSoak, "custom")
	case "missing queue":
		return core.GiveUpTo(errSoak, "nowhere")
	case "reject":
		return core.GiveUpTo(errSoak, core.DeadLetterQueue)
	case "send refused":
		return m.Send("nowhere", soakType.Of(n))
	case "slow":
		if n%1000 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	if !last {
		switch fate.name {
		case "fails once", "second round":
			return errSoak
		case "panics once":
			panic("soak panic")
		case "exits once":
			runtime.Goexit()
		case "defer":
			return core.Defer(errors.New("not yet"), time.Millisecond)
		case "retry after":
			return core.RetryAfter(errSoak, time.Millisecond)
		}
	}
	return m.Send("done", doneType.Of(n).With(core.SendOptions{Headers: map[string]string{headerNumber: strconv.Itoa(n)}}))
}

func (s *soak) send(from *core.Endpoint, n int) {
	s.window <- struct{}{}
	options := core.SendOptions{Headers: map[string]string{headerNumber: strconv.Itoa(n)}}
	messageType, body := "soak", any(n)
	switch fateOf(n).name {
	case "undecodable":
		body, options.ContentType = []byte("no number"), "application/json"
	case "unknown type":
		messageType = "strange"
	}
	queue := "left"
	if n%3 == 0 {
		queue = "right"
	}
	if err := from.Send(s.t.Context(), queue, core.NewMessageType[any](messageType).Of(body).With(options)); err != nil {
		s.t.Error(err)
	}
}

// settle waits until every message sent has ended, and returns the heap then.
func (s *soak) settle() uint64 {
	timeout := time.After(soakPatience)
	for range cap(s.window) {
		select {
		case s.window <- struct{}{}:
		case <-timeout:
			s.t.Fatalf("%d messages have not ended after %v", len(s.window), soakPatience)
		}
	}
	for range cap(s.window) {
		<-s.window
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// keepChanging changes concurrency and pauses until ctx ends.
func keepChanging(ctx context.Context, endpoints []*core.Endpoint) {
	for ctx.Err() == nil {
		ep := endpoints[rand.IntN(len(endpoints))]
		if rand.IntN(4) == 0 {
			ep.Pause()
		} else if err := ep.SetConcurrency(1 + rand.IntN(32)); err != nil {
			panic(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond):
		}
		ep.Resume()
	}
}

func newEndpoint(t *testing.T, transport core.Transport, name string, c core.Config) *core.Endpoint {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	ep, err := core.New(name, transport, c)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// TestMillionMessages sends soakMessages through endpoints of which two are
// instances of one, a tenth of them to every kind of failure, while concurrency
// changes and endpoints pause. Each message must be attempted exactly as often
// as its fate says and end once, where it says; memory must not grow with the
// number of messages that have passed.
func TestMillionMessages(t *testing.T) {
	for _, mode := range retryModes {
		t.Run(mode.String(), func(t *testing.T) {
			cfg := inmemory.Config{LockDuration: soakLock}
			if mode == core.TransactionReceiveOnly {
				cfg = prefetchConfig(cfg.LockDuration)
			}
			messages := soakMessages / 2
			if testing.Short() {
				messages = 5000
			}
			runSoak(t, cfg, mode, messages)
		})
	}
}

func runSoak(t *testing.T, cfg inmemory.Config, mode core.TransactionMode, messages int) {
	transport, err := inmemory.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close(context.Background())
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"left", "right", "error", "custom", "done", "unexpected"}}); err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, attempts: make([]atomic.Uint32, messages), ends: make([]atomic.Uint32, messages), window: make(chan struct{}, 2000)}

	var workers, all []*core.Endpoint
	for _, name := range []string{"left", "left", "right"} {
		ep := newEndpoint(t, transport, name, core.Config{Transactions: mode, Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Millisecond},
		}})
		core.Handle(ep, soakType, s.handle)
		workers = append(workers, ep)
	}
	// Endpoints consume messages in their last queues, so that no queue grows.
	for queue, end := range map[string]string{
		"done": "done", "error": "error", "custom": "custom",
		inmemory.DeadLetterQueue("left"): "letters", inmemory.DeadLetterQueue("right"): "letters",
	} {
		ep := newEndpoint(t, transport, queue, core.Config{Provision: core.ProvisionNever, Recoverability: core.Recoverability{ErrorQueue: "unexpected"}})
		for _, messageType := range []string{"soak", "done", "strange"} {
			core.Handle(ep, core.NewMessageType[[]byte](messageType), func(_ context.Context, m *core.Message, _ []byte) error {
				n, err := strconv.Atoi(m.Headers.Get(headerNumber))
				if err == nil {
					s.end(n, end)
				}
				return err
			})
		}
		all = append(all, ep)
	}

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := core.RunAll(ctx, append(all, workers...)...); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { keepChanging(ctx, workers) })
	defer wg.Wait()
	defer stop()
	for _, ep := range workers {
		<-ep.Ready()
	}

	sender := newEndpoint(t, transport, "sender", core.Config{SendOnly: true})
	var early uint64
	for n := range messages {
		s.send(sender, n)
		if n == messages/10 {
			early = s.settle()
		}
	}
	late := s.settle()
	const bound = 4 << 20
	if late > early+bound {
		t.Errorf("the heap grew from %d KiB after a tenth to %d KiB at the end", early>>10, late>>10)
	}
	s.account(transport)
}

// account checks each message against its fate.
func (s *soak) account(transport *inmemory.Transport) {
	bad := 0
	for n := range s.ends {
		fate := fateOf(n)
		attempts, ends := int(s.attempts[n].Load()), int(s.ends[n].Load())
		if attempts == fate.attempts && ends == 1 {
			continue
		}
		if bad++; bad <= 10 {
			s.t.Errorf("message %d (%s) was attempted %d times and ended %d times, want %d and 1", n, fate.name, attempts, ends, fate.attempts)
		}
	}
	if bad > 10 {
		s.t.Errorf("and %d others", bad-10)
	}
	names, err := transport.ListQueues(s.t.Context())
	if err != nil {
		s.t.Error(err)
	}
	for _, queue := range names {
		if depth, err := transport.Depth(s.t.Context(), queue); err != nil || depth.Ready+depth.Delayed > 0 {
			s.t.Errorf("queue %q still has %+v, %v", queue, depth, err)
		}
	}
}
