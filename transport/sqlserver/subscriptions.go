package sqlserver

import (
	"context"
	"errors"
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

// longestTopic is the length of the columns of NServiceBus's table of subscriptions, in
// characters.
const longestTopic = 200

// subscriptions is the table of subscriptions, with a cache of subscribers.
type subscriptions struct {
	*dialect.SubscriptionTexts
	server *server.Server
	queues *queues.Cache
	ttl    time.Duration
	known  *transport.Cache[string, subscribers]

	mu     sync.Mutex
	exists bool // the table
}

// subscribers are the queues that were subscribed to a topic when they were read.
type subscribers struct {
	queues []*queues.Queue
	until  time.Time
}

// manyTopics is how many topics the cache holds.
const manyTopics = 10_000

// newSubscriptions returns the subscriptions in a table. ttl is how long subscribers are
// cached.
func newSubscriptions(srv *server.Server, cache *queues.Cache, table dialect.Table, ttl time.Duration) *subscriptions {
	return &subscriptions{SubscriptionTexts: srv.Dialect.Subscriptions(table), server: srv, queues: cache, ttl: ttl, known: transport.NewCache[string, subscribers](manyTopics)}
}

// of returns the queues subscribed to a topic.
func (s *subscriptions) of(ctx context.Context, topic string) ([]*queues.Queue, error) {
	if queues, ok := s.remembered(topic); ok {
		return queues, nil
	}
	if server.CallersTransaction(ctx) == nil {
		if err := s.server.TakeTurn(ctx); err != nil {
			return nil, fmt.Errorf("read who subscribed to %q: %w", topic, err)
		}
		defer s.server.EndTurn()
		if queues, ok := s.remembered(topic); ok { // another call has read it since
			return queues, nil
		}
	}
	now := time.Now()
	var addresses []string
	err := s.read(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var address string
		err := scan(&address)
		addresses = append(addresses, address)
		return err
	}, s.Subscribers, topic))
	if err != nil {
		if s.server.Fault(err) == dialect.FaultNoTable && server.CallersTransaction(ctx) == nil { // there are no subscriptions yet
			return nil, nil
		}
		return nil, fmt.Errorf("read who subscribed to %q: %w", topic, err)
	}
	found := subscribers{until: now.Add(s.ttl)}
	for _, address := range addresses {
		q, err := s.queues.Get(address)
		if err != nil {
			return nil, fmt.Errorf("the table %s has a subscription to %q that cannot be read: %w", s.Table.Quoted, topic, err)
		}
		// The statement may have been repeated, and a queue has several names.
		if !slices.Contains(found.queues, q) {
			found.queues = append(found.queues, q)
		}
	}
	if s.ttl > 0 {
		s.known.Put(topic, found)
	}
	return found.queues, nil
}

// read reads in the caller's transaction, if there is one: a wait for another connection
// could wait for the caller itself, which holds one. In that transaction it first checks
// that the table exists, because the error would break the transaction.
func (s *subscriptions) read(ctx context.Context, of *sqlexec.Statement) error {
	s.mu.Lock()
	exists := s.exists
	s.mu.Unlock()
	tx := server.CallersTransaction(ctx)
	if tx != nil && !exists {
		has, err := s.server.Columns(ctx, s.Table)
		if err != nil || len(has) == 0 { // there are no subscriptions yet
			return err
		}
	}
	var err error
	if tx != nil {
		err = s.server.RunIn(ctx, tx, of)
	} else {
		err = s.server.Read(ctx, of)
	}
	s.mu.Lock()
	s.exists = err == nil
	s.mu.Unlock()
	return err
}

// remembered returns subscribers that were read within the last Config.SubscriptionCache.
func (s *subscriptions) remembered(topic string) ([]*queues.Queue, bool) {
	known, ok := s.known.Get(topic)
	return known.queues, ok && time.Now().Before(known.until)
}

func (s *subscriptions) forget(topics []string) {
	for _, topic := range topics {
		s.known.Delete(topic)
	}
}

