//go:build darwin || linux

package sqs

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// A store is the whole state of the service. One mutex guards all of it: operations are
// short, and messages move between queues.
type store struct {
	region, account       string
	maxInFlight           int
	maxWait               time.Duration // 0: no bound
	cancelledPollsReceive bool
	clock                 *clock

	mu      sync.Mutex
	dead    bool // the server was killed: the state no longer changes
	queues  map[string]*queue
	deleted map[string]instant // names of queues, for 60 seconds after they were deleted
	topics  map[string]*topic  // by ARN
	tasks   []*moveTask
	touched []*queue // queues whose polls have to be served

	lastQueue, serial uint64

	topicDelay, subscriptionDelay time.Duration // until new topics and subscriptions take effect

	log *journal // nil: no journal
}

func newStore(cfg Config, c *clock) *store {
	return &store{
		region: cfg.Region, account: cfg.Account, maxInFlight: cfg.MaxInFlight, maxWait: cfg.MaxWait,
		cancelledPollsReceive: cfg.CancelledPollsReceive, clock: c,
		topicDelay: cfg.topicDelay, subscriptionDelay: cfg.subscriptionDelay,
		queues: map[string]*queue{}, deleted: map[string]instant{}, topics: map[string]*topic{},
	}
}

// begin locks the store for an operation. If the server was killed, the operation does not
// happen, and its connection ends.
func (st *store) begin() (now instant) {
	st.mu.Lock()
	if st.dead {
		st.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	return st.clock.now()
}

// end serves the polls of all queues that the operation has touched, and unlocks the store.
func (st *store) end(now instant) {
	st.settleLocked(now)
	st.mu.Unlock()
}

// touchLocked records that messages of a queue may have become ready.
func (st *store) touchLocked(q *queue) {
	if len(q.polls) > 0 {
		st.touched = append(st.touched, q)
	}
}

func (st *store) settleLocked(now instant) {
	for len(st.touched) > 0 {
		q := st.touched[len(st.touched)-1]
		st.touched = st.touched[:len(st.touched)-1]
		st.serveLocked(q, now)
	}
}

// enterLocked adds a message to a queue.
func (st *store) enterLocked(q *queue, m *message, now instant) {
	q.insert(m, now)
	st.logSendLocked(q, m, "", now)
	st.touchLocked(q)
}

// advance moves the clock forward. The events for which polls and move tasks wait happen in
// the order of their times.
func (st *store) advance(d time.Duration) {
	st.mu.Lock()
	if st.dead {
		st.mu.Unlock()
		st.clock.advance(d)
		return
	}
	now := st.clock.now()
	target := now.add(d)
	for {
		at, q, task := st.nextEventLocked(target)
		if q == nil && task == nil {
			break
		}
		at = max(at, now) // it may already have been due
		if task != nil {
			st.stepLocked(task, at)
		} else {
			st.serveLocked(q, at)
		}
		st.settleLocked(at)
		now = at
	}
	st.clock.advance(d)
	st.logAdvanceLocked()
	for _, q := range st.queues {
		q.settle(target)
		st.armLocked(q, target)
	}
	for _, t := range st.tasks {
		st.armTaskLocked(t, target)
	}
	st.end(target)
}

// nextEventLocked returns the first event for which a poll or a move task waits, if it is due by
// the target.
func (st *store) nextEventLocked(target instant) (first instant, next *queue, task *moveTask) {
	first = target + 1
	for _, q := range st.queues {
		if at, ok := q.nextEvent(); ok && at < first {
			first, next = at, q
		}
	}
	for _, t := range st.tasks {
		if t.status == taskRunning && t.next < first {
			first, next, task = t.next, nil, t
		}
	}
	return first, next, task
}

// kill ends the store: its state no longer changes.
func (st *store) kill() {
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

func (st *store) queueARN(name string) string {
	return "arn:aws:sqs:" + st.region + ":" + st.account + ":" + name
}

func (st *store) topicARN(name string) string {
	return "arn:aws:sns:" + st.region + ":" + st.account + ":" + name
}

func (st *store) queueByARNLocked(arn string) *queue {
	name, ok := strings.CutPrefix(arn, st.queueARN(""))
	if !ok {
		return nil
	}
	return st.queues[name]
}

// queueByURLLocked returns the queue that a QueueUrl names.
func (st *store) queueByURLLocked(url string) (*queue, *apiError) {
	account, name, ok := splitQueueURL(url)
	if !ok {
		return nil, failure("InvalidAddress", "The address %s is not valid for this endpoint.", url)
	}
	q := st.queues[name]
	if q == nil || account != st.account {
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
