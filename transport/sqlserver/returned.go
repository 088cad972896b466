package sqlserver

import (
	"sync/atomic"

	"github.com/reprise-go/reprise/transport"
)

// returned are the messages that were held in a transaction and given back by its rollback,
// which leaves their rows as if nobody had received them. On tables of NServiceBus, in
// ReceiveOnly, they are all that were handed out and not completed: the server rolls back
// without a word when a connection breaks. Redelivered tells of the delivery before, to this
// process alone: an endpoint whose Complete got no answer knows by it that it has handled
// the message (R28). It is safe for concurrent use.
type returned struct {
	some atomic.Bool // set by the first one, so that the usual case takes no lock
	ids  *transport.Cache[string, struct{}]
}

// mostReturned bounds them. The oldest are forgotten; their messages may be handled again.
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

// forget drops a message that is gone.
func (r *returned) forget(id string) {
	if r.some.Load() {
		r.ids.Delete(id)
	}
}
