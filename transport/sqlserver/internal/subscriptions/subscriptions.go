// Package subscriptions has the table of subscriptions, and a cache of its subscribers.
package subscriptions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// MaxTopic is the length of the columns of NServiceBus's table of subscriptions, in
// characters.
const MaxTopic = 200

// Table is the table of subscriptions, with a cache of subscribers.
type Table struct {
	*dialect.SubscriptionTexts
	server *server.Server
	queues *queues.Cache
	ttl    time.Duration
	known  *transport.Cache[string, cached]

	mu      sync.Mutex
	exists  bool   // the table
	changes uint64 // of subscriptions, by this transport
}

// Subscribers are the queues that were subscribed to a topic when they were read.
type Subscribers struct {
	Queues      []*queues.Queue
	Unreachable []Unreachable
}

// Unreachable is a subscriber that does not get events, because its address cannot be read or
// its table refuses them.
type Unreachable struct {
	Address string
	Err     error
}

// cached are the subscribers of a topic in the cache.
type cached struct {
	Subscribers
	expires time.Time
}

// manyTopics is how many topics the cache holds.
const manyTopics = 10_000

// New returns the subscriptions in a table. ttl is how long subscribers are cached.
func New(srv *server.Server, cache *queues.Cache, table dialect.Table, ttl time.Duration) *Table {
	return &Table{SubscriptionTexts: srv.Dialect.Subscriptions(table), server: srv, queues: cache, ttl: ttl, known: transport.NewCache[string, cached](manyTopics)}
}

// Of returns the subscribers of a topic.
func (s *Table) Of(ctx context.Context, topic string) (Subscribers, error) {
	if known, ok := s.remembered(topic); ok {
		return known, nil
	}
	if server.CallersTransaction(ctx) == nil {
		if err := s.server.TakeTurn(ctx); err != nil {
			return Subscribers{}, fmt.Errorf("read who subscribed to %q: %w", topic, err)
		}
		defer s.server.EndTurn()
		if known, ok := s.remembered(topic); ok { // another call has read it since
			return known, nil
		}
	}
	now, changes := time.Now(), s.changesSoFar()
	addresses, isCurrent, err := s.read(ctx, topic)
	if err != nil {
		if s.server.Fault(err) == dialect.FaultNoTable && server.CallersTransaction(ctx) == nil { // there are no subscriptions yet
			return Subscribers{}, nil
		}
		return Subscribers{}, fmt.Errorf("read who subscribed to %q: %w", topic, err)
	}
	var found Subscribers
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) { // the statement may have been repeated
		q, err := s.queues.Get(address)
		if err != nil {
			err = fmt.Errorf("the table %s has a subscription to %q that cannot be read: %w", s.Table.Quoted, topic, err)
			found.Unreachable = append(found.Unreachable, Unreachable{address, err})
			continue
		}
		found.Queues = queues.AppendMissing(found.Queues, q) // a queue has several names
	}
	if s.ttl > 0 && isCurrent {
		s.remember(topic, cached{found, now.Add(s.ttl)}, changes)
	}
	return found, nil
}

// Exclude makes subscribers unreachable that are cached for these topics, until their topics are
// read again.
func (s *Table) Exclude(topics []string, unreachable []Unreachable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topic := range topics {
		known, ok := s.known.Get(topic)
		if !ok {
			continue
		}
		less := cached{Subscribers{Unreachable: slices.Clone(known.Unreachable)}, known.expires}
		for _, q := range known.Queues {
			if i := slices.IndexFunc(unreachable, func(u Unreachable) bool { return u.Address == q.Table.Address }); i >= 0 {
				less.Unreachable = append(less.Unreachable, unreachable[i])
			} else {
				less.Queues = append(less.Queues, q)
			}
		}
		s.known.Put(topic, less)
	}
}

// read returns the addresses of a topic's subscribers. isCurrent is false if they may have
// been others already when it was called.
//
// It reads in the caller's transaction, if there is one: a wait for another connection
// could wait for the caller itself, which holds one. In that transaction it first checks
// that the table exists, because the error would break the transaction.
func (s *Table) read(ctx context.Context, topic string) (addresses []string, isCurrent bool, err error) {
	s.mu.Lock()
	exists := s.exists
	s.mu.Unlock()
	tx := server.CallersTransaction(ctx)
	if tx != nil && !exists {
		has, err := s.server.Columns(ctx, s.Table)
		if err != nil || len(has) == 0 { // there are no subscriptions yet
			return nil, false, err
		}
	}
	subscribers := sqlexec.Query(func(scan sqlexec.Scanner) error {
		var address string
		err := scan(&address)
		addresses = append(addresses, address)
		return err
	}, s.Subscribers, topic)
	if tx == nil {
		isCurrent, err = true, s.server.Read(ctx, subscribers)
	} else {
		statements := []*sqlexec.Statement{subscribers}
		if s.IsCurrent != "" {
			statements = append(statements, sqlexec.Query(func(scan sqlexec.Scanner) error {
				var current int64
				err := scan(&current)
				isCurrent = current == 1
				return err
			}, s.IsCurrent))
		}
		err = s.server.RunIn(ctx, tx, statements...)
	}
	s.mu.Lock()
	s.exists = err == nil
	s.mu.Unlock()
	return addresses, isCurrent, err
}

