// Package queues has the queues of a transport: the statements on their tables, by names and
// addresses.
package queues

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// ChannelOf returns the name of a queue's channel, whose length is limited like that of
// all names.
func ChannelOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return "reprise_" + hex.EncodeToString(sum[:12])
}

// Queue has the statements and the maker of one queue's table.
type Queue struct {
	*dialect.QueueTexts
	Channel string // for its notifications

	mu    sync.Mutex
	maker Kind
}

// Kind is the product that created a table.
type Kind int

const (
	UnknownKind Kind = iota
	Reprise
	NServiceBus
)

// Kind returns the maker of the table, as far as is known.
func (q *Queue) Kind() Kind {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.maker
}

// SetKind records the maker of the table.
func (q *Queue) SetKind(m Kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.maker = m
}

// AppendMissing appends the queues that are not in the list. It compares addresses: after the
// cache was emptied, one queue has two values.
func AppendMissing(list []*Queue, more ...*Queue) []*Queue {
	for _, q := range more {
		if !slices.ContainsFunc(list, func(other *Queue) bool { return other.Table.Address == q.Table.Address }) {
			list = append(list, q)
		}
	}
	return list
}

// Cache caches queues by the names and addresses used for them.
type Cache struct {
	dialect dialect.Dialect
	in      dialect.Location // of names without a location

	mu sync.RWMutex
	by map[string]*Queue
}

// NewCache returns an empty cache.
func NewCache(d dialect.Dialect, in dialect.Location) *Cache {
	return &Cache{dialect: d, in: in, by: map[string]*Queue{}}
}

// limit is the size of the cache. Reply addresses come from outside, so there must be a
// limit; when it is reached, the cache is emptied.
const limit = 10_000

// Get returns the queue of a name or an address.
func (all *Cache) Get(name string) (*Queue, error) {
	all.mu.RLock()
	q := all.by[name]
	all.mu.RUnlock()
	if q != nil {
		return q, nil
	}
	name = strings.Clone(name) // it may be a part of a message's headers
	t, err := all.dialect.Table(name, all.in)
	if err != nil {
		return nil, transport.Permanent(err)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.by) >= limit {
		all.by = map[string]*Queue{}
	}
	q = all.by[t.Address] // one queue for all its names
	if q == nil {
		q = &Queue{QueueTexts: all.dialect.Queue(t), Channel: ChannelOf(t.Address)}
		all.by[t.Address] = q
	}
	all.by[name] = q
	return q, nil
}
