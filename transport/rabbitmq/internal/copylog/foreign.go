package copylog

import (
	"crypto/rand"
	"slices"
	"strconv"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Foreign names the stored copies of messages that other programs have sent, in which
// nothing names them: RabbitMQ gives a message no id. No two copies share a name, even of the
// same content.
//
// A copy that is given back, or whose channel is lost, is recognised by its content when it
// is redelivered to this process. Copies of the same content are alike, so it does not
// matter which of their names each of them gets. A copy that another process had, or whose
// acknowledgement may have been lost, gets another name.
//
// It is safe for concurrent use.
type Foreign struct {
	prefix string

	mu       sync.Mutex
	named    int
	capacity int
	copies   *transport.Cache[uint64, []*Copy] // by their content, oldest first
}

// Copy is the name of a stored copy.
type Copy struct {
	Name string

	sum      uint64
	count    int             // of its deliveries, where the broker counts them
	returned bool            // to the queue
	lost     <-chan struct{} // closed when its channel is lost
}

func newForeign() *Foreign {
	return &Foreign{prefix: rand.Text() + "-", capacity: limit, copies: transport.NewCache[uint64, []*Copy](limit)}
}

func (f *Foreign) resize(capacity int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = capacity
	f.copies.Resize(capacity)
}

// Delivered returns the name of a copy that is delivered on a channel; lost is closed when
// that channel is lost. redelivered is the broker's flag, and in.DeliveryCount its count, or 0.
func (f *Foreign) Delivered(in *core.Incoming, redelivered bool, lost <-chan struct{}) *Copy {
	sum := checksum(in)
	f.mu.Lock()
	defer f.mu.Unlock()
	alike, _ := f.copies.Get(sum)
	if redelivered {
		if c := recognised(alike, in.DeliveryCount); c != nil {
			c.count, c.returned, c.lost = in.DeliveryCount, false, lost
			return c
		}
	}
	f.named++
	c := &Copy{Name: f.prefix + strconv.Itoa(f.named), sum: sum, count: in.DeliveryCount, lost: lost}
	if len(alike) >= f.capacity {
		alike = alike[1:]
	}
	f.copies.Put(sum, append(alike, c))
	return c
}

// recognised returns the copy of these that may be redelivered now, the one with the right
// count if there is one.
func recognised(alike []*Copy, count int) (found *Copy) {
	for _, c := range alike {
		if !c.returned && !isClosed(c.lost) {
			continue
		}
		if c.count == count-1 {
			return c
		}
		if found == nil {
			found = c
		}
	}
	return found
}

// Returned records that a copy goes back to the queue.
func (f *Foreign) Returned(c *Copy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.returned = true
}

// Acknowledged forgets a copy: even if the broker does not learn of the acknowledgement, a
// message of the same content that it redelivers may be another one.
func (f *Foreign) Acknowledged(c *Copy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	alike, _ := f.copies.Get(c.sum)
	i := slices.Index(alike, c)
	switch {
	case i < 0:
	case len(alike) == 1:
		f.copies.Delete(c.sum)
	default:
		f.copies.Put(c.sum, slices.Delete(alike, i, i+1))
	}
}
