package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/messagekit"
)

// Config describes an [Inbox]. Only Store must be set.
type Config struct {
	// Store keeps the entries, in the database of the handlers.
	Store Store

	// Scope is the first part of the key of each entry. The default is the name of the
	// endpoint. It must not change while messages are in the endpoint's queue: set it to
	// the old name when an endpoint is renamed.
	Scope string

	// Key returns the text that identifies a message, such as a business key, for senders
	// that send one order under several ids, or without any. The default is the message id
	// that the sender gave the message; if there is none, the middleware refuses the
	// message with [ErrNoID]. An error fails the attempt.
	Key func(m *core.Message) (string, error)

	// Wait is how long a copy of a message waits in its handler while another copy of it
	// is being handled: 5 s by default; set more where handlers take longer. Then the copy
	// is deferred by the same time, which counts neither as a failure nor as a deferral
	// (core.Refuse). On a transport without delayed delivery it waits until the other copy
	// is done.
	Wait time.Duration

	// Retention is how long entries are kept after the message was first handled: 7 days
	// by default. Set more where delayed retries take longer (core.New refuses less than
	// their time) and where messages return from the error queue later: a copy that is
	// received after this time is handled again.
	Retention time.Duration

	// Duplicates is the action for a message that was handled before. By default it
	// succeeds; set [DuplicateFails] where operators should see it. With either action,
	// outgoing messages that may not have left are sent again.
	Duplicates DuplicateAction

	// Logger gets duplicates, at level Info, and failures to mark or remove entries. The
	// default is slog.Default().
	Logger *slog.Logger
}

// DuplicateAction is the action for a duplicate.
type DuplicateAction int

const (
	// DuplicateSucceeds consumes it like a message that was handled.
	DuplicateSucceeds DuplicateAction = iota
	// DuplicateFails fails it without a retry (core.GiveUp), with an error that
	// matches ErrDuplicate. Outer middleware may return another error.
	DuplicateFails
)

// ErrDuplicate is the failure of a message that was handled before, with DuplicateFails.
var ErrDuplicate = errors.New("the message was handled before")

// ErrNoID is the failure of a message whose sender gave it no id. It is refused
// (core.GiveUpTo with core.InvalidQueue): the id that the adapter generated may be the same as that of another
// message, or differ between copies of one message.
var ErrNoID = errors.New("the message has no id that its sender gave it")

// Defaults, and limits of ids and scopes.
const (
	defaultWait      = 5 * time.Second
	defaultRetention = 7 * 24 * time.Hour
	maxKeyBytes      = 255
)

// Inbox is the middleware and its background work. Several endpoints may use it.
type Inbox struct {
	config Config
	upkeep *upkeep
	told   sync.Map // keys: logged notices
}

// notice is a line that is logged once for each endpoint.
type notice struct{ text, endpoint string }

// tellOnce logs a notice unless it was logged before.
func (b *Inbox) tellOnce(level slog.Level, n notice) {
	if _, told := b.told.LoadOrStore(n, true); !told {
		b.config.Logger.Log(context.Background(), level, n.text, "endpoint", n.endpoint)
	}
}