// checkTopic checks that a topic can be stored.
func (s *subscriptions) checkTopic(topic string) error {
	n := s.server.Dialect.Length(topic)
	switch {
	case topic == "":
		return errors.New("the name of a topic is empty")
	case !utf8.ValidString(topic):
		return fmt.Errorf("the topic %q is not UTF-8", topic)
	case strings.ContainsRune(topic, 0):
		return fmt.Errorf("the topic %q contains a NUL", topic)
	case n > longestTopic:
		return fmt.Errorf("the topic %.40q... has %d characters, but the table of subscriptions holds %d at most: give the message type a shorter name", topic, n, longestTopic)
	}
	return nil
}

// CheckTopic implements core.TopicChecker: a topic is UTF-8 without NUL, of 1 to 200
// characters.
func (t *Transport) CheckTopic(topic string) error { return t.subscriptions.checkTopic(topic) }

// Subscribe lets queue receive messages that are published to the topics, each of at most
// 200 characters. For this transport's publishers the subscription takes effect at once,
// for other publishers after Config.SubscriptionCache.
//
// A subscription belongs to an endpoint, which is identified by the name of its queue, as
// in NServiceBus. So a queue that has moved, to another schema for example, takes its
// subscriptions along when it subscribes again. Another queue of the same name, of a
// transport with another schema and the same Config.SubscriptionTable, takes them over
// too: the endpoints need different names.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, true); err != nil {
		return fmt.Errorf("sqlserver: subscribe %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return nil
}

// Unsubscribe ends subscriptions of Subscribe.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, false); err != nil {
		return fmt.Errorf("sqlserver: unsubscribe %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return nil
}

func (t *Transport) changeSubscriptions(ctx context.Context, name string, topics []string, subscribe bool) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	ctx, done := t.server.Bound(ctx)
	defer done()
	q, err := t.queues.Get(name)
	if err != nil {
		return err
	}
	if _, err := t.server.Examine(ctx, q); err != nil {
		return err
	}
	endpoint := q.Table.Name
	if q.Table.Location != t.in { // two schemas may each have a queue of this name
		endpoint = q.Table.Address
	}
	s := t.subscriptions
	for _, topic := range topics {
		if err := transport.Permanent(t.CheckTopic(topic)); err != nil {
			return err
		}
	}
	for _, name := range []string{q.Table.Address, endpoint} {
		if err := s.checkAddress(name); err != nil {
			return err
		}
	}
	if len(topics) == 0 {
		return nil
	}
	if subscribe {
		err = s.add(ctx, q.Table.Address, endpoint, topics)
	} else {
		err = s.remove(ctx, endpoint, topics)
	}
	if err != nil {
		return err
	}
	s.forget(topics)
	return nil
}

// checkAddress checks that an address, or the name of an endpoint, can be stored.
func (s *subscriptions) checkAddress(name string) error {
	if n := s.server.Dialect.Length(name); n > longestTopic {
		return fmt.Errorf("the address %s has %d characters, but the table of subscriptions holds %d at most: give the queue or the schema a shorter name", name, n, longestTopic)
	}
	return nil
}

// add adds only missing subscriptions: an endpoint that has its subscriptions
// starts while the server cannot be written to, and without the right to write.
func (s *subscriptions) add(ctx context.Context, address, endpoint string, topics []string) error {
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

// remove removes subscriptions.
func (s *subscriptions) remove(ctx context.Context, endpoint string, topics []string) error {
	var statements []*sqlexec.Statement
	for _, topic := range topics {
		statements = append(statements, sqlexec.Command(s.Unsubscribe, endpoint, topic))
	}
	err := s.server.DB.Exec(ctx, statements...)
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

// rights returns the rights that a change of subscriptions needs.
func (s *subscriptions) rights(subscribe bool) []dialect.Right {
	list := s.server.Dialect.Seeing(s.Table)
	if subscribe {
		return append(list, dialect.RightsOn(s.Table, "select", "insert", "update")...)
	}
	return append(list, dialect.RightsOn(s.Table, "select", "delete")...)
}

// CreateSubscriptions creates the table when the first queue subscribes, if Provision was
// never called.
func (s *subscriptions) create(ctx context.Context) error {
	if err := s.server.Create(ctx, s.server.Dialect.CreateSubscriptions(s.Table)); err != nil {
		return fmt.Errorf("create the table of subscriptions %s (DDL prints the statements for somebody with the right to): %w", s.Table.Quoted, err)
	}
	return nil
}
