package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A journal is the file that makes a broker durable. Each line is an operation: a JSON
// list of records with the new state of everything that it has changed, written before
// the operation is answered, so that an operation is stored as a whole or not at all. It
// is not synced: the journal protects against the failure of processes, not of the
// machine.
//
// A file that has grown is replaced by one with only the present state.
type journal struct {
	path    string
	writing sync.Mutex // held while lines are written, and locked before the broker's mutex
	file    *os.File
	size    int    // of the file
	limit   int    // size at which the file is replaced
	failed  error  // of a write; nothing is written after it
	lines   []byte // unwritten lines; guarded by the broker's mutex
	spare   []byte

	// The changes of the operation in progress; guarded by the broker's mutex.
	entities []*entity
	numbered []*entity
	messages []*message
	sessions []*session
	seen     []seenRecord
}

// A record has exactly one of its fields.
type record struct {
	Entity  *entityRecord  `json:"e,omitempty"`
	Number  *numberRecord  `json:"n,omitempty"`
	Message *messageRecord `json:"m,omitempty"`
	Session *sessionRecord `json:"s,omitempty"`
	Seen    *seenRecord    `json:"d,omitempty"`
}

// An entityRecord is an entity without its messages.
type entityRecord struct {
	ID        uint64       `json:"id"`
	Gone      bool         `json:"gone,omitempty"`
	Kind      Kind         `json:"kind,omitempty"`
	Topic     uint64       `json:"topic,omitempty"`
	Name      string       `json:"name,omitempty"`
	Settings  *settings    `json:"settings,omitempty"`
	Rules     []ruleRecord `json:"rules,omitempty"`
	Automatic bool         `json:"automatic,omitempty"`
	Created   instant      `json:"created,omitempty"`
	Updated   instant      `json:"updated,omitempty"`
}

// A numberRecord has the last sequence number of an entity.
type numberRecord struct {
	Entity   uint64 `json:"e"`
	Sequence int64  `json:"n"`
}

// A ruleRecord is a rule. Properties and parameters are stored as the application
// properties of an encoded message, which keeps their types.
type ruleRecord struct {
	Name        string             `json:"name"`
	Created     instant            `json:"created"`
	Filter      string             `json:"filter"`
	Expression  string             `json:"expression,omitempty"`
	Correlation *CorrelationFilter `json:"correlation,omitempty"`
	Values      []byte             `json:"values,omitempty"`
	Action      *string            `json:"action,omitempty"`
	ActionWith  []byte             `json:"actionwith,omitempty"`
}

// A messageRecord is a message. Content is set in the first record of a message and after
// a change of it.
type messageRecord struct {
	Entity           uint64        `json:"e"`
	Subqueue         Subqueue      `json:"q,omitempty"`
	Sequence         int64         `json:"n"`
	State            messageState  `json:"s,omitempty"` // gone if it was removed
	Content          []byte        `json:"b,omitempty"`
	WasDeferred      bool          `json:"d,omitempty"`
	Count            uint32        `json:"c,omitempty"`
	Hops             uint8         `json:"h,omitempty"`
	Enqueued         instant       `json:"t,omitempty"`
	EnqueuedSequence int64         `json:"o,omitempty"`
	TTL              time.Duration `json:"l,omitempty"`
	Expires          instant       `json:"x,omitempty"`
	Lock             []byte        `json:"k,omitempty"`
	LockedUntil      instant       `json:"u,omitempty"`
	DeadLetterSource string        `json:"ds,omitempty"`
}

// A sessionRecord has the state of a session.
type sessionRecord struct {
	Entity  uint64  `json:"e"`
	ID      string  `json:"id"`
	State   []byte  `json:"state"` // null if it was cleared
	Updated instant `json:"t"`
}

// A seenRecord is a message id in the history of an entity with duplicate detection.
type seenRecord struct {
	Entity uint64  `json:"e"`
	Key    string  `json:"k"`
	At     instant `json:"t"`
}

// changeLocked records that an entity was created, changed or deleted.
func (e *entity) changeLocked() {
	if l := e.broker.log; l != nil && !e.changed {
		e.changed = true
		l.entities = append(l.entities, e)
	}
}

// nextSequenceLocked assigns a sequence number of an entity.
func (e *entity) nextSequenceLocked() int64 {
	e.sequence++
	e.numberLocked()
	return e.sequence
}

// numberLocked records that an entity has a new sequence number.
func (e *entity) numberLocked() {
	if l := e.broker.log; l != nil && !e.numbered {
		e.numbered = true
		l.numbered = append(l.numbered, e)
	}
}

// changeLocked records that a message was created, changed or removed.
func (b *Broker) changeLocked(m *message) {
	if b.log != nil && !m.changed {
		m.changed = true
		b.log.messages = append(b.log.messages, m)
	}
}

// changeSessionLocked records that the state of a session was set or cleared.
func (b *Broker) changeSessionLocked(n *session) {
	if b.log != nil && !n.changed {
		n.changed = true
		b.log.sessions = append(b.log.sessions, n)
	}
}

// rememberedLocked records a message id in the history of an entity.
func (b *Broker) rememberedLocked(e *entity, key string) {
	if b.log != nil {
		b.log.seen = append(b.log.seen, seenRecord{e.id, key, b.now})
	}
}

