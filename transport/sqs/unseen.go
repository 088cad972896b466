package sqs

import (
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// unseen counts the deliveries that the service has counted although they were no
// attempts: no handler saw the message, or it was released. It has only those of this
// process; other instances take them for attempts.
type unseen struct {
	mu    sync.Mutex                    // makes add atomic
	times *transport.Cache[string, int] // by NativeID
}

const rememberedUnseen = 10_000

func newUnseen() *unseen {
	return &unseen{times: transport.NewCache[string, int](rememberedUnseen)}
}

// add counts a delivery of the message, and returns their number.
func (u *unseen) add(nativeID string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, _ := u.times.Get(nativeID)
	u.times.Put(nativeID, n+1)
	return n + 1
}

// count returns the number of deliveries of the message that were no attempts.
func (u *unseen) count(nativeID string) int {
	n, _ := u.times.Get(nativeID)
	return n
}
