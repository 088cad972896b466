// Package filetransport is a transport whose queues are directories and whose messages are files: durable messages
// between the processes of one machine, without a server. docs/writing-an-adapter.md explains it step by step. Begin
// with message.go. It is for Linux and macOS, a local file system, one user, and a clock that is not set while messages
// are locked.
package filetransport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Config names the directory of the messages. Processes with the same Dir share them; the other fields may differ.
type Config struct {
	Dir          string        // has a directory for each queue; required; created if missing, accessible only to its user
	LockDuration time.Duration // of a delivery without renewals; default: 30 s
	PollInterval time.Duration // of an idle receiver; default: 10 ms
}

// Transport implements core.Transport, core.Provisioner and core.Checker, and in look.go the interfaces with which tools
// look into queues. It runs no goroutine.
type Transport struct {
	cfg  Config
	life *transport.Lifecycle // open or closed, and the receivers that are open
}

// New returns a transport, and creates its directory.
func New(cfg Config) (*Transport, error) {
	if cfg.Dir == "" || cfg.LockDuration < 0 || cfg.PollInterval < 0 {
		return nil, fmt.Errorf("filetransport: open: %+v: set Dir, and no duration below 0", cfg)
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("filetransport: open: %w", err)
	}
	cfg.LockDuration, cfg.PollInterval = cmp.Or(cfg.LockDuration, 30*time.Second), cmp.Or(cfg.PollInterval, 10*time.Millisecond)
	return &Transport{cfg: cfg, life: transport.NewLifecycle()}, nil
}

// Capabilities implements core.Transport (C1).
func (t *Transport) Capabilities() core.Capabilities {
	return core.Capabilities{
		Transactions: []core.TransactionMode{core.TransactionReceiveOnly},
		Abilities:    core.Abilities{DelayedDelivery: true, Prefetch: true, Browse: true},
		Limits: core.Limits{
			DelayPrecision: t.cfg.PollInterval + 50*time.Millisecond, // a poll, and the time of the disk
			MaxQueueName:   maxName,
		},
		Guarantees: core.Guarantees{NativeDeliveryCount: true, Durable: true, ConfirmsSettlement: true},
	}
}

// Address returns the name itself.
func (t *Transport) Address(queue string) (string, error) {
	_, err := t.queueDir(queue)
	return queue, err
}

const (
	suffix  = ".queue"
	maxName = 255 - len(suffix) // of a file in most file systems
)

var upperCase = regexp.MustCompile("[A-Z]")

// queueDir returns a queue's directory. Its name is escaped as in a URL, with a ^ before upper case: names that differ
// in case are two queues even on a file system that ignores case (C18).
func (t *Transport) queueDir(queue string) (string, error) {
	name := upperCase.ReplaceAllString(url.QueryEscape(queue), "^$0")
	switch {
	case queue == "" || !utf8.ValidString(queue):
		return "", transport.BadName("queue", queue, 0, "filetransport: %q is no name: it is empty, or not UTF-8", queue)
	case len(name) > maxName:
		return "", transport.BadName("queue", queue, maxName, "filetransport: %q is no name: it is too long when it is escaped, %d bytes of %d", queue, len(name), maxName)
	}
	return filepath.Join(t.cfg.Dir, name+suffix), nil
}

var errExpiry = errors.New("filetransport: a file system deletes no directory by itself; remove Config.QueueExpiry of the endpoint")

// Provision creates the queues' directories (C18).
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	if topology.QueueExpiry > 0 {
		return errExpiry
	}
	return t.each(ctx, "provision", topology.Queues, makeDir)
}

// Check reports whether the queues' directories exist and can be synced.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	if topology.QueueExpiry > 0 {
		return errExpiry
	}
	return t.each(ctx, "check", topology.Queues, syncPath)
}

