// Package queues has the queues of SQS: their messages, and the operations of the service.
package queues

import (
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/journal"
)

// A Store has the queues and the tasks that move messages between them. One mutex guards all of it: operations are
// short, and messages move between queues.
type Store struct {
	Region, Account       string
	maxInFlight           int
	maxWait               time.Duration // 0: no bound
	cancelledPollsReceive bool
	clock                 *clock.Clock

	mu      sync.Mutex
	dead    bool // the server was killed: the state no longer changes
	queues  map[string]*queue
	deleted map[string]clock.Instant // names of queues, for 60 seconds after they were deleted
	tasks   []*moveTask
	touched []*queue // queues whose polls have to be served

	lastQueue, serial uint64

	log *journal.Journal // nil: no journal
}

// A Config configures a store.
type Config struct {
	Region, Account       string
	MaxInFlight           int           // of a queue
	MaxWait               time.Duration // of a poll; 0: no bound
	CancelledPollsReceive bool
	Clock                 *clock.Clock
}

// New returns a store without queues.
func New(cfg Config) *Store {
	return &Store{
		Region: cfg.Region, Account: cfg.Account, maxInFlight: cfg.MaxInFlight, maxWait: cfg.MaxWait,
		cancelledPollsReceive: cfg.CancelledPollsReceive, clock: cfg.Clock,
		queues: map[string]*queue{}, deleted: map[string]clock.Instant{},
	}
}

// RecordLocked records a change in the journal, if there is one.
func (st *Store) RecordLocked(entry any) {
	if st.log != nil {
		st.log.WriteLocked(entry)
	}
}

// Flush writes all recorded changes to the journal, if there is one.
func (st *Store) Flush() error {
	if st.log == nil {
		return nil
	}
	return st.log.Flush(&st.mu)
}

// SetCancelledPollsReceive changes Config.CancelledPollsReceive.
func (st *Store) SetCancelledPollsReceive(on bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.cancelledPollsReceive = on
}

// DuplicateDeliveries delivers each of the next n messages received from a standard queue a second time. It reports
// whether there is such a queue.
func (st *Store) DuplicateDeliveries(name string, n int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	q := st.queues[name]
	if q == nil {
		return false
	}
	q.duplicates = n
	return !q.fifo
}

// Shuffle switches a random order of receives for messages sent to a standard queue from now on. It reports whether there
// is such a queue.
func (st *Store) Shuffle(name string, on bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	q := st.queues[name]
	if q == nil {
		return false
	}
	q.shuffled = on
	return !q.fifo
}

// touchLocked records that messages of a queue may have become ready.
func (st *Store) touchLocked(q *queue) {
	if len(q.polls) > 0 {
		st.touched = append(st.touched, q)
	}
}

// enterLocked adds a message to a queue.
func (st *Store) enterLocked(q *queue, m *message, now clock.Instant) {
	q.insert(m, now)
	st.logSendLocked(q, m, "", now)
	st.touchLocked(q)
}

// Kill ends the store: its state no longer changes.
func (st *Store) Kill() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dead = true
	for _, q := range st.queues {
		if q.alarm != nil {
			q.alarm.Stop()
		}
	}
	for _, t := range st.tasks {
		if t.alarm != nil {
			t.alarm.Stop()
		}
	}
}

// QueueARN returns the ARN of a queue with this name.
func (st *Store) QueueARN(name string) string {
	return "arn:aws:sqs:" + st.Region + ":" + st.Account + ":" + name
}

func (st *Store) queueByARNLocked(arn string) *queue {
	name, ok := strings.CutPrefix(arn, st.QueueARN(""))
	if !ok {
		return nil
	}
	return st.queues[name]
}

// queueByURLLocked returns the queue that a QueueUrl names.
func (st *Store) queueByURLLocked(url string) (*queue, *api.Error) {
	account, name, ok := splitQueueURL(url)
	if !ok {
		return nil, api.Failure("InvalidAddress", "The address %s is not valid for this endpoint.", url)
	}
	q := st.queues[name]
	if q == nil || account != st.Account {
		return nil, queueDoesNotExist()
	}
	return q, nil
}

// splitQueueURL returns account and name of a URL such as http://host/account/name. It
// ignores the host, because clients may use a proxy in front of the server.
func splitQueueURL(url string) (account, name string, ok bool) {
	_, path, ok := strings.Cut(url, "://")
	if !ok {
		return "", "", false
	}
	_, path, _ = strings.Cut(path, "/")
	account, name, ok = strings.Cut(path, "/")
	return account, name, ok && account != "" && name != "" && !strings.Contains(name, "/")
}

func queueDoesNotExist() *api.Error {
	return api.Failure("QueueDoesNotExist", "The specified queue does not exist.")
}
