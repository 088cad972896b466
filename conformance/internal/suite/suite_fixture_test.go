package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// suiteFixture is what the suite's own tests can do on an in-memory broker besides
// using transports: an adapter's tests do it with the tools of their broker.
type suiteFixture struct {
	broker   *inmemory.Broker
	database database

	connections atomic.Int64 // transports that are open

	mu       sync.Mutex
	mistaken []string // queues of mismatch

	deduplicating map[string]map[string]bool // the known ids of each queue of uniqueQueue
}

// password is the one with which the transports of the suite's own tests log in.
const password = "correct-horse-battery-staple"

// equip gives the harness its functions.
func (f *suiteFixture) equip(h *Harness) {
	h.Corrupt = f.corrupt
	h.SendNative = f.sendNative
	h.DeleteQueue = func(t testing.TB, queue string) {
		if err := f.openSound(t).Remove(t.Context(), []string{queue}, nil); err != nil {
			t.Fatal(err)
		}
	}
	h.DeadLetters = f.deadLetters
	h.Mismatch = f.mismatch
	h.NativeTx = &NativeTx{Write: work, Committed: f.database.has, Break: breakWork}
	h.Connections = func(testing.TB) int { return int(f.connections.Load()) }
	h.Secrets = []string{password}
	h.OpenMisplaced = func(testing.TB, string) ([]any, []error) { return []any{"a configuration"}, []error{errRefused} }
}

// uniqueQueue makes a queue at which the suite's transports drop duplicates.
func (f *suiteFixture) uniqueQueue(t testing.TB) (queue, property string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue = fmt.Sprintf("deduplicating-%d", len(f.deduplicating))
	if err := f.openSound(t).Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		t.Fatal(err)
	}
	if f.deduplicating == nil {
		f.deduplicating = map[string]map[string]bool{}
	}
	f.deduplicating[queue] = map[string]bool{}
	return queue, ""
}

// openSound opens a sound and able transport on the broker.
func (f *suiteFixture) openSound(t testing.TB) *inmemory.Transport {
	transport, err := inmemory.New(inmemory.Config{Broker: f.broker})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(context.Background()) })
	return transport
}

// mismatch makes a queue of which the suite's transports say that it is another
// one than they would make: the in-memory broker's queues are all alike.
func (f *suiteFixture) mismatch(t testing.TB) (queue string, values [2]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue = fmt.Sprintf("mistaken-%d", len(f.mistaken))
	if err := f.openSound(t).Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		t.Fatal(err)
	}
	f.mistaken = append(f.mistaken, queue)
	return queue, [2]string{"classic", "quorum"}
}

// compare returns the differences that an adapter finds in queues that exist.
func (f *suiteFixture) compare(queues []string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, queue := range queues {
		if slices.Contains(f.mistaken, queue) {
			return fmt.Errorf("provision: queue %q exists with the type classic; quorum is wanted: delete it, or choose another name", queue)
		}
	}
	return nil
}

// headerCorrupt marks a stored message that transports cannot parse.
const headerCorrupt = "suite.corrupt"

var errCorrupt = errors.New("the envelope is cut off")

func (f *suiteFixture) corrupt(t testing.TB, queue string) []byte {
	body := []byte("\x00\xff{half an enve")
	m := core.Outgoing{ID: "1", Queue: queue, Body: body}
	m.Headers.Set(headerCorrupt, "true")
	if err := f.openSound(t).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return body
}

// unparsed is a message that an adapter cannot parse, as the adapter delivers it.
func unparsed(in *core.Incoming) {
	if in.Headers.Get(headerCorrupt) == "" {
		return
	}
	in.Malformed = errCorrupt
	in.Headers = core.Headers{}
	in.ID = in.NativeID
}

// headerNative has the native properties of a stored message.
const headerNative = "suite.native"

// nativeMessage is the message of a client library.
type nativeMessage struct{ properties string }

func (f *suiteFixture) sendNative(t testing.TB, queue, messageType string) func(native any) string {
	m := core.Outgoing{ID: "native", Queue: queue, Body: []byte("native")}
	m.Headers.Set(headers.MessageTypes, messageType)
	m.Headers.Set(headerNative, "app-id: shop")
	if err := f.openSound(t).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return func(native any) string {
		m, _ := native.(*nativeMessage)
		if m == nil {
			return "none"
		}
		return m.properties
	}
}

// withNative returns messages as they are stored: copies have the native properties of their
// originals.
func withNative(out []core.Outgoing) []core.Outgoing {
	for i := range out {
		if native, ok := out[i].Native.(*nativeMessage); ok {
			out = slices.Clone(out)
			out[i].Headers.Set(headerNative, native.properties)
		}
	}
	return out
}

// readNative makes the native message of a received one.
func readNative(in *core.Incoming) {
	if properties, has := in.Headers.Lookup(headerNative); has {
		in.Native = &nativeMessage{properties}
		in.Headers.Del(headerNative)
	}
}

// view returns a transport without faults, to look into queues.
func (f *suiteFixture) view() *inmemory.Transport {
	t, err := inmemory.New(inmemory.Config{Broker: f.broker})
	if err != nil {
		panic(err)
	}
	return t
}

