package broker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/journal"
)

const journalName = "servicebus.journal"

// open restores the state of the journal in the directory of a new broker that is not in
// use yet, and begins a new journal with that state alone.
func (b *Broker) open() error {
	path := filepath.Join(b.cfg.Dir, journalName)
	r := &replay{
		entities: map[uint64]*entityRecord{}, numbers: map[uint64]int64{}, messages: map[messageKey]*messageRecord{},
		sessions: map[sessionKey]*sessionRecord{},
	}
	if err := journal.Read(path, r.applyLine); err != nil {
		return fmt.Errorf("read the journal %s: %w; to fix: remove the file, and with it all entities and messages", path, err)
	}
	if err := r.restore(b); err != nil {
		return fmt.Errorf("restore the journal %s: %w; to fix: remove the file, and with it all entities and messages", path, err)
	}
	b.log = &changeLog{file: journal.New(path)}
	return b.log.file.Rewrite(&b.mu, b.presentLocked)
}

type messageKey struct {
	entity   uint64
	subqueue Subqueue
	sequence int64
}

type sessionKey struct {
	entity uint64
	id     string
}

// A replay has the last record of each object.
type replay struct {
	entities map[uint64]*entityRecord
	numbers  map[uint64]int64
	messages map[messageKey]*messageRecord
	sessions map[sessionKey]*sessionRecord
	seen     []*seenRecord
	byID     map[uint64]*entity
}

// applyLine applies the records of an operation.
func (r *replay) applyLine(line []byte) error {
	var records []record
	if err := json.Unmarshal(line, &records); err != nil {
		return err
	}
	for i := range records {
		r.apply(&records[i])
	}
	return nil
}

func (r *replay) apply(rec *record) {
	switch {
	case rec.Entity != nil:
		r.entities[rec.Entity.ID] = rec.Entity
	case rec.Number != nil:
		r.numbers[rec.Number.Entity] = rec.Number.Sequence
	case rec.Message != nil:
		m := rec.Message
		key := messageKey{m.Entity, m.Subqueue, m.Sequence}
		if m.State == gone {
			delete(r.messages, key)
			return
		}
		if old := r.messages[key]; old != nil && m.Content == nil {
			m.Content = old.Content
		}
		r.messages[key] = m
	case rec.Session != nil:
		r.sessions[sessionKey{rec.Session.Entity, rec.Session.ID}] = rec.Session
	case rec.Seen != nil:
		r.seen = append(r.seen, rec.Seen)
	}
}

// restore puts the entities and messages into an empty broker.
func (r *replay) restore(b *Broker) error {
	r.byID = map[uint64]*entity{}
	// A topic has a lower id than its subscriptions.
	for _, id := range slices.Sorted(maps.Keys(r.entities)) {
		b.lastEntity = max(b.lastEntity, id)
		if rec := r.entities[id]; !rec.Gone {
			if err := r.entity(b, rec); err != nil {
				return err
			}
		}
	}
	for id, sequence := range r.numbers {
		if e := r.byID[id]; e != nil {
			e.sequence = sequence
		}
	}
	messages := slices.SortedFunc(maps.Values(r.messages), func(x, y *messageRecord) int {
		return cmp.Or(cmp.Compare(x.Entity, y.Entity), cmp.Compare(x.Subqueue, y.Subqueue), cmp.Compare(x.Sequence, y.Sequence))
	})
	for _, rec := range messages {
		if e := r.byID[rec.Entity]; e != nil {
			if err := r.message(e, rec); err != nil {
				return err
			}
		}
	}
	for _, rec := range r.sessions {
		if e := r.byID[rec.Entity]; e != nil && rec.State != nil && e.main.sessions != nil {
			n := e.main.sessionLocked(rec.ID)
			n.state, n.stateUpdated = rec.State, rec.Updated
		}
	}
	for _, rec := range r.seen {
		if e := r.byID[rec.Entity]; e != nil && rec.At.Add(e.settings.DuplicateDetectionWindow) > b.now {
			e.history.Add(rec.Key, rec.At)
		}
	}
	return nil
}

func (r *replay) entity(b *Broker, rec *entityRecord) error {
	topic := r.byID[rec.Topic]
	if rec.Kind == KindSubscription && topic == nil {
		return nil // it was deleted with its topic
	}
	if rec.Settings == nil {
		return fmt.Errorf("the entity '%s' has no properties", rec.Name)
	}
	e := b.newEntity(rec.Kind, topic, rec.Name, *rec.Settings)
	e.id, e.automatic, e.created, e.updated = rec.ID, rec.Automatic, rec.Created, rec.Updated
	for _, rule := range rec.Rules {
		restored, err := rule.restore()
		if err != nil {
			return fmt.Errorf("rule '%s' of '%s': %w", rule.Name, e.path, err)
		}
		e.rules = append(e.rules, restored)
	}
	r.byID[e.id] = e
	b.addLocked(e)
	return nil
}

// message puts a message into its store. The lock of a message is kept, so that it can be
// settled after the restart; the lock of a session ends, as when its receiver closes.
func (r *replay) message(e *entity, rec *messageRecord) error {
	decoded, err := amqp10.DecodeMessage(rec.Content)
	if err != nil {
		return fmt.Errorf("decode message %d of '%s': %w", rec.Sequence, e.path, err)
	}
	c := content.New(decoded, len(rec.Content))
	s := e.main
	switch {
	case rec.Subqueue == SubqueueDeadLetter && e.dead != nil:
		s = e.dead
	case rec.Subqueue == SubqueueTransferDeadLetter && e.transfer != nil:
		s = e.transfer
	}
	m := &message{
		sequence: rec.Sequence, enqueuedSequence: rec.EnqueuedSequence, content: c, wasDeferred: rec.WasDeferred, count: rec.Count,
		hops: rec.Hops, enqueued: rec.Enqueued, ttl: rec.TTL, expires: rec.Expires, deadLetterSource: rec.DeadLetterSource,
	}
	state := rec.State
	if state == locked && s.sessions != nil {
		state = available
		if m.wasDeferred {
			state = deferred
		}
	}
	if state == locked {
		copy(m.lock[:], rec.Lock)
		m.lockedUntil = rec.LockedUntil
	}
	s.insertLocked(m, state)
	return nil
}

func (rec *createdRule) restore() (*rule, error) {
	r, err := rec.Rule()
	if err != nil {
		return nil, err
	}
	return newRule(r, rec.Created)
}
