package inbox_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// bed is an endpoint "billing" with an inbox, in a synctest bubble.
type bed struct {
	*testing.T
	broker *broker
	store  inbox.Store
	memory *inbox.Memory
	box    *inbox.Inbox
	log    *bytes.Buffer

	mu   sync.Mutex
	runs int
	ends []error

	duplicates []bool // whether each attempt was told to be one
}

// broker refuses sends of applications.
type broker struct {
	*inmemory.Transport
	refuse func(out []core.Outgoing) error // or nil
}

func (b *broker) Send(ctx context.Context, out ...core.Outgoing) error {
	if b.refuse != nil && len(out) > 0 && out[0].Reason == core.ReasonApplication {
		if err := b.refuse(out); err != nil {
			return err
		}
	}
	return b.Transport.Send(ctx, out...)
}

var errUnreachable = errors.New("away")

// lose refuses the first n sends.
func (b *broker) lose(n int) {
	b.refuse = func([]core.Outgoing) error {
		if n--; n >= 0 {
			return errUnreachable
		}
		return nil
	}
}

// setup may be changed by a test.
type setup struct {
	config inbox.Config
	core   core.Config
	outer  []core.Middleware
	handle core.HandlerFunc
}

// bubble runs the endpoint.
func bubble(t *testing.T, change func(b *bed, s *setup), test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, broker: &broker{Transport: inmemory.Open()}, memory: &inbox.Memory{}, log: &bytes.Buffer{}}
		b.store = b.memory
		if err := b.broker.Provision(t.Context(), core.Topology{Queues: []string{"events", "error"}}); err != nil {
			t.Fatal(err)
		}
		s := &setup{
			core:   core.Config{Transactions: core.TransactionReceiveOnly, Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{Delays: slices.Repeat([]time.Duration{2 * time.Hour}, 3)}}},
			handle: func(_ context.Context, m *core.Message) error { return m.Send("events", billedType.Of([]byte("bill"))) },
		}
		s.config.Logger = slog.New(slog.NewTextHandler(b.log, nil))
		change(b, s)
		s.config.Store = b.store
		var err error
		if b.box, err = inbox.New(s.config); err != nil {
			t.Fatal(err)
		}
		s.core.Middleware = append(slices.Clone(s.outer), b.box.Middleware())
		s.core.Observers = append(s.core.Observers, core.Observer{HandleEnd: b.handleEnd})
		s.core.Logger = s.config.Logger
		ep, err := core.New("billing", b.broker, s.core)
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error {
			b.mu.Lock()
			b.runs++
			b.mu.Unlock()
			return s.handle(ctx, m)
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		synctest.Wait()
		defer func() {
			cancel()
			if err := errors.Join(<-ended, b.box.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}()
		test(b)
	})
}

func (b *bed) handleEnd(_ context.Context, e core.Handling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = append(b.ends, e.Err)
	b.duplicates = append(b.duplicates, e.Duplicate)
}

func (b *bed) put(ids ...string) {
	b.Helper()
	for _, id := range ids {
		if err := b.broker.Transport.Send(b.Context(), core.Outgoing{ID: id, Queue: "billing", Headers: core.HeadersFromMap(map[string]string{
			headers.MessageID: id, headers.MessageTypes: "order",
		})}); err != nil {
			b.Fatal(err)
		}
	}
	synctest.Wait()
}

// pass lets time pass, and waits for all that happens in it.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bed) has(queue string, want int) []queues.Message {
	b.Helper()
	messages := b.messages(queue)
	if len(messages) != want {
		b.Fatalf("%s has %d messages, want %d; attempts ended with %v", queue, len(messages), want, b.ends)
	}
	return messages
}

// messages returns the messages that are ready in a queue.
func (b *bed) messages(queue string) []queues.Message {
	b.Helper()
	synctest.Wait()
	page, err := b.broker.Browse(b.Context(), queues.Request{Queue: queue, Limit: 1000})
	if err != nil {
		b.Fatal(err)
	}
	return slices.DeleteFunc(page.Messages, func(m queues.Message) bool { return m.State != queues.Ready })
}