// remembered returns subscribers that were read within the last Config.SubscriptionCache.
func (s *Table) remembered(topic string) (Subscribers, bool) {
	known, ok := s.known.Get(topic)
	return known.Subscribers, ok && time.Now().Before(known.expires)
}

// remember caches the subscribers of a topic, unless this transport has changed
// subscriptions since the number of changes was read.
func (s *Table) remember(topic string, found cached, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes {
		s.known.Put(strings.Clone(topic), found) // it may be a part of a message's headers
	}
}

func (s *Table) changesSoFar() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// Forget removes the subscribers of topics from the cache, after a change.
func (s *Table) Forget(topics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	for _, topic := range topics {
		s.known.Delete(topic)
	}
}

// CheckTopic checks that a topic can be stored.
func (s *Table) CheckTopic(topic string) error {
	n := s.server.Dialect.Length(topic)
	switch {
	case topic == "":
		return transport.BadName("topic", topic, 0, "the name of a topic is empty")
	case !utf8.ValidString(topic):
		return transport.BadName("topic", topic, 0, "the topic %q is not UTF-8", topic)
	case strings.ContainsRune(topic, 0):
		return transport.BadName("topic", topic, 0, "the topic %q contains a NUL", topic)
	case n > MaxTopic:
		return transport.BadName("topic", topic, MaxTopic, "the topic %.40q... has %d characters, but the table of subscriptions holds %d at most: give the message type a shorter name", topic, n, MaxTopic)
	}
	return nil
}

// CheckAddress checks that an address, or the name of an endpoint, can be stored.
func (s *Table) CheckAddress(name string) error {
	if n := s.server.Dialect.Length(name); n > MaxTopic {
		return fmt.Errorf("the address %s has %d characters, but the table of subscriptions holds %d at most: give the queue or the schema a shorter name", name, n, MaxTopic)
	}
	return nil
}

// Add adds only missing subscriptions: an endpoint that has its subscriptions
// starts while the server cannot be written to, and without the right to write.
func (s *Table) Add(ctx context.Context, address, endpoint string, topics []string) error {
	there := map[string]bool{}
	err := s.server.Read(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var topic string
		err := scan(&topic)
		there[topic] = true
		return err
	}, s.Subscribed, endpoint, address))
	if err != nil {
		if f := s.server.Fault(err); f != dialect.FaultNoTable && f != dialect.FaultRefused {
			return err
		}
	}
	var missing []string
	var statements []*sqlexec.Statement
	for _, topic := range topics {
		if !there[topic] {
			missing = append(missing, topic)
			statements = append(statements, sqlexec.Command(s.Subscribe, address, endpoint, topic))
		}
	}
	if len(statements) == 0 {
		return nil
	}
	err = s.server.DB.Exec(ctx, statements...)
	if err != nil && s.server.Fault(err) == dialect.FaultNoTable {
		if err := s.create(ctx); err != nil {
			return err
		}
		err = s.server.DB.Exec(ctx, statements...)
	}
	switch {
	case err == nil:
		return nil
	case s.server.Fault(err) == dialect.FaultRefused:
		return s.server.Denied(ctx, err, s.rights(true))
	default:
		return fmt.Errorf("the table %s does not have its subscription to %q, which has to be added: %w", s.Table.Quoted, missing, err)
	}
}

// Remove removes subscriptions.
func (s *Table) Remove(ctx context.Context, endpoint string, topics []string) error {
	var statements []*sqlexec.Statement
	for _, topic := range topics {
		statements = append(statements, sqlexec.Command(s.Unsubscribe, endpoint, topic))
	}
	return s.removed(ctx, s.server.DB.Exec(ctx, statements...))
}

// removed explains the error of a statement that removes subscriptions.
func (s *Table) removed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch s.server.Fault(err) {
	case dialect.FaultNoTable: // there are no subscriptions yet
		return nil
	case dialect.FaultRefused:
		return s.server.Denied(ctx, err, s.rights(false))
	default:
		return err
	}
}

// RemoveQueue removes all subscriptions of a queue.
func (s *Table) RemoveQueue(ctx context.Context, address string) error {
	var topics []string
	err := s.removed(ctx, s.server.DB.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var topic string
		err := scan(&topic)
		topics = append(topics, topic)
		return err
	}, s.SubscriptionTexts.RemoveQueue, address)))
	s.Forget(topics)
	return err
}

// RemoveTopics removes all subscriptions to topics.
func (s *Table) RemoveTopics(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	var statements []*sqlexec.Statement
	for _, topic := range topics {
		statements = append(statements, sqlexec.Command(s.RemoveTopic, topic))
	}
	err := s.removed(ctx, s.server.DB.Exec(ctx, statements...))
	s.Forget(topics)
	return err
}

// rights returns the rights that a change of subscriptions needs.
func (s *Table) rights(subscribe bool) []dialect.Right {
	list := s.server.Dialect.Seeing(s.Table)
	if subscribe {
		return append(list, dialect.RightsOn(s.Table, "select", "insert", "update")...)
	}
	return append(list, dialect.RightsOn(s.Table, "select", "delete")...)
}

// create creates the table when the first queue subscribes, if Provision was
// never called.
func (s *Table) create(ctx context.Context) error {
	if err := s.server.Create(ctx, s.server.Dialect.CreateSubscriptions(s.Table)); err != nil {
		return fmt.Errorf("create the table of subscriptions %s (DDL prints the statements for somebody with the right to): %w", s.Table.Quoted, err)
	}
	return nil
}
