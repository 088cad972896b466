package sqlserver

import (
	"sync/atomic"

	"github.com/reprise-go/reprise/transport"
)

// returned are messages that were given back by the rollback of their transaction, which
// leaves their rows unchanged. On tables of NServiceBus, in ReceiveOnly, they are all
// messages that were delivered and not completed: when a connection breaks, the server
// rolls back without a report. Redelivered is true after such a delivery to this process
// only: an endpoint whose Complete got no answer learns by it that it has handled the
// message (R28). returned is safe for concurrent use.
type returned struct {
	some atomic.Bool // set by the first message, so that the usual case takes no lock
	ids  *transport.Cache[string, struct{}]
}

// mostReturned limits them. The oldest are forgotten; their messages may be handled
// again.
const mostReturned = 10_000

func newReturned() *returned {
	return &returned{ids: transport.NewCache[string, struct{}](mostReturned)}
}

func (r *returned) add(id string) {
	r.ids.Put(id, struct{}{})
	r.some.Store(true)
}

func (r *returned) has(id string) bool {
	if !r.some.Load() {
		return false
	}
	_, ok := r.ids.Get(id)
	return ok
}

// forget deletes a message that is gone.
func (r *returned) forget(id string) {
	if r.some.Load() {
		r.ids.Delete(id)
	}
}
