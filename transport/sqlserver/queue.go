package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// queue is what is known of one queue.
type queue struct {
	*queueTexts
	channel string // of the notifications about it

	mu    sync.Mutex
	maker maker
}

// maker is who made a table.
type maker int

const (
	unknownMaker maker = iota
	reprise
	nserviceBus
)

func (q *queue) known() maker {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.maker
}

func (q *queue) learn(m maker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.maker = m
}

// queues remembers queues by the names and addresses used for them.
type queues struct {
	t  *Transport
	mu sync.RWMutex
	by map[string]*queue
}

// manyQueues is how many are remembered. Addresses to reply to come from outside, so
// there must be a limit; past it, all are learned again.
const manyQueues = 10_000

func (all *queues) get(name string) (*queue, error) {
	all.mu.RLock()
	q := all.by[name]
	all.mu.RUnlock()
	if q != nil {
		return q, nil
	}
	t, err := all.t.dialect.table(name, all.t.in)
	if err != nil {
		return nil, transport.Permanent(err)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.by) >= manyQueues {
		all.by = nil
	}
	if all.by == nil {
		all.by = map[string]*queue{}
	}
	q = all.by[t.address] // one for all of its names
	if q == nil {
		q = &queue{queueTexts: all.t.dialect.queue(t), channel: channelOf(t.address)}
		all.by[t.address] = q
	}
	all.by[name] = q
	return q, nil
}

// examine looks at a queue's table: whether it exists, who made it, and whether it
// has all columns.
func (t *Transport) examine(ctx context.Context, q *queue) (foreign bool, err error) {
	foreign, _, err = t.look(ctx, q)
	return foreign, err
}

// verify is examine, and compares the columns' types too.
func (t *Transport) verify(ctx context.Context, q *queue) error {
	foreign, has, err := t.look(ctx, q)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range t.dialect.wanted(q.table, foreign) {
		if kind := has[c.name]; !slices.Contains(strings.Split(c.kind, " or "), kind) {
			errs = append(errs, fmt.Errorf("in the table %s the column %s is of the type %s, but must be %s", q.table.quoted, c.name, kind, c.kind))
		}
	}
	return found(errs)
}

func (t *Transport) look(ctx context.Context, q *queue) (foreign bool, has map[string]string, err error) {
	has, err = t.columns(ctx, q.table)
	if err != nil {
		return false, nil, err
	}
	if len(has) == 0 {
		return false, nil, transport.Permanent(fmt.Errorf("%w: there is no table %s%s; create it with Transport.Provision, or as DDL says", core.ErrQueueNotFound, q.table.quoted, t.dialect.unless()))
	}
	foreign, err = t.maker(q.table, has)
	if err != nil {
		return foreign, has, err
	}
	made := reprise
	if foreign {
		made = nserviceBus
	}
	q.learn(made)
	return foreign, has, nil
}

// columns returns those of a table by their names, or none if it does not exist. It looks
// in the caller's transaction, if there is one: to wait for another connection while one
// is held could be to wait for oneself.
func (t *Transport) columns(ctx context.Context, of table) (map[string]string, error) {
	has := map[string]string{}
	s := t.dialect.columns(of)
	s.row = func(scan scanner) error {
		var c column
		err := scan(&c.name, &c.kind)
		has[c.name] = c.kind
		return err
	}
	if tx := callersTransaction(ctx); tx != nil {
		return has, t.runIn(ctx, tx, s)
	}
	return has, t.read(ctx, s)
}

// read runs a statement that changes nothing, again where it met a connection that
// had died idle.
func (t *Transport) read(ctx context.Context, s *statement) error {
	for attempt := 1; ; attempt++ {
		err := t.db.exec(ctx, s)
		if err == nil || t.fault(err) != faultOutage || ctx.Err() != nil || attempt == staleConnections {
			return err
		}
		if attempt > 1 {
			t.db.reset() // the others have died too, it seems
		}
	}
}

// maker tells the two kinds of tables apart, and reports columns that are missing.
func (t *Transport) maker(of table, has map[string]string) (foreign bool, err error) {
	known := map[string]bool{}
	for _, c := range t.dialect.wanted(of, true) {
		known[c.name] = true
	}
	foreign = true
	for _, c := range t.dialect.wanted(of, false) {
		if _, ok := has[c.name]; ok && !known[c.name] {
			foreign = false // it has a column that NServiceBus does not know
		}
	}
	var errs []error
	for _, c := range t.dialect.wanted(of, foreign) {
		if _, ok := has[c.name]; !ok {
			errs = append(errs, fmt.Errorf("the table %s has no column %s (%s): it is no queue, or was made by another version; see DDL", of.quoted, c.name, c.kind))
		}
	}
	return foreign, found(errs)
}

// found joins what was found out about tables.
func found(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return transport.Permanent(errors.Join(errs...))
}