func (b *bed) ran(want int) {
	b.Helper()
	if b.runs != want {
		b.Errorf("the handler ran %d times, want %d", b.runs, want)
	}
}

var billing = inbox.Key{Scope: "billing", ID: "m1"}

// A message that is sent again is due when it was due at first, and not worth more time.
func TestInbox_TimesOfRepeatedSends(t *testing.T) {
	bubble(t, func(b *bed, s *setup) {
		b.broker.lose(1)
		began := time.Now()
		s.handle = func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Minute)
			return errors.Join(
				m.Send("events", immediateType.Of([]byte("soon")).With(core.SendOptions{Delay: 10 * time.Minute})),
				m.Send("events", delayedType.Of([]byte("late")).With(core.SendOptions{DeliverAt: began.Add(5 * time.Hour)})),
				m.Send("events", expiredType.Of([]byte("expired")).With(core.SendOptions{TimeToBeReceived: time.Hour})),
				m.Send("events", freshType.Of([]byte("fresh")).With(core.SendOptions{TimeToBeReceived: 3 * time.Hour})),
			)
		}
	}, func(b *bed) {
		began := time.Now()
		b.put("m1")
		b.pass(2*time.Hour + 2*time.Minute) // the delayed retry
		got := b.has("events", 2)
		if fmt.Sprint(string(got[0].Body), string(got[1].Body)) != "soonfresh" {
			b.Errorf("two hours later %q and %q have arrived", got[0].Body, got[1].Body)
		}
		if due := got[0].Headers.Get(headers.DeliverAt); due != headers.FormatTime(began.Add(11*time.Minute)) {
			b.Errorf("the delayed one is due at %s", due)
		}
		b.pass(time.Until(began.Add(3*time.Hour + time.Minute)))
		b.has("events", 1) // the fresh one has expired
		b.pass(time.Until(began.Add(5*time.Hour - time.Second)))
		b.has("events", 1)
		b.pass(time.Second)
		b.has("events", 2)
		b.ran(1)
	})
}

// snippet: without-id
func sentOrRandom(m *core.Message) (string, error) {
	if id, sent := messagekit.SentID(m); sent {
		return id, nil
	}
	return rand.Text(), nil
}

// end

func TestInbox_MessageWithoutIDIsRefused(t *testing.T) {
	foreign := core.Outgoing{ID: "1", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{headers.MessageTypes: "order", headers.GeneratedID: "True"})}
	t.Run("by default", func(t *testing.T) {
		bubble(t, func(*bed, *setup) {}, func(b *bed) {
			if err := b.broker.Transport.Send(b.Context(), foreign); err != nil {
				b.Fatal(err)
			}
			text := b.has("error", 1)[0].Headers.Get(headers.ExceptionMessage)
			if !strings.Contains(text, "has no id that its sender gave it") || !strings.Contains(text, "Config.Key") || !errors.Is(b.ends[0], inbox.ErrNoID) {
				b.Errorf("%s; %v", text, b.ends)
			}
			b.ran(0)
		})
	})
	t.Run("handled", func(t *testing.T) {
		bubble(t, func(b *bed, s *setup) {
			b.broker.lose(1)
			s.config.Key = sentOrRandom
		}, func(b *bed) {
			for range 2 { // equal content: the transport may take them for one
				if err := b.broker.Transport.Send(b.Context(), foreign); err != nil {
					b.Fatal(err)
				}
				b.pass(3 * time.Hour)
			}
			b.ran(3)
			b.has("events", 2)
			b.put("m1", "m1")
			b.pass(3 * time.Hour)
			b.ran(4)
		})
	})
	t.Run("with a Key", func(t *testing.T) {
		key := ""
		bubble(t, func(_ *bed, s *setup) {
			s.config.Key = func(m *core.Message) (string, error) {
				if key == "fails" {
					return "", errUnreachable
				}
				return key, nil
			}
		}, func(b *bed) {
			for _, key = range []string{"order 1", "order 1", "order 2", "", "fails"} {
				if err := b.broker.Transport.Send(b.Context(), foreign); err != nil {
					b.Fatal(err)
				}
				synctest.Wait()
			}
			b.ran(2)
			b.has("error", 1)
			if err := b.ends[4]; !errors.Is(err, errUnreachable) || core.VerdictOf(err) != nil {
				b.Errorf("a Key that fails: %v", err)
			}
		})
	})
}