// each calls do with the directory of each queue.
func (t *Transport) each(ctx context.Context, operation string, queues []string, do func(dir string) error) error {
	err := t.life.Err(ctx)
	for i := 0; i < len(queues) && err == nil; i++ {
		var dir string
		if dir, err = t.queueDir(queues[i]); err == nil {
			err = do(dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w; check the spelling, or create it with Provision", core.ErrQueueNotFound, err)
	}
	if err != nil {
		return fmt.Errorf("filetransport: %s %q: %w", operation, queues, err)
	}
	return nil
}

func makeDir(dir string) error {
	return cmp.Or(os.MkdirAll(dir, 0o700), syncPath(filepath.Dir(dir)))
}

// syncPath returns when a file's content, or the names in a directory, would outlast a power failure.
func syncPath(path string) error {
	f, err := os.Open(path)
	return cmp.Or(err, f.Sync(), f.Close()) // without a file these calls fail too
}

// Close implements core.Transport (C14).
func (t *Transport) Close(ctx context.Context) error {
	t.life.Close(ctx, nil)
	return nil
}

// Send checks all messages (C10), then stores them one by one until one fails (C2).
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	caps := t.Capabilities()
	for i := range msgs {
		if err := transport.CheckOutgoing(&msgs[i], &caps); err != nil {
			return fmt.Errorf("filetransport: send: %w", transport.NoneSent(msgs, i, err))
		}
	}
	var err error
	var results []core.SendResult
	for _, out := range msgs {
		state := core.SendRefused
		if err == nil {
			err = t.each(ctx, "store in", []string{out.Queue}, func(dir string) (err error) { state, err = store(dir, out); return })
		}
		results = append(results, core.SendResult{ID: out.ID, To: out.Queue + out.Topic, State: state, Err: err})
	}
	if err != nil {
		return fmt.Errorf("filetransport: send: %w", &core.SendError{Results: results})
	}
	return nil
}

// store writes the headers as a line of JSON, GroupKey and Properties among them, and the body, into a file that is not
// yet a message, and renames it when it is on the disk: no receiver ever sees half of a message, even after a power
// failure.
func store(dir string, out core.Outgoing) (core.SendState, error) {
	m := message{time.Now().Add(out.Delay), 1, rand.Text(), "new"}
	unsent := filepath.Join(dir, "unsent-"+m.id)            // a kill may leave it behind, which does no harm
	headers, _ := json.Marshal(transport.PackHeaders(&out)) // cannot fail: all values are texts
	err := os.WriteFile(unsent, append(append(headers, '\n'), out.Body...), 0o600)
	if err == nil {
		err = syncPath(unsent)
	}
	if err == nil {
		err = os.Rename(unsent, filepath.Join(dir, m.name()))
	}
	if err != nil {
		_ = os.Remove(unsent)
		return core.SendRefused, err
	}
	if err := syncPath(dir); err != nil {
		return core.SendUnknown, err
	}
	return core.SendAccepted, nil
}

// receiver works through a list of its queue's messages. It makes a new list only when no message in the old one is
// due, not for each Receive. The list may be outdated: the claim shows whether a message still has the same state.
type receiver struct {
	transport   *Transport
	cfg         core.ReceiverConfig
	dir         string
	maxInFlight atomic.Int64
	mu          sync.Mutex // guards the other fields, and the messages of the deliveries
	closed      error
	held        map[*delivery]bool
	list        []message // due messages come first
	nextList    time.Time // no new list is made before this time
}

// OpenReceiver implements core.Transport.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	caps := t.Capabilities()
	if err := transport.CheckReceiver(&cfg, &caps); err != nil {
		return nil, fmt.Errorf("filetransport: open receiver of %q: %w", cfg.Queue, err)
	}
	r := &receiver{transport: t, cfg: cfg, held: map[*delivery]bool{}}
	r.maxInFlight.Store(int64(cfg.MaxInFlight))
	err := t.each(ctx, "open receiver of", []string{cfg.Queue}, func(dir string) error { r.dir = dir; return syncPath(dir) })
	if err != nil {
		return nil, err
	}
	if err := t.life.Add(r); err != nil {
		return nil, fmt.Errorf("filetransport: open receiver of %q: %w", cfg.Queue, err)
	}
	return r, nil
}

// Receive implements core.Receiver (C3). A file that cannot be read or claimed stays, and is tried again.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	for ctx.Err() == nil {
		if n, err := r.fetch(dst); n > 0 || err != nil {
			return n, err
		}
		_ = transport.Sleep(ctx, r.transport.life.Context(), r.transport.cfg.PollInterval, nil) // fetch notices a Close
	}
	return 0, ctx.Err()
}

func (r *receiver) fetch(dst []core.Delivery) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	maps.DeleteFunc(r.held, func(d *delivery, _ bool) bool { return !began.Before(d.message.at) }) // their locks are lost
	if r.closed == nil && !r.due() && !began.Before(r.nextList) {
		files, err := os.ReadDir(r.dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // other errors may be transient (C15)
			return 0, fmt.Errorf("filetransport: receive from %q: %w", r.cfg.Queue, err)
		}
		r.list = nil
		for _, file := range files {
			if m, ok := parseName(file.Name()); ok {
				r.list = append(r.list, m)
			}
		}
		r.nextList = time.Now().Add(10*time.Since(began) - r.transport.cfg.PollInterval) // spend at most a tenth of the time on lists
	}
	size, limit := 0, cmp.Or(r.cfg.MaxReceiveBytes, math.MaxInt)
	for ; r.closed == nil && n < len(dst) && size < limit && r.due(); r.list = r.list[1:] {
		if dst[n] = r.claim(r.list[0]); dst[n] != nil {
			size += len(dst[n].Incoming().Body)
			n++
		}
	}
	return n, r.closed
}

