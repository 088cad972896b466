package sqs

import (
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// unseen counts deliveries that the service has counted and that were no attempt: messages that were given back
// without having failed. It knows those of this process alone, so that other instances still take them for attempts.
type unseen struct {
	mu    sync.Mutex
	times *transport.Cache[string, int] // by NativeID
}

const rememberedUnseen = 10_000

func newUnseen() *unseen {
	return &unseen{times: transport.NewCache[string, int](rememberedUnseen)}
}

func (u *unseen) add(nativeID string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, _ := u.times.Get(nativeID)
	u.times.Put(nativeID, n+1)
}

func (u *unseen) of(nativeID string) int {
	n, _ := u.times.Get(nativeID)
	return n
}