// depth returns the numbers of a queue.
func (f *suiteFixture) depth(queue string) (queues.Depth, error) {
	return f.view().Depth(ctxBackground, queue)
}

// names returns the names of all queues.
func (f *suiteFixture) names() []string {
	names, err := f.view().ListQueues(ctxBackground)
	if err != nil {
		panic(err)
	}
	return names
}

func (f *suiteFixture) deadLetters(t testing.TB, queue string) (dead []DeadLetter) {
	name := inmemory.DeadLetterQueue(queue)
	depth, err := f.depth(name)
	if err != nil {
		t.Fatal(err)
	}
	if depth.Ready == 0 {
		return nil
	}
	r, err := f.openSound(t).OpenReceiver(t.Context(), core.ReceiverConfig{Queue: name, Mode: core.TransactionNone, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	taken := make([]core.Delivery, depth.Ready)
	n, err := r.Receive(t.Context(), taken)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range taken[:n] {
		in := d.Incoming()
		dead = append(dead, DeadLetter{
			Body:        in.Body,
			Reason:      in.Headers.Get(inmemory.HeaderDeadLetterReason),
			Description: in.Headers.Get(inmemory.HeaderDeadLetterDescription),
			Headers:     in.Headers,
		})
	}
	return dead
}

// database is what handlers work on in the native transactions of deliveries.
// Its lock is held while a delivery is settled, so that no reader sees one without
// the other.
type database struct {
	mu   sync.Mutex
	rows []string
}

func (db *database) has(_ testing.TB, key string) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Contains(db.rows, key)
}

// transaction is the native transaction of one delivery.
type transaction struct {
	db *database // its lock guards the rest

	work   []string
	broken bool
	auto   bool // commits at once: no transaction at all
}

type transactionKey struct{}

func (tx *transaction) bind(ctx context.Context) context.Context {
	if tx == nil {
		return ctx
	}
	return context.WithValue(ctx, transactionKey{}, tx)
}

var errAborted = errors.New("the transaction is aborted")

func work(ctx context.Context, key string) error {
	tx, ok := ctx.Value(transactionKey{}).(*transaction)
	if !ok {
		return errors.New("the context carries no transaction")
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	switch {
	case tx.broken:
		return errAborted
	case tx.auto:
		tx.db.rows = append(tx.db.rows, key)
	default:
		tx.work = append(tx.work, key)
	}
	return nil
}

func breakWork(ctx context.Context) error {
	tx, ok := ctx.Value(transactionKey{}).(*transaction)
	if !ok {
		return errors.New("the context carries no transaction")
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.broken = true
	return nil
}

// commits makes the work durable if what the broker does with the delivery
// succeeds.
func (tx *transaction) commits(settle func() error) error {
	if tx == nil {
		return settle()
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if tx.broken {
		return errAborted
	}
	if err := settle(); err != nil {
		return err
	}
	tx.db.rows = append(tx.db.rows, tx.work...)
	tx.work = nil
	return nil
}

// undoes forgets the work if what the broker does with the delivery succeeds.
func (tx *transaction) undoes(settle func() error) error {
	if tx == nil {
		return settle()
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := settle(); err != nil {
		return err
	}
	tx.work, tx.broken = nil, false
	return nil
}

// savedWork is the work before a savepoint.
type savedWork []string

func (tx *transaction) mark() savedWork {
	if tx == nil {
		return nil
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	return slices.Clone(tx.work)
}

// rollBackTo rolls back to a savepoint.
func (tx *transaction) rollBackTo(saved savedWork) {
	if tx == nil {
		return
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.work, tx.broken = slices.Clone(saved), false
}

// commit and undo are for mutants, which do so at the wrong time.

func (tx *transaction) commit() { _ = tx.commits(func() error { return nil }) }
func (tx *transaction) undo()   { _ = tx.undoes(func() error { return nil }) }

func (tx *transaction) forgetAllButLast() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.work = tx.work[max(0, len(tx.work)-1):]
}

func (tx *transaction) isBroken() bool {
	if tx == nil {
		return false
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	return tx.broken
}

// purge removes messages from a queue, as a mutant may.
func (f *suiteFixture) purge(queue string, unwanted func(in *core.Incoming) bool) {
	transport := f.view()
	ctx := context.Background()
	defer func() { _ = transport.Close(ctx) }()
	depth, err := transport.Depth(ctx, queue)
	if err != nil || depth.Ready == 0 {
		return
	}
	r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: depth.Ready})
	if err != nil {
		panic(err)
	}
	ready := make([]core.Delivery, depth.Ready)
	n, err := r.Receive(ctx, ready)
	if err != nil {
		panic(err)
	}
	for _, d := range ready[:n] {
		if unwanted(d.Incoming()) {
			_ = d.Complete(ctx)
		}
	} // the others go back when the transport is closed
}

// callCounter counts the calls that a mutant does wrong now and then.
type callCounter struct{ n atomic.Int64 }

// isNth reports whether this call is an n-th one.
func (c *callCounter) isNth(n int64) bool { return c.n.Add(1)%n == 0 }

// isSend reports whether a settlement is one that sends.
func isSend(operation string) bool { return operation == "CompleteWith" || operation == "ReplaceWith" }