func (r *receiver) due() bool {
	return len(r.held) < int(r.maxInFlight.Load()) && len(r.list) > 0 && !r.list[0].at.After(time.Now())
}

// claim locks a message for this receiver, or returns nil. It reads the file first, so that a failure leaves nothing to
// undo.
func (r *receiver) claim(m message) core.Delivery {
	content, err := os.ReadFile(r.file(m))
	if err != nil {
		return nil
	}
	d := &delivery{receiver: r, message: claim(m, r.transport.cfg.LockDuration), in: decode(m, content)}
	d.in.DeliveryCount = d.message.count
	if os.Rename(r.file(m), r.file(d.message)) != nil {
		return nil // another receiver was faster
	}
	r.held[d] = true
	return d
}

// decode returns a message as it is delivered, but for its count.
func decode(m message, content []byte) core.Incoming {
	in := core.Incoming{NativeID: m.id, Redelivered: m.state != "new", EnqueuedAt: m.at}
	line, body, _ := bytes.Cut(content, []byte("\n"))
	in.Body, in.Malformed = body, json.Unmarshal(line, &in.Headers)
	if _, empty := in.Headers.Lookup(""); in.Malformed != nil || empty || !utf8.Valid(line) {
		in.Body, in.Headers, in.Malformed = content, core.Headers{}, cmp.Or(in.Malformed, core.ErrInvalidHeader) // C4
	}
	transport.UnpackHeaders(&in)
	in.ID = cmp.Or(in.ID, m.id)
	return in
}

func (r *receiver) file(m message) string { return filepath.Join(r.dir, m.name()) }

// SetMaxInFlight implements core.Receiver. The receiver prefetches no messages, so it has none to release.
func (r *receiver) SetMaxInFlight(n int) { r.maxInFlight.Store(int64(n)) }

// Close implements core.Receiver (C14). A message that cannot be released is redelivered when its lock expires.
func (r *receiver) Close(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = fmt.Errorf("filetransport: receiver of %q: %w, %w", r.cfg.Queue, core.ErrClosed, core.ErrLockLost)
	for d := range r.held {
		_ = os.Rename(r.file(d.message), r.file(release(d.message, 0)))
	}
	r.transport.life.Remove(r)
	return nil
}

// delivery is a message that is locked for a receiver.
type delivery struct {
	transport.UnsupportedDelivery
	in       core.Incoming
	receiver *receiver
	message  message // locked, until it is settled
}

func (d *delivery) Incoming() *core.Incoming                   { return &d.in }
func (d *delivery) Complete(ctx context.Context) error         { return d.change(ctx, complete) }
func (d *delivery) Abandon(ctx context.Context, _ error) error { return d.change(ctx, abandon) }
func (d *delivery) Release(ctx context.Context) error          { return d.change(ctx, release) }
func (d *delivery) Renew(ctx context.Context) error            { return d.change(ctx, renew) }
func (d *delivery) LockedUntil() time.Time {
	d.receiver.mu.Lock()
	defer d.receiver.mu.Unlock()
	return d.message.at
}

// change changes a locked message. A missing file of its name shows that the lock was lost (C6).
func (d *delivery) change(ctx context.Context, to func(message, time.Duration) message) error {
	r := d.receiver
	r.mu.Lock()
	next, err := to(d.message, r.transport.cfg.LockDuration), ctx.Err()
	switch {
	case !d.message.held():
		err = core.ErrSettled
	case err != nil: // the context has ended
	case r.closed != nil:
		err = r.closed
	case !time.Now().Before(d.message.at):
		err = core.ErrLockLost
	case next == message{}:
		err = os.Remove(r.file(d.message))
	default:
		err = os.Rename(r.file(d.message), r.file(next))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = core.ErrLockLost
	}
	if err == nil {
		d.message = next
	}
	if !d.message.held() {
		delete(r.held, d)
	}
	r.mu.Unlock()
	if err == nil {
		err = syncPath(r.dir) // so that the settlement survives a power failure
	}
	if err != nil {
		return fmt.Errorf("filetransport: settle or renew message %s: %w", d.in.ID, err)
	}
	return nil
}
