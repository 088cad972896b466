package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corequeues "github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Take implements queues.Taker on PostgreSQL, with the rights of a receiver on the queue and those of
// a send to the queues of the replacements. One statement removes up to a thousand messages
// and adds their replacements. If the server refuses it, smaller ones find the messages at fault.
// A leased row is locked, and so is one that another transaction has locked or removed.
func (t *Transport) Take(ctx context.Context, queue string, takes []corequeues.Take) ([]corequeues.TakeResult, error) {
	results, err := t.take(ctx, queue, takes)
	if err != nil {
		err = fmt.Errorf("sqlserver: take from %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return results, err
}

func (t *Transport) take(ctx context.Context, queue string, takes []corequeues.Take) ([]corequeues.TakeResult, error) {
	bounded, done := t.server.Bound(ctx)
	defer done()
	l, err := t.look(bounded, queue, (*postgres.Store).Taking)
	if err != nil {
		return nil, err
	}
	k := taker{lookAt: l, results: make([]corequeues.TakeResult, len(takes))}
	var group takeGroup
	for i := range takes {
		store, seq, id, ok := parseKey(takes[i].Key)
		if native := takes[i].NativeID; !ok || store >= len(l.stores) || native != "" && (native != id || store > 0) {
			k.results[i].State = corequeues.TakeGone
			continue
		}
		m, err := t.plan(ctx, takes[i].Out)
		switch {
		case err != nil && t.server.Transient(err), ctx.Err() != nil:
			return k.results, errors.Join(err, ctx.Err())
		case err != nil:
			k.results[i] = corequeues.TakeResult{State: corequeues.TakeRefused, Err: err}
			continue
		}
		next := &takenMessage{result: &k.results[i], seq: seq, id: id, sends: m}
		if !group.add(store, next) {
			if err := k.takeAll(ctx, &group); err != nil {
				return k.results, err
			}
			group = takeGroup{}
			group.add(store, next)
		}
	}
	return k.results, k.takeAll(ctx, &group)
}

// taker takes messages of a queue.
type taker struct {
	*lookAt
	results []corequeues.TakeResult
	allowed bool // the role has the rights on the queue, as far as is known
}

// takenMessage is a message to be taken.
type takenMessage struct {
	result *corequeues.TakeResult
	seq    int64
	id     string
	sends  *sendPlan // its replacements
}

// takeGroup are messages of one store that one statement takes. No two have the same seq.
type takeGroup struct {
	store       int
	messages    []*takenMessage
	seqs        map[int64]bool
	rows, bytes int
}

// add adds a message. It returns false if the message belongs into another statement.
func (g *takeGroup) add(store int, m *takenMessage) bool {
	rows, bytes := m.sends.Size()
	if n := len(g.messages); n > 0 && (store != g.store || g.seqs[m.seq] || n == dialect.RowsAtOnce ||
		g.rows+rows > dialect.RowsAtOnce || g.bytes+bytes > dialect.BytesAtOnce) {
		return false
	}
	if g.seqs == nil {
		g.seqs = map[int64]bool{}
	}
	g.store, g.rows, g.bytes = store, g.rows+rows, g.bytes+bytes
	g.messages, g.seqs[m.seq] = append(g.messages, m), true
	return true
}

// takeAll takes the messages of a group, and sets their results. With an error, those without a
// result are unknown.
func (k *taker) takeAll(ctx context.Context, g *takeGroup) error {
	if len(g.messages) == 0 {
		return nil
	}
	ctx, done := k.t.server.Bound(ctx)
	defer done()
	return k.try(ctx, k.stores[g.store], g.messages)
}

// try takes messages with one statement or, if the server refuses it, with several.
func (k *taker) try(ctx context.Context, s *postgres.Store, messages []*takenMessage) error {
	err := k.exec(ctx, s, messages)
	if err == nil {
		k.taken(ctx, messages)
		return nil
	}
	f := k.t.server.Fault(err)
	if f.Transient() || ctx.Err() != nil {
		return err
	}
	for _, m := range messages {
		m.sends.forgetTables()
	}
	isAboutTables := f == dialect.FaultRefused || f == dialect.FaultNoTable
	if f == dialect.FaultRefused && !k.allowed {
		missing, failed := k.t.server.Missing(ctx, k.rights(s))
		if failed != nil || len(missing) > 0 {
			return errors.Join(append([]error{err, failed}, missing...)...)
		}
		k.allowed = true
	}
	if parts := byDestinations(messages); len(parts) > 1 {
		return k.tryEach(ctx, s, parts)
	}
	if len(messages) > 1 && !(isAboutTables && len(messages[0].sends.batches) == 1) {
		half := len(messages) / 2
		return k.tryEach(ctx, s, [][]*takenMessage{messages[:half], messages[half:]})
	}
	if m := messages[0]; len(messages) == 1 {
		switch less, refusal := m.sends.withoutRefusing(ctx, err, k.t.tryAlone(ctx)); {
		case refusal != nil:
			err = refusal
		case less != nil:
			m.sends = less
			return k.try(ctx, s, messages)
		}
	}
	for _, m := range messages {
		*m.result = corequeues.TakeResult{State: corequeues.TakeRefused, Err: k.t.refusal(err)}
	}
	return nil
}

func (k *taker) tryEach(ctx context.Context, s *postgres.Store, parts [][]*takenMessage) error {
	for _, part := range parts {
		if err := k.try(ctx, s, part); err != nil {
			return err
		}
	}
	return nil
}

// byDestinations splits messages into those whose replacements are for the same tables.
func byDestinations(messages []*takenMessage) (parts [][]*takenMessage) {
	at := map[string]int{}
	for _, m := range messages {
		var tables strings.Builder
		for _, b := range m.sends.batches {
			fmt.Fprintf(&tables, "%s %t ", b.to.Table.Address, b.waits)
		}
		i, ok := at[tables.String()]
		if !ok {
			i = len(parts)
			at[tables.String()], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], m)
	}
	return parts
}

// exec removes messages and adds their replacements, in one statement unless the replacements are too
// large for that. It sets the results if there is no error.
func (k *taker) exec(ctx context.Context, s *postgres.Store, messages []*takenMessage) error {
	if err := k.t.server.TakeTurn(ctx); err != nil {
		return err
	}
	defer k.t.server.EndTurn()
	seqs, ids, sends, bytes := make([]int64, len(messages)), make([]string, len(messages)), []postgres.Sent(nil), 0
	for i, m := range messages {
		seqs[i], ids[i] = m.seq, m.id
		sends = m.sends.appendTo(sends, m.seq)
		_, size := m.sends.Size()
		bytes += size
	}
	var later []*sqlexec.Statement
	if bytes > dialect.BytesAtOnce { // of one message
		sends, later = nil, messages[0].sends.statements()
	}
	var states map[int64]corequeues.TakeState // of the messages that are there
	for {
		states = make(map[int64]corequeues.TakeState, len(messages))
		statement := s.Take(seqs, ids, k.t.delayed.DelayedTexts, sends)
		statement.Row = func(scan sqlexec.Scanner) error {
			var seq int64
			var removed bool
			err := scan(&seq, &removed)
			states[seq] = corequeues.TakeLocked
			if removed {
				states[seq] = corequeues.TakeDone
			}
			return err
		}
		err := k.execWith(ctx, statement, later, func() bool { return states[seqs[0]] == corequeues.TakeDone })
		if err != nil && k.t.server.Fault(err) == dialect.FaultConflict && transport.Sleep(ctx, k.t.life.Context(), dialect.ConflictPause, nil) == nil {
			continue
		}
		if err != nil {
			k.t.server.GaveUp(err)
			return err
		}
		break
	}
	for _, m := range messages {
		m.result.State = corequeues.TakeGone
		if state, ok := states[m.seq]; ok {
			m.result.State = state
		}
	}
	return nil
}

// execWith executes the statement, and others in the same transaction if removed then returns true.
func (k *taker) execWith(ctx context.Context, statement *sqlexec.Statement, later []*sqlexec.Statement, removed func() bool) error {
	if len(later) == 0 {
		return k.t.db.Exec(ctx, statement)
	}
	tx, err := k.t.db.Begin(ctx, statement)
	if err != nil {
		return err
	}
	if removed() {
		err = tx.Commit(ctx, later...)
	}
	if err != nil || !removed() {
		tx.Rollback(ctx)
	}
	return err
}

// taken wakes the receivers of replacements, and reports events without a subscriber.
func (k *taker) taken(ctx context.Context, messages []*takenMessage) {
	var all sendPlan
	all.transport = k.t
	for _, m := range messages {
		if m.result.State != corequeues.TakeDone {
			continue
		}
		for _, q := range m.sends.destinations {
			all.markAvailable(q)
		}
		if due := m.sends.due; !due.IsZero() && (all.due.IsZero() || due.Before(all.due)) {
			all.due = due
		}
		m.sends.report(ctx)
	}
	all.wakeReceivers()
}