// collectLocked makes a line of all changes of the operation.
func (b *Broker) collectLocked() {
	l := b.log
	if l == nil || len(l.entities)+len(l.numbered)+len(l.messages)+len(l.sessions)+len(l.seen) == 0 {
		return
	}
	var records []record
	for _, e := range l.entities {
		e.changed = false
		records = append(records, record{Entity: e.record()})
	}
	for _, e := range l.numbered {
		e.numbered = false
		records = append(records, record{Number: &numberRecord{e.id, e.sequence}})
	}
	for _, m := range l.messages {
		m.changed = false
		if m.state != gone || m.saved != nil {
			records = append(records, record{Message: m.record()})
		}
	}
	for _, m := range l.messages {
		m.content.encoded = nil
	}
	for _, n := range l.sessions {
		n.changed = false
		records = append(records, record{Session: &sessionRecord{n.store.entity.id, n.id, n.state, n.stateUpdated}})
	}
	for i := range l.seen {
		records = append(records, record{Seen: &l.seen[i]})
	}
	line, err := json.Marshal(records)
	if err != nil {
		panic(fmt.Sprintf("broker: journal: %v", err)) // it has only strings, bytes and numbers
	}
	l.lines = append(append(l.lines, line...), '\n')
	clear(l.messages)
	l.entities, l.numbered, l.messages, l.sessions, l.seen = nil, nil, l.messages[:0], nil, nil
}

// flush writes the lines of all operations so far. The broker is not locked.
func (b *Broker) flush() error {
	l := b.log
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	b.mu.Lock()
	lines := l.lines
	l.lines = l.spare[:0]
	b.mu.Unlock()
	l.spare = lines
	if l.failed != nil || len(lines) == 0 {
		return l.failed
	}
	if l.size+len(lines) > l.limit {
		l.failed = b.rewrite() // with the changes of these lines
		return l.failed
	}
	n, err := l.file.Write(lines)
	l.size += n
	if err != nil {
		l.failed = fmt.Errorf("broker: write the journal %s: %w", l.path, err)
	}
	return l.failed
}

// minRewrite is the size below which a journal is not replaced.
const minRewrite = 64 << 20

// rewrite writes the present state to a new file, which replaces the journal when it is
// complete. The journal is locked for writing.
func (b *Broker) rewrite() error {
	l := b.log
	b.mu.Lock()
	l.lines = nil
	b.changeAllLocked()
	b.collectLocked()
	lines := l.lines
	l.lines = nil
	b.mu.Unlock()

	fresh := l.path + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("broker: create a journal: %w", err)
	}
	if _, err := file.Write(lines); err != nil {
		return errors.Join(fmt.Errorf("broker: write the journal %s: %w", fresh, err), file.Close())
	}
	if err := os.Rename(fresh, l.path); err != nil {
		return errors.Join(fmt.Errorf("broker: replace the journal %s: %w", l.path, err), file.Close())
	}
	old := l.file
	l.file, l.size, l.limit = file, len(lines), max(minRewrite, 4*len(lines))
	if old == nil {
		return nil
	}
	return old.Close()
}

// changeAllLocked records everything as if it were new.
func (b *Broker) changeAllLocked() {
	for _, e := range b.allEntitiesLocked() {
		e.changeLocked()
		e.numberLocked()
		for _, s := range e.stores() {
			s.messages.each(0, func(m *message) bool {
				m.saved = nil
				b.changeLocked(m)
				return true
			})
			for _, n := range s.sessions {
				if n.state != nil {
					b.changeSessionLocked(n)
				}
			}
		}
		for _, seen := range e.history.order {
			b.log.seen = append(b.log.seen, seenRecord{e.id, seen.key, seen.at})
		}
	}
}

func (l *journal) close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.file.Close()
}

func (e *entity) record() *entityRecord {
	if e.deleted {
		return &entityRecord{ID: e.id, Gone: true}
	}
	r := &entityRecord{
		ID: e.id, Kind: e.kind, Name: e.name, Settings: &e.settings, Automatic: e.automatic, Created: e.created, Updated: e.updated,
	}
	if e.topic != nil {
		r.Topic = e.topic.id
	}
	for _, rule := range e.rules {
		r.Rules = append(r.Rules, rule.record())
	}
	return r
}

func (m *message) record() *messageRecord {
	r := &messageRecord{Entity: m.store.entity.id, Subqueue: m.store.subqueue, Sequence: m.sequence, State: m.state}
	if m.state == gone {
		return r
	}
	if m.saved != m.content {
		r.Content = m.content.encode()
		m.saved = m.content
	}
	r.WasDeferred, r.Count, r.Hops, r.Enqueued, r.EnqueuedSequence = m.wasDeferred, m.count, m.hops, m.enqueued, m.enqueuedSequence
	r.TTL, r.Expires, r.DeadLetterSource = m.ttl, m.expires, m.deadLetterSource
	if m.state == locked {
		r.Lock, r.LockedUntil = m.lock[:], m.lockedUntil
	}
	return r
}

// encode returns the message as the sender wrote it, or with the changes made since.
func (c *content) encode() []byte {
	if c.encoded != nil {
		return c.encoded
	}
	encoded, err := c.amqp.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("broker: journal: encode a message that was decoded before: %v", err))
	}
	return encoded
}