// New makes an Inbox. [Inbox.Close] ends its background work.
func New(c Config) (*Inbox, error) {
	switch {
	case c.Store == nil:
		return nil, errors.New("inbox: Config.Store is nil; set one, postgres.New or &inbox.Memory{} for example")
	case c.Wait < 0:
		return nil, fmt.Errorf("inbox: Config.Wait is %v; use a time above 0, or leave it out", c.Wait)
	case c.Duplicates < DuplicateSucceeds || c.Duplicates > DuplicateFails:
		return nil, fmt.Errorf("inbox: Config.Duplicates is %d; use DuplicateSucceeds or DuplicateFails", c.Duplicates)
	case c.Retention < 0:
		return nil, fmt.Errorf("inbox: Config.Retention is %v; use a time above 0, or leave it out", c.Retention)
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Inbox{config: c, upkeep: newUpkeep(c)}, nil
}

// Close marks the entries whose messages have left, and waits until no entries are being
// removed, or ctx ends. Call it after the endpoints have ended. Without it, as after a
// crash, a few messages may be sent again if the message that caused them is redelivered.
func (b *Inbox) Close(ctx context.Context) error {
	if err := b.upkeep.close(ctx); err != nil {
		return fmt.Errorf("inbox: close: %w", err)
	}
	return nil
}

// Middleware returns the middleware for all handlers of an endpoint together
// (core.Config.Middleware): one transaction and one entry for each message. Put it inside
// middleware that retries, so that each try has a transaction, and inside a fallback:
// New refuses another order.
func (b *Inbox) Middleware() core.Middleware { return &middleware{Inbox: b} }

// Handler returns the middleware for one handler (core.HandleOptions.Middleware), with
// separate transactions and entries. Several handlers of a message type need different
// names. Like Config.Scope, the name is part of the key: it must not change while
// messages are in the queue.
func (b *Inbox) Handler(name string) core.Middleware {
	return &middleware{b, "/" + url.PathEscape(name)}
}

// middleware is an inbox for all handlers of an endpoint, or for one.
type middleware struct {
	*Inbox
	suffix string // of the scope: "" for all handlers together
}

// scope returns the first part of the keys of entries.
func (w *middleware) scope(endpoint string) string {
	return url.PathEscape(cmp.Or(w.config.Scope, endpoint)) + w.suffix
}

// Describe implements core.Middleware.
func (w *middleware) Describe(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	scope := w.scope(s.Endpoint)
	err := w.check(scope, s)
	if err == nil && s.Transactions == core.TransactionSendsAtomicWithReceive {
		w.tellOnce(slog.LevelInfo, notice{"the transport commits receive and sends as one: the inbox is needed only where the handlers' tables are in another database than the queues", s.Endpoint})
	}
	return []core.MiddlewareFacts{{Kind: "inbox", Name: scope, Exclusive: true, Check: checkInner}}, err
}

// checkInner refuses middleware in the transaction that may succeed although a handler has
// failed.
func checkInner(_, inner []core.MiddlewareFacts) error {
	for _, f := range inner {
		if f.Runs > 1 || f.HidesFailures {
			return fmt.Errorf("stands around %v, and its transaction would commit the work of failed handlers, too; list that before the inbox, both in Config.Middleware or both in HandleOptions.Middleware", f)
		}
	}
	return nil
}

// Wrap implements core.Middleware.
func (w *middleware) Wrap(s core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	g := &guard{Inbox: w.Inbox, next: next, endpoint: s.Endpoint, scope: w.scope(s.Endpoint), whole: w.suffix == "", wait: w.config.Wait, canDefer: true}
	if s.Endpoint != "" && !s.CanDefer() {
		g.wait, g.canDefer = 0, false
	}
	if err := w.checkScope(g.scope); err != nil { // outside of an endpoint
		return func(context.Context, *core.Message) error { return err }
	}
	return g.handle
}

// check returns an error if the inbox cannot work on the endpoint.
func (w *middleware) check(scope string, s core.MiddlewareScope) error {
	if err := w.checkScope(scope); err != nil {
		return err
	}
	switch {
	case s.Transactions == core.TransactionNone:
		return errors.New("inbox: in transaction mode None a message whose sends fail is not redelivered, so that they cannot be repeated; use ReceiveOnly")
	case s.RetrySpan == math.MaxInt64:
		w.config.Logger.Warn("delayed retries have no end: a message that is retried for longer than the inbox keeps its entry is handled again",
			"scope", scope, "retention", w.config.Retention)
	case w.config.Retention < s.RetrySpan:
		return fmt.Errorf("inbox: Config.Retention is %v, but delayed retries can keep a message for %v, after which it would be handled again; raise Retention, or lower Recoverability.Delayed", w.config.Retention, s.RetrySpan)
	}
	return nil
}

// checkScope returns an error if the names of the endpoint and the handler make no scope.
func (w *middleware) checkScope(scope string) error {
	switch {
	case w.suffix == "/":
		return errors.New("inbox: the name of a handler is empty; give it one, which must be another than those of the handlers of the same type")
	case strings.Trim(scope, "/") == "":
		return errors.New("inbox: there is no endpoint whose name could be the scope; set Config.Scope")
	case len(scope) > maxKeyBytes:
		return fmt.Errorf("inbox: the scope %q has %d bytes, at most %d are possible; set a shorter Config.Scope", scope, len(scope), maxKeyBytes)
	}
	return nil
}

// guard is the middleware around one handler function, next.
type guard struct {
	*Inbox
	next     core.HandlerFunc
	endpoint string
	scope    string
	whole    bool // it covers all handlers of the endpoint
	wait     time.Duration
	canDefer bool
}

// handle runs the handler in a transaction or, for a duplicate, sends its messages again.
func (g *guard) handle(ctx context.Context, m *core.Message) error {
	key, err := g.key(m)
	if err != nil {
		return err
	}
	tx, entry, err := g.begin(ctx, key)
	switch {
	case err != nil && g.canDefer && errors.Is(err, ErrInProgress):
		return core.Refuse(err, g.wait)
	case err != nil:
		return err
	case entry != nil:
		return g.repeat(ctx, m, key, entry)
	}
	return g.first(ctx, m, key, tx)
}

func (g *guard) begin(ctx context.Context, key Key) (Transaction, *Entry, error) {
	tx, entry, err := g.config.Store.Begin(ctx, key, g.wait)
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: begin the transaction for message %s in %s: %w", key.ID, key.Scope, err)
	}
	return tx, entry, nil
}

