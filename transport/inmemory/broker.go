package inmemory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// Broker holds queues, subscriptions and messages: it takes the place of a server. A
// transport has its own Broker unless Config.Broker names one to share. Two transports on
// one Broker are like two processes connected to one server; closing a transport and
// opening another one is like a restart of the process.
//
// A Broker needs no closing: it runs no goroutine, and is garbage collected when it is
// unreferenced and its last timer has fired. It is safe for concurrent use.
type Broker struct {
	lastSeq atomic.Uint64

	// directory is replaced as a whole, under mu: Send looks it up without a lock, and
	// queues and subscriptions seldom change.
	mu        sync.Mutex
	directory atomic.Pointer[directory]
}

// directory is immutable once it is published.
type directory struct {
	queues map[string]*queue
	topics map[string][]*queue
}

// NewBroker returns a Broker without queues.
func NewBroker() *Broker {
	b := &Broker{}
	b.directory.Store(&directory{})
	return b
}

// deadLetterSuffix is refused at the end of other queues' names.
const deadLetterSuffix = "/$deadletter"

// DeadLetterQueue returns the name of a queue's dead-letter queue, which exists as soon
// as the queue does. A message there has, in addition to its own headers,
// HeaderDeadLetterReason and HeaderDeadLetterDescription. A dead-letter queue can be
// received from and browsed like any queue.
func DeadLetterQueue(queue string) string { return queue + deadLetterSuffix }

// The headers that DeadLetter adds.
const (
	HeaderDeadLetterReason      = "DeadLetterReason"
	HeaderDeadLetterDescription = "DeadLetterErrorDescription"
)

func checkQueueName(name string) error {
	switch {
	case name == "":
		return transport.BadName("queue", name, 0, "the queue's name is empty")
	case !utf8.ValidString(name):
		return transport.BadName("queue", name, 0, "the queue's name %q is not UTF-8", name)
	}
	return nil
}

func checkTopicName(name string) error {
	if name == "" {
		return transport.BadName("topic", name, 0, "the topic's name is empty")
	}
	return nil
}

func (b *Broker) queue(name string) (*queue, error) {
	if q := b.directory.Load().queues[name]; q != nil {
		return q, nil
	}
	return nil, fmt.Errorf("queue %q: %w; check the spelling, or create it with Provision, as its endpoint does when it runs", name, core.ErrQueueNotFound)
}

// provision creates missing queues.
func (b *Broker) provision(names []string) error {
	for _, name := range names {
		if err := checkQueueName(name); err != nil {
			return err
		}
		if strings.HasSuffix(name, deadLetterSuffix) {
			return fmt.Errorf("queue %q: the ending %q is kept for dead-letter queues", name, deadLetterSuffix)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.directory.Load()
	queues := maps.Clone(old.queues)
	if queues == nil {
		queues = map[string]*queue{}
	}
	for _, name := range names {
		if queues[name] == nil {
			dead := &queue{name: DeadLetterQueue(name)}
			queues[dead.name] = dead
			queues[name] = &queue{name: name, deadLetters: dead}
		}
	}
	b.directory.Store(&directory{queues, old.topics})
	return nil
}

// subscribe begins or ends the subscriptions of a queue to topics.
func (b *Broker) subscribe(name string, topics []string, on bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.queue(name)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := checkTopicName(topic); err != nil {
			return err
		}
	}
	old := b.directory.Load()
	all := maps.Clone(old.topics)
	if all == nil {
		all = map[string][]*queue{}
	}
	for _, topic := range topics {
		subscribers := slices.DeleteFunc(slices.Clone(all[topic]), func(s *queue) bool { return s == q })
		if on {
			subscribers = append(subscribers, q)
		}
		if len(subscribers) == 0 {
			delete(all, topic)
		} else {
			all[topic] = subscribers
		}
	}
	b.directory.Store(&directory{old.queues, all})
	return nil
}

// remove removes queues and topics that exist.
func (b *Broker) remove(names, topics []string) error {
	for _, name := range names {
		if strings.HasSuffix(name, deadLetterSuffix) {
			return fmt.Errorf("queue %q: a dead-letter queue is removed with its queue", name)
		}
		if err := checkQueueName(name); err != nil {
			return err
		}
	}
	for _, topic := range topics {
		if err := checkTopicName(topic); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.directory.Load()
	left := &directory{maps.Clone(old.queues), maps.Clone(old.topics)}
	for _, topic := range topics {
		delete(left.topics, topic)
	}
	for _, name := range names {
		q := left.queues[name]
		if q == nil {
			continue
		}
		for topic, subscribers := range left.topics {
			subscribers = slices.DeleteFunc(slices.Clone(subscribers), func(s *queue) bool { return s == q })
			if len(subscribers) == 0 {
				delete(left.topics, topic)
			} else {
				left.topics[topic] = subscribers
			}
		}
		delete(left.queues, name)
		delete(left.queues, q.deadLetters.name)
		q.stop()
		q.purge()
	}
	b.directory.Store(left)
	return nil
}

// destinations returns the queues to which a message goes: one, or a topic's subscribers,
// of which there may be none.
func (b *Broker) destinations(out *core.Outgoing, one *[1]*queue) ([]*queue, error) {
	if out.Topic != "" {
		topics := b.directory.Load().topics
		if len(out.BaseTopics) == 0 {
			return topics[out.Topic], nil
		}
		all := slices.Clone(topics[out.Topic])
		for _, base := range out.BaseTopics {
			for _, q := range topics[base] {
				if !slices.Contains(all, q) {
					all = append(all, q)
				}
			}
		}
		return all, nil
	}
	q, err := b.queue(out.Queue)
	if err != nil {
		return nil, err
	}
	one[0] = q
	return one[:], nil
}

// newMessage makes a stored copy of out with the given body, which must not be written
// any more. ordered says whether the message keeps its place in its group, if it has one.
func (b *Broker) newMessage(out *core.Outgoing, body []byte, now time.Time, ordered bool) *message {
	m := &message{
		seq:     b.lastSeq.Add(1),
		headers: out.Headers,
		body:    body,
		group:   out.GroupKey,
		ordered: ordered && out.GroupKey != "",
		props:   maps.Clone(out.Properties),
		sent:    now,
		delay:   out.Delay,
	}
	m.nativeID = strconv.FormatUint(m.seq, 10)
	if m.id = out.Headers.Get(headers.MessageID); m.id == "" {
		m.id = out.ID
	}
	m.generatedID = out.Headers.Get(headers.GeneratedID) != ""
	if out.TimeToBeReceived > 0 {
		m.expires = now.Add(out.TimeToBeReceived)
	}
	return m
}

// stop ends all timers.
func (b *Broker) stop() {
	for _, q := range b.directory.Load().queues {
		q.stop()
	}
}
