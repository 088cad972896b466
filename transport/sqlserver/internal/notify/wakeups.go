package notify

import (
	"slices"
	"sync"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// Wakeup is signaled when a queue may have got a message, until its receiver looks.
type Wakeup struct {
	queue  *queues.Queue
	Signal transport.Signal
}

// Wakeups are the wakeups of a transport's receivers, by the address of their queue.
type Wakeups struct {
	mu        sync.RWMutex
	byAddress map[string][]*Wakeup
}

// NewWakeups returns wakeups for no receiver.
func NewWakeups() *Wakeups { return &Wakeups{byAddress: map[string][]*Wakeup{}} }

// Add adds a wakeup for a receiver.
func (all *Wakeups) Add(q *queues.Queue) *Wakeup {
	b := &Wakeup{queue: q, Signal: transport.NewSignal()}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byAddress[q.Table.Address] = append(all.byAddress[q.Table.Address], b)
	return b
}

// Remove removes a wakeup.
func (all *Wakeups) Remove(b *Wakeup) {
	all.mu.Lock()
	defer all.mu.Unlock()
	left := slices.DeleteFunc(all.byAddress[b.queue.Table.Address], func(other *Wakeup) bool { return other == b })
	if len(left) == 0 {
		delete(all.byAddress, b.queue.Table.Address)
	} else {
		all.byAddress[b.queue.Table.Address] = left
	}
}

// Wake signals the wakeups of a queue.
func (all *Wakeups) Wake(q *queues.Queue) {
	all.mu.RLock()
	defer all.mu.RUnlock()
	for _, b := range all.byAddress[q.Table.Address] {
		b.Signal.Notify()
	}
}

// queues returns the queues that have a wakeup.
func (all *Wakeups) queues() (list []*queues.Queue) {
	all.mu.RLock()
	defer all.mu.RUnlock()
	for _, hung := range all.byAddress {
		list = append(list, hung[0].queue)
	}
	return list
}

// QueuesByAddress returns the same queues by their addresses.
func (all *Wakeups) QueuesByAddress() map[string]*queues.Queue {
	all.mu.RLock()
	defer all.mu.RUnlock()
	by := map[string]*queues.Queue{}
	for address, list := range all.byAddress {
		by[address] = list[0].queue
	}
	return by
}
