package sqlserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	corequeues "github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// maxPage is the most messages of a page: the server reads the sizes of as many, even if few fit.
const maxPage = 10_000

// Browse implements queues.Browser on PostgreSQL, with the right to select. The order is that of
// arrival. Messages that wait in the table of delayed messages, for a queue that NServiceBus
// created, follow those of the queue. Messages that arrive after the first page are not returned.
// Expired messages that are still in the table are. A page has at most 10,000 messages.
func (t *Transport) Browse(ctx context.Context, r corequeues.Request) (corequeues.Page, error) {
	page, err := t.browse(ctx, &r)
	if err != nil {
		return corequeues.Page{}, fmt.Errorf("sqlserver: browse %q: %w", r.Queue, t.server.Unavailable(ctx, err))
	}
	return page, nil
}

func (t *Transport) browse(ctx context.Context, r *corequeues.Request) (page corequeues.Page, err error) {
	if err := transport.PrepareBrowse(r); err != nil {
		return page, err
	}
	ctx, done := t.server.Bound(ctx)
	defer done()
	l, err := t.look(ctx, r.Queue, (*postgres.Store).Looking)
	if err != nil {
		return page, err
	}
	p := pager{lookAt: l, withBody: !r.WithoutBody, limit: int64(min(r.Limit, maxPage)), bytes: int64(r.MaxBytes)}
	if r.Keys != nil {
		p.limit = int64(len(r.Keys))
		err = p.readKeys(ctx, r.Keys)
	} else {
		err = p.readPage(ctx, r.After)
	}
	if err != nil {
		return page, l.explained(ctx, err)
	}
	return p.page, nil
}

// lookAt is a queue of which a tool looks at messages, or takes some.
type lookAt struct {
	t       *Transport
	q       *queues.Queue
	foreign bool
	stores  []*postgres.Store // its table and, perhaps, that of the messages which wait for it
	rights  func(*postgres.Store) []dialect.Right
}

// look examines a queue. Errors of its methods have missing rights among those of a store.
func (t *Transport) look(ctx context.Context, name string, rights func(*postgres.Store) []dialect.Right) (*lookAt, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if !t.onPostgres() {
		return nil, transport.Permanent(fmt.Errorf("%s: %w", t.dialect.Product(), errors.ErrUnsupported))
	}
	q, err := t.queues.Get(name)
	if err != nil {
		return nil, err
	}
	l := &lookAt{t: t, q: q, rights: rights, stores: []*postgres.Store{postgres.OwnStore(q.Table)}}
	if l.foreign, err = t.server.Examine(ctx, q); err != nil || !l.foreign {
		return l, l.explained(ctx, err)
	}
	l.stores[0] = postgres.ForeignStore(q.Table)
	has, err := t.server.Columns(ctx, t.delayed.Table) // none: there is no such table
	if len(has) > 0 {
		l.stores = append(l.stores, postgres.DelayedStore(t.delayed.Table, q.Table))
	}
	return l, l.explained(ctx, err)
}

// explained adds the rights that are missing to the error of a statement that was refused.
func (l *lookAt) explained(ctx context.Context, err error) error {
	if err != nil && l.t.server.Fault(err) == dialect.FaultRefused {
		var needed []dialect.Right
		for _, s := range l.stores {
			needed = append(needed, l.rights(s)...)
		}
		return l.t.server.Denied(ctx, err, needed)
	}
	return l.t.server.Explained(err)
}

// pager reads a page.
type pager struct {
	*lookAt
	limit, bytes int64 // that are left
	withBody     bool
	last         int64 // the seq of the last message
	page         corequeues.Page
}

// readPage reads the page that a cursor names.
func (p *pager) readPage(ctx context.Context, after string) error {
	at, err := parseCursor(p.q.Table.Address, after)
	if err == nil && after == "" {
		at, err = p.first(ctx)
	}
	for err == nil && at.store < len(p.stores) {
		if to := at.last[at.store]; to != nil && at.from <= *to {
			if p.limit <= 0 || p.bytes <= 0 {
				p.page.Next = at.text(p.q.Table.Address)
				return nil
			}
			var more bool
			if more, err = p.read(ctx, at.store, postgres.Part{From: at.from, To: *to}); more {
				at.from = p.last + 1
				p.page.Next = at.text(p.q.Table.Address)
				return nil
			}
		}
		at.store, at.from = at.store+1, math.MinInt64
	}
	return err
}

// first returns the cursor of the first page.
func (p *pager) first(ctx context.Context) (at cursor, err error) {
	at.from = math.MinInt64
	for i, s := range p.stores {
		read := s.Last()
		read.Row = func(scan sqlexec.Scanner) error { return scan(&at.last[i]) }
		if err := p.t.server.Read(ctx, read); err != nil {
			return at, err
		}
	}
	return at, nil
}