func TestInbox_ReportsDuplicates(t *testing.T) {
	bubble(t, func(b *bed, _ *setup) { b.broker.lose(1) }, func(b *bed) {
		at := time.Now().Format(time.RFC3339)[:len("2006-01-02T15:04:05")]
		b.put("m1")
		b.pass(2 * time.Hour)
		b.has("events", 1)
		b.pass(time.Second) // the entry is marked
		b.put("m1")
		b.has("events", 1)
		const text = `level=INFO msg="message was handled before and is not handled again" scope=billing message_id=m1 handled_at=`
		var repeated []string
		for line := range strings.Lines(b.log.String()) {
			if _, values, found := strings.Cut(line, text+at); found {
				_, sent, _ := strings.Cut(strings.TrimSpace(values), "messages_sent_again=")
				repeated = append(repeated, sent)
			}
		}
		if !slices.Equal(repeated, []string{"1", "0"}) {
			b.Errorf("messages sent again %v, want 1, then 0; %s", repeated, b.log)
		}
	})
}

// A duplicate is told to observers as one, and may be an error.
func TestInbox_DuplicatesOutcome(t *testing.T) {
	for _, action := range []inbox.DuplicateAction{inbox.DuplicateSucceeds, inbox.DuplicateFails} {
		bubble(t, func(b *bed, s *setup) {
			b.broker.lose(1)
			s.config.Duplicates = action
		}, func(b *bed) {
			b.put("m1") // and again after two hours
			b.pass(3 * time.Hour)
			b.has("events", 1)
			b.ran(1)
			if fmt.Sprint(b.duplicates) != "[false true]" {
				b.Errorf("told %v; %s", b.duplicates, b.log)
			}
			failed := 0
			if action == inbox.DuplicateFails {
				failed = 1
			}
			b.has("error", failed)
			if last := b.ends[len(b.ends)-1]; errors.Is(last, inbox.ErrDuplicate) != (failed > 0) {
				b.Error(last)
			}
		})
	}
}

// A tool that returns a message twice learns that the second one was a duplicate.
func TestInbox_OutcomesOfReturnedMessages(t *testing.T) {
	bubble(t, func(b *bed, _ *setup) {}, func(b *bed) {
		if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"reprise.outcomes"}}); err != nil {
			b.Fatal(err)
		}
		for n := range 2 {
			if err := b.broker.Transport.Send(b.Context(), core.Outgoing{ID: "m1", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{
				headers.MessageID: "m1", headers.MessageTypes: "order", headers.Replay: headers.ReplayReport,
				headers.RetryAckQueue: "reprise.outcomes", headers.RetryUniqueMessageID: fmt.Sprint("return ", n),
			})}); err != nil {
				b.Fatal(err)
			}
			synctest.Wait()
		}
		b.ran(1)
		for i, report := range b.has("reprise.outcomes", 2) {
			want := []headers.Outcome{headers.OutcomeSucceeded, headers.OutcomeDuplicate}[i]
			if got := report.Headers.Get(headers.ReplayOutcome); got != string(want) {
				b.Errorf("return %d was %s, want %s", i, got, want)
			}
		}
	})
}

// An inbox beside the transport's own transaction says when it is unnecessary.
func TestInbox_ReportsAtomicMode(t *testing.T) {
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		bubble(t, func(_ *bed, s *setup) { s.core.Transactions = mode }, func(b *bed) {
			want := mode == core.TransactionSendsAtomicWithReceive
			if got := strings.Contains(b.log.String(), "the inbox is needed only where"); got != want {
				b.Errorf("in %v: told %v", mode, got)
			}
		})
	}
}

// failing is a store whose calls can be made to fail.
type failing struct {
	inbox.Store

	mu                   sync.Mutex
	commit, mark, remove error
	marked, removed      int
}

