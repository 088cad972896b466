package rowlog

import (
	"sync/atomic"

	"github.com/reprise-go/reprise/transport"
)

// Returned are messages that were given back by the rollback of their transaction, which
// leaves their rows unchanged. On tables of NServiceBus, in ReceiveOnly, they are all
// messages that were delivered and not completed: when a connection breaks, the server
// rolls back without a report. Redelivered is true after such a delivery to this process
// only: an endpoint whose Complete got no answer learns by it that it has handled the
// message (R28). returned is safe for concurrent use.
type Returned struct {
	nonEmpty atomic.Bool // set by the first message, so that the usual case takes no lock
	ids      *transport.Cache[string, struct{}]
}

// maxReturned limits them. The oldest are forgotten; their messages may be handled
// again.
const maxReturned = 10_000

// NewReturned returns an empty log.
func NewReturned() *Returned {
	return &Returned{ids: transport.NewCache[string, struct{}](maxReturned)}
}

// Add records a message that is given back.
func (r *Returned) Add(id string) {
	r.ids.Put(id, struct{}{})
	r.nonEmpty.Store(true)
}

// Has reports whether a message was given back.
func (r *Returned) Has(id string) bool {
	if !r.nonEmpty.Load() {
		return false
	}
	_, ok := r.ids.Get(id)
	return ok
}

// Forget deletes a message that is gone.
func (r *Returned) Forget(id string) {
	if r.nonEmpty.Load() {
		r.ids.Delete(id)
	}
}