// readKeys reads the messages with these keys.
func (p *pager) readKeys(ctx context.Context, keys []string) error {
	wanted := make(map[string]bool, len(keys))
	seqs := make([][]int64, len(p.stores))
	for _, key := range keys {
		if store, seq, _, ok := parseKey(key); ok && store < len(seqs) {
			wanted[key] = true
			seqs[store] = append(seqs[store], seq)
		}
	}
	for i, list := range seqs {
		if len(list) == 0 {
			continue
		}
		full, before := p.bytes <= 0, len(p.page.Messages)
		p.bytes = max(p.bytes, 1)
		more, err := p.read(ctx, i, postgres.Part{Seqs: list})
		if err == nil && (more || full && len(p.page.Messages) > before) {
			err = transport.ErrTooManyKeys
		}
		if err != nil {
			return err
		}
	}
	found := p.page.Messages[:0]
	for i := range p.page.Messages {
		if m := &p.page.Messages[i]; wanted[m.Key] {
			found = append(found, *m)
		}
	}
	clear(p.page.Messages[len(found):])
	p.page.Messages = found
	return nil
}

// read adds a part of a store to the page. It reports whether the part has more messages than fit.
func (p *pager) read(ctx context.Context, store int, part postgres.Part) (more bool, err error) {
	part.Limit, part.MaxBytes, part.WithBody = p.limit, p.bytes, p.withBody
	before, limit, bytes := len(p.page.Messages), p.limit, p.bytes
	var row postgres.Seen
	columns := row.Columns()
	s := p.stores[store].Read(part)
	s.Row = func(scan sqlexec.Scanner) error {
		row.Body = nil // the last message's body is in use
		if err := scan(columns...); err != nil {
			return err
		}
		if len(p.page.Messages) > before && row.Seq <= p.last { // the statement is repeated
			p.page.Messages, p.limit, p.bytes = p.page.Messages[:before], limit, bytes
		}
		p.last, more = row.Seq, row.More
		p.limit--
		p.bytes -= int64(len(row.Headers) + len(row.Body) + len(row.LastError))
		p.page.Messages = append(p.page.Messages, p.message(store, &row))
		return nil
	}
	err = p.t.server.Read(ctx, s)
	return more && err == nil, err
}

// message returns a row as the next delivery would have it.
func (p *pager) message(store int, row *postgres.Seen) corequeues.Message {
	m := corequeues.Message{
		Key: keyOf(store, row.Seq, row.ID), State: corequeues.State(row.State), BodyBytes: row.BodyBytes,
	}
	if m.State == corequeues.Delayed {
		m.DueAt = row.Due
	}
	if store > 0 { // its id is made when it is forwarded
		row.ID = ""
	}
	m.Incoming = incoming(&row.Row)
	if !p.withBody {
		m.Body = nil
	}
	if p.foreign {
		p.t.forwarded(p.q, &m.Incoming)
	} else {
		m.EnqueuedAt = row.Due
	}
	if !p.t.caps.NativeDeliveryCount {
		m.DeliveryCount, m.LastError = 0, ""
	}
	m.Redelivered = m.DeliveryCount > 0 || postgres.Leases(row.Claims) > 0 || p.t.returned.Has(row.ID)
	return m
}

// cursor is a place in a queue, before the message from in a store. Messages after the last one, as
// it was when the look began, are not part of the look: so a message that is sent again, or
// moves from one store to the other, is not returned twice.
type cursor struct {
	store int
	from  int64
	last  [2]*int64 // by store; nil: it had no message
}

// text returns the cursor of a queue as [corequeues.Page] has it. Its sum is also that of the queue.
func (c *cursor) text(address string) string {
	parts := []string{strconv.Itoa(c.store), strconv.FormatInt(c.from, 10)}
	for _, last := range c.last {
		text := ""
		if last != nil {
			text = strconv.FormatInt(*last, 10)
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ".")
	sum := sha256.Sum256([]byte(text + " " + address))
	return text + "." + base64.RawURLEncoding.EncodeToString(sum[:9])
}

// parseCursor reads the text of a cursor, of the same queue.
func parseCursor(address, text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	refused := transport.Permanent(fmt.Errorf("Request.After %q is not the Next of a page of this queue", text))
	parts := strings.Split(text, ".")
	if len(parts) != 5 {
		return c, refused
	}
	var errs [2]error
	c.store, errs[0] = strconv.Atoi(parts[0])
	c.from, errs[1] = strconv.ParseInt(parts[1], 10, 64)
	err = errors.Join(errs[:]...)
	for i, part := range parts[2:4] {
		if part == "" {
			continue
		}
		last, failed := strconv.ParseInt(part, 10, 64)
		c.last[i], err = &last, errors.Join(err, failed)
	}
	if err != nil || c.store < 0 || c.store >= len(c.last) || c.text(address) != text {
		return c, refused
	}
	return c, nil
}

// waitingMark begins the keys of messages in the second store of a queue.
const waitingMark = "d"

// keyOf returns the key of a row.
func keyOf(store int, seq int64, id string) string {
	return strings.Repeat(waitingMark, store) + strconv.FormatInt(seq, 10) + "." + id
}

// parseKey reads a key. ok is false for a text that is no key.
func parseKey(key string) (store int, seq int64, id string, ok bool) {
	number, id, ok := strings.Cut(key, ".")
	if text, waits := strings.CutPrefix(number, waitingMark); waits {
		store, number = 1, text
	}
	seq, err := strconv.ParseInt(number, 10, 64)
	return store, seq, id, ok && err == nil && keyOf(store, seq, id) == key
}