// look calls do while no other goroutine uses f.
func (f *failing) look(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *failing) Begin(ctx context.Context, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
	tx, entry, err := f.Store.Begin(ctx, k, wait)
	if tx != nil {
		tx = &failingTransaction{tx, f}
	}
	return tx, entry, err
}

func (f *failing) MarkSent(ctx context.Context, keys []inbox.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marked++; f.mark != nil {
		return f.mark
	}
	return f.Store.MarkSent(ctx, keys)
}

func (f *failing) Remove(ctx context.Context, age time.Duration, limit int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed++; f.remove != nil {
		return 0, f.remove
	}
	return f.Store.Remove(ctx, age, limit)
}

type failingTransaction struct {
	inbox.Transaction
	f *failing
}

func (tx *failingTransaction) Commit(ctx context.Context, out []byte) error {
	if err := tx.f.commit; err != nil {
		tx.f.commit = nil
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Transaction.Commit(ctx, out)
}

// Nothing is sent before the commit, nor without one.
func TestInbox_NothingIsSentWithoutCommit(t *testing.T) {
	bubble(t, func(b *bed, _ *setup) { b.store = &failing{Store: b.memory, commit: errUnreachable} }, func(b *bed) {
		b.broker.refuse = func([]core.Outgoing) error {
			if _, ok := b.memory.Entry(billing); !ok {
				b.Error("sent before the commit")
			}
			return nil
		}
		b.put("m1")
		b.has("events", 0)
		b.pass(2 * time.Hour)
		b.has("events", 1)
		b.ran(2)
	})
}

func TestInbox_MarksManyAtATimeAndRepeats(t *testing.T) {
	var store *failing
	bubble(t, func(b *bed, _ *setup) {
		store = &failing{Store: b.memory, mark: errUnreachable}
		b.store = store
	}, func(b *bed) {
		for i := range 100 {
			b.put(fmt.Sprint(i))
		}
		key := func(i int) inbox.Key { return inbox.Key{Scope: "billing", ID: fmt.Sprint(i)} }
		b.pass(time.Minute)
		if e, _ := b.memory.Entry(key(0)); e.Outgoing == nil {
			b.Error("it is marked already")
		}
		tries := 0
		store.look(func() { tries = store.marked })
		if tries < 2 || tries > 20 {
			b.Errorf("%d tries in a minute", tries)
		}
		if n := strings.Count(b.log.String(), "cannot be marked"); n != 1 {
			b.Errorf("an outage is told %d times", n)
		}
		store.look(func() { store.mark = nil })
		b.pass(time.Minute)
		for i := range 100 {
			if e, ok := b.memory.Entry(key(i)); !ok || e.Outgoing != nil {
				b.Errorf("the entry %d is there: %v, with %d bytes", i, ok, len(e.Outgoing))
			}
		}
		store.look(func() {
			if store.marked != tries+1 {
				b.Errorf("%d calls for the waiting messages", store.marked-tries)
			}
		})
	})
}

func TestInbox_RemovesEntriesAfterRetention(t *testing.T) {
	const retention = 24 * time.Hour
	var store *failing
	bubble(t, func(b *bed, s *setup) {
		s.config.Retention = retention
		store = &failing{Store: b.memory}
		b.store = store
	}, func(b *bed) {
		began := time.Now()
		b.put("m1")
		for time.Since(began) <= retention+2*time.Minute { // others keep it busy
			if _, ok := b.memory.Entry(billing); !ok {
				b.Fatalf("the entry is removed after %v", time.Since(began))
			}
			if time.Since(began) >= retention {
				break
			}
			b.pass(10 * time.Minute)
			b.put(fmt.Sprint("other ", time.Since(began)), "m1")
		}
		b.ran(1 + int(retention/(10*time.Minute)))
		b.pass(30 * time.Minute)
		b.put("another")
		if _, ok := b.memory.Entry(billing); ok {
			b.Error("the entry is not removed")
		}
		store.look(func() { store.remove = errUnreachable })
		b.pass(time.Hour)
		b.put("yet another")
		if !strings.Contains(b.log.String(), "cannot be removed from the inbox") {
			b.Error(b.log.String())
		}
		store.look(func() {
			if store.removed > 2*int(retention/(14*time.Minute)) {
				b.Errorf("Remove was called %d times", store.removed)
			}
		})
	})
}

// A copy waits for the one that is being handled, and is deferred where that takes long;
// neither is a failure.
func TestInbox_CopyInProgress(t *testing.T) {
	for _, delays := range []bool{true, false} {
		t.Run(fmt.Sprint("can defer: ", delays), func(t *testing.T) {
			var finish chan struct{}
			bubble(t, func(b *bed, s *setup) {
				finish = make(chan struct{}) // of the bubble
				s.config.Wait = time.Second
				s.handle = func(ctx context.Context, m *core.Message) error {
					<-finish
					return m.Send("events", billedType.Of([]byte("bill")))
				}
				if !delays {
					caps := inmemory.Everything()
					caps.DelayedDelivery, caps.DelayPrecision, caps.MaxDelay = false, 0, 0
					transport, err := inmemory.New(inmemory.Config{Capabilities: &caps})
					if err != nil {
						b.Fatal(err)
					}
					b.broker.Transport = transport
					if err := transport.Provision(b.Context(), core.Topology{Queues: []string{"events", "error"}}); err != nil {
						b.Fatal(err)
					}
					s.core.Recoverability = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
				}
			}, func(b *bed) {
				b.put("m1", "m1")
				b.pass(time.Minute)
				if refused := len(b.ends); refused > 0 != delays {
					b.Errorf("%d copies were deferred", refused)
				}
				for _, err := range b.ends {
					if v := core.VerdictOf(err); v == nil || v.Action.Kind != core.ActionRefuse || !errors.Is(err, inbox.ErrInProgress) {
						b.Errorf("a copy ended with %v", err)
					}
				}
				close(finish)
				b.pass(time.Minute)
				// A copy that waited does not know whether they have left.
				if sent := b.messages("events"); len(sent) == 0 || len(sent) > 2 || sent[0].ID != sent[len(sent)-1].ID {
					b.Errorf("sent %+v", sent)
				}
				b.has("error", 0)
				b.ran(1)
			})
		})
	}
}

// However a handler ends, its transaction does.
func TestInbox_EndsTheTransaction(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("in a handler") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed, s *setup) {
				s.handle = func(context.Context, *core.Message) error {
					if b.runs == 1 {
						end()
					}
					return nil
				}
			}, func(b *bed) {
				b.put("m1")
				b.pass(3 * time.Hour)
				b.ran(2)
				if _, ok := b.memory.Entry(billing); !ok {
					b.Error("there is no entry")
				}
			})
		})
	}
}

// Each try of middleware outside has a transaction, and its sends leave once.
func TestInbox_InsideOfMiddlewareThatRetries(t *testing.T) {
	tries := 0
	bubble(t, func(_ *bed, s *setup) {
		s.outer = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				for range 3 {
					if err := next(ctx, m); err == nil {
						tries++
					}
				}
				return nil
			}
		})}
	}, func(b *bed) {
		b.put("m1")
		b.has("events", 1)
		b.ran(1)
		if n := strings.Count(b.log.String(), "was handled before and is not handled again"); tries != 3 || n != 2 {
			b.Errorf("%d tries, %d duplicates", tries, n)
		}
	})
}

func TestInbox_LongIDs(t *testing.T) {
	bubble(t, func(*bed, *setup) {}, func(b *bed) {
		long := strings.Repeat("\u00e9", 5000)
		b.put(long, long, long+"x", "sha256:00", "nul\x00", "nul")
		b.ran(5)
		for id, want := range map[string]bool{long: false, "sha256:00": false, "nul": true} {
			if _, ok := b.memory.Entry(inbox.Key{Scope: "billing", ID: id}); ok != want {
				b.Errorf("an entry with the id %.20q: %v", id, ok)
			}
		}
	})
}