// key returns the key of a message's entry.
func (g *guard) key(m *core.Message) (Key, error) {
	id, sent := messagekit.SentID(m)
	if g.config.Key != nil {
		var err error
		if id, err = g.config.Key(m); err != nil {
			return Key{}, fmt.Errorf("inbox: Config.Key: %w", err)
		}
		sent = true
	}
	switch {
	case !sent:
		return Key{}, core.GiveUpTo(fmt.Errorf("inbox: %w: %s was generated when it was received; to fix: let the sender set one, or set Config.Key or core.Config.MessageID", ErrNoID, m.ID), core.InvalidQueue)
	case id == "":
		return Key{}, core.GiveUpTo(errors.New("inbox: Config.Key returned an empty key"), core.InvalidQueue)
	}
	return Key{Scope: g.scope, ID: storable(id)}, nil
}

// hashed is the prefix of ids that the middleware makes. An id of a sender that begins with
// it is hashed.
const hashed = "sha256:"

// storable returns an id that every store accepts: that of the message, or a hash.
func storable(id string) string {
	if len(id) <= maxKeyBytes && utf8.ValidString(id) && !strings.Contains(id, "\x00") && !strings.HasPrefix(id, hashed) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashed + hex.EncodeToString(sum[:])
}

// first runs the handler, for a message that was not handled before.
func (g *guard) first(ctx context.Context, m *core.Message, key Key, tx Transaction) error {
	ended := false
	defer func() { // if the handler panics or ends its goroutine
		if !ended {
			g.rollback(ctx, key, tx)
		}
	}()
	before := len(messagekit.Collected(m)) // sent by the handlers before this one
	if err := g.next(tx.Context(ctx), m); err != nil {
		ended = true
		g.rollback(ctx, key, tx)
		if v := core.VerdictOf(err); v != nil && v.Action.Kind == core.ActionDiscard {
			g.noteDiscarded(ctx, key)
		}
		return err
	}
	out := messagekit.Collected(m)[before:]
	outgoing, err := encode(out, time.Now())
	if err != nil {
		return fmt.Errorf("inbox: %w", err) // and the deferred function rolls back
	}
	ended = true
	if err := tx.Commit(ctx, outgoing); err != nil {
		return fmt.Errorf("inbox: commit the transaction of message %s in %s: %w", key.ID, key.Scope, err)
	}
	g.upkeep.clean()
	if len(out) == 0 {
		return nil
	}
	return messagekit.Commit(m, out, func() { g.upkeep.mark(key) })
}

// rollbackPatience limits a rollback, which must happen even after the context has ended.
const rollbackPatience = 10 * time.Second

// rollback rolls a transaction back. If that fails, the database does it when it notices
// the broken connection.
func (g *guard) rollback(ctx context.Context, key Key, tx Transaction) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	if err := tx.Rollback(bounded); err != nil {
		g.config.Logger.WarnContext(ctx, "the transaction of a message that failed could not be rolled back; the database does so when its connection is gone",
			"scope", key.Scope, "message_id", key.ID, "error", err)
	}
}

// noteDiscarded stores an entry for a message that its handler discarded, without the
// handler's writes.
func (g *guard) noteDiscarded(ctx context.Context, key Key) {
	tx, _, err := g.begin(ctx, key)
	if err == nil && tx != nil {
		err = tx.Commit(ctx, nil)
	}
	if err != nil {
		g.config.Logger.WarnContext(ctx, "a discarded message could not be noted; another copy of it would be handled", "scope", key.Scope, "message_id", key.ID, "error", err)
	}
}

// repeat sends again the messages that may not have left.
func (g *guard) repeat(ctx context.Context, m *core.Message, key Key, entry *Entry) error {
	out, err := decode(entry.Outgoing, time.Now())
	if err != nil {
		return fmt.Errorf("inbox: message %s in %s was handled, but %w", key.ID, key.Scope, err)
	}
	if len(out) > 0 {
		if err := messagekit.Resend(m, out...); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
	}
	if len(entry.Outgoing) > 0 {
		if err := messagekit.Commit(m, out, func() { g.upkeep.mark(key) }); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
	}
	if g.whole {
		messagekit.MarkDuplicate(m)
	}
	g.config.Logger.InfoContext(ctx, "message was handled before and is not handled again",
		"scope", key.Scope, "message_id", key.ID, "handled_at", entry.HandledAt, "messages_sent_again", len(out))
	if g.config.Duplicates == DuplicateFails {
		return core.GiveUp(fmt.Errorf("inbox: %w at %v", ErrDuplicate, entry.HandledAt))
	}
	return nil
}
