// Package copylog decides whether the name of a stored copy of a message can be trusted, and
// names the copies that have none.
package copylog

import (
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Log decides whether the name of a stored copy can be trusted. The name is a header, so a
// program that forges or copies headers (for example a tool that sends a message to its
// queue again) gives several messages the same name. The engine completes a redelivered
// message without running its handler if a message of that name was settled before (R28):
// the other messages would be lost. A message whose name is shared counts as a message
// without a name.
//
// A name is shared if
//
//   - two messages with it are delivered for the first time, or one with other content is
//     delivered;
//   - a message with it is delivered that was acknowledged on a channel that still exists: a
//     broker redelivers an acknowledged message only if the channel was lost before the
//     broker had read the acknowledgement.
//
// Two names with one hash, which no other process can construct, count as one shared name.
//
// A Log keeps more names than the engine remembers, and outlives receivers, as the engine's
// memory does. It is safe for concurrent use.
type Log struct {
	// Foreign has the copies that have no name.
	Foreign *Foreign

	mu       sync.Mutex
	capacity int
	copies   *transport.Cache[uint64, *storedCopy] // by a hash of the name: names come from outside
}

// storedCopy is the record of one name.
type storedCopy struct {
	sum          uint64          // of the message
	shared       bool            // several messages have it
	acknowledged <-chan struct{} // nil: none was acknowledged; closed when the channel of the acknowledgement is lost
}

// limit is the minimum number of names kept: several times the number of settled messages
// that the engine remembers.
const limit = 4000

func newLog() *Log {
	return &Log{Foreign: newForeign(), capacity: limit, copies: transport.NewCache[uint64, *storedCopy](limit)}
}

// Logs are the logs of a transport, one for each queue. It is safe for concurrent use.
type Logs struct {
	mu   sync.Mutex
	logs map[string]*Log
}

// For returns the log of the copies received from a queue.
func (l *Logs) For(queue string) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.logs[queue]
	if log == nil {
		if l.logs == nil {
			l.logs = map[string]*Log{}
		}
		log = newLog()
		l.logs[queue] = log
	}
	return log
}

// Resize follows a receiver's MaxInFlight, but forgets nothing when that is lowered.
func (l *Log) Resize(maxInFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = max(l.capacity, limit+4*maxInFlight)
	l.copies.Resize(l.capacity)
	l.Foreign.resize(l.capacity)
}

// Delivered records a delivery and reports whether its NativeID belongs to this message
// alone. redelivered is the broker's flag.
func (l *Log) Delivered(in *core.Incoming, redelivered bool) bool {
	sum, name := checksum(in), maphash.String(checksumSeed, in.NativeID)
	l.mu.Lock()
	defer l.mu.Unlock()
	c, known := l.copies.Get(name)
	if !known {
		l.copies.Put(name, &storedCopy{sum: sum})
		return true
	}
	if !redelivered || c.sum != sum || c.acknowledged != nil && !isClosed(c.acknowledged) {
		c.shared = true
	}
	return !c.shared
}

// Acknowledge records that a message is acknowledged on a channel; lost is closed when that
// channel is lost.
func (l *Log) Acknowledge(name string, lost <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, known := l.copies.Get(maphash.String(checksumSeed, name)); known {
		c.acknowledged = lost
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

var checksumSeed = maphash.MakeSeed()

// checksum tells messages of the same name apart. No other process can construct two
// messages with the same sum.
func checksum(in *core.Incoming) uint64 {
	sum := maphash.Bytes(checksumSeed, in.Body)
	add := func(key, value string) { // in any order
		sum += bits.RotateLeft64(maphash.String(checksumSeed, key), 1) ^ maphash.String(checksumSeed, value)*3
	}
	add("", in.ID)
	add("\x00group", in.GroupKey)
	for key, value := range in.Headers.All() {
		add(key, value)
	}
	for key, value := range in.Properties {
		add("\x00"+key, value)
	}
	return sum
}
