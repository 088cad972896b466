package broker

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/journal"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// A changeLog collects the changes of the operation in progress, whose records are a line of a file: a JSON list of records
// with the new state of everything that the operation has changed. The broker's mutex guards it.
type changeLog struct {
	file     *journal.Journal
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
	ID        uint64               `json:"id"`
	Gone      bool                 `json:"gone,omitempty"`
	Kind      Kind                 `json:"kind,omitempty"`
	Topic     uint64               `json:"topic,omitempty"`
	Name      string               `json:"name,omitempty"`
	Settings  *properties.Settings `json:"settings,omitempty"`
	Rules     []createdRule        `json:"rules,omitempty"`
	Automatic bool                 `json:"automatic,omitempty"`
	Created   clock.Instant        `json:"created,omitempty"`
	Updated   clock.Instant        `json:"updated,omitempty"`
}

// A createdRule is a rule with the time of its creation.
type createdRule struct {
	rules.Record
	Created clock.Instant `json:"created"`
}

// A numberRecord has the last sequence number of an entity.
type numberRecord struct {
	Entity   uint64 `json:"e"`
	Sequence int64  `json:"n"`
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
	Enqueued         clock.Instant `json:"t,omitempty"`
	EnqueuedSequence int64         `json:"o,omitempty"`
	TTL              time.Duration `json:"l,omitempty"`
	Expires          clock.Instant `json:"x,omitempty"`
	Lock             []byte        `json:"k,omitempty"`
	LockedUntil      clock.Instant `json:"u,omitempty"`
	DeadLetterSource string        `json:"ds,omitempty"`
}

// A sessionRecord has the state of a session.
type sessionRecord struct {
	Entity  uint64        `json:"e"`
	ID      string        `json:"id"`
	State   []byte        `json:"state"` // null if it was cleared
	Updated clock.Instant `json:"t"`
}

// A seenRecord is a message id in the history of an entity with duplicate detection.
type seenRecord struct {
	Entity uint64        `json:"e"`
	Key    string        `json:"k"`
	At     clock.Instant `json:"t"`
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

// collectLocked adds a line with all changes of the operation to the journal.
func (b *Broker) collectLocked() {
	if b.log == nil {
		return
	}
	if line := b.log.lineLocked(); line != nil {
		b.log.file.AppendLocked(line)
	}
}

// lineLocked returns a line with all changes so far, nil if there are none, and forgets them.
func (l *changeLog) lineLocked() []byte {
	if len(l.entities)+len(l.numbered)+len(l.messages)+len(l.sessions)+len(l.seen) == 0 {
		return nil
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
		m.content.Encoded = nil
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
	clear(l.messages)
	l.entities, l.numbered, l.messages, l.sessions, l.seen = nil, nil, l.messages[:0], nil, nil
	return line
}

// flush writes the lines of all operations so far. The broker is not locked.
func (b *Broker) flush() error {
	if b.log == nil {
		return nil
	}
	return b.log.file.Flush(&b.mu, b.presentLocked)
}

// presentLocked returns a line with the present state, nil if the broker is empty.
func (b *Broker) presentLocked() []byte {
	b.changeAllLocked()
	return b.log.lineLocked()
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
		e.history.Each(func(key string, at clock.Instant) { b.log.seen = append(b.log.seen, seenRecord{e.id, key, at}) })
	}
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
		r.Rules = append(r.Rules, createdRule{rules.NewRecord(&rule.Prepared.Rule), rule.created})
	}
	return r
}

func (m *message) record() *messageRecord {
	r := &messageRecord{Entity: m.store.entity.id, Subqueue: m.store.subqueue, Sequence: m.sequence, State: m.state}
	if m.state == gone {
		return r
	}
	if m.saved != m.content {
		r.Content = m.content.Encode()
		m.saved = m.content
	}
	r.WasDeferred, r.Count, r.Hops, r.Enqueued, r.EnqueuedSequence = m.wasDeferred, m.count, m.hops, m.enqueued, m.enqueuedSequence
	r.TTL, r.Expires, r.DeadLetterSource = m.ttl, m.expires, m.deadLetterSource
	if m.state == locked {
		r.Lock, r.LockedUntil = m.lock[:], m.lockedUntil
	}
	return r
}
