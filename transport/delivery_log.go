package transport

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/lru"
)

// maxErrorText is the maximum size of the text that [ErrorText], and so a [DeliveryLog],
// keeps of one error.
const maxErrorText = 4 << 10

// minDeliveryLog is the least capacity of a DeliveryLog, in messages.
const minDeliveryLog = 1000

// DeliveryLog counts deliveries for a broker that keeps no delivery count. It is a
// bounded cache with the number of failures of each message and the text of the last
// error. It lives in the memory of one process: another instance counts separately and a
// restart begins at 1, so an adapter that uses it sets NativeDeliveryCount to false.
//
// The adapter calls [DeliveryLog.Delivered] for every message it hands out,
// [DeliveryLog.Failed] in Abandon, and [DeliveryLog.Forget] once the message is
// gone for good. Keys are those of [DeliveryKey]. A DeliveryLog is safe for
// concurrent use.
//
// # When more messages fail than the log can hold
//
// The log holds max(1000, 4*MaxInFlight) messages, with the highest MaxInFlight so far. A
// message that is not in the log counts from 1 again: it gets more attempts than
// configured, never fewer.
//
// A plain LRU cache would lose every count in an outage. If more messages fail than it
// holds, and the broker returns each to the tail of the queue, each message is evicted
// before its next delivery, and none ever reaches its delayed retries. Therefore messages
// keep their places in three quarters of the log: a message is counted there until
// Forget, and then the next message takes its place. So all messages reach their last
// attempt, some after others. The last quarter is an LRU cache for the other messages, so
// that a message that is redelivered at once is counted even if all other places are
// taken.
//
// Some messages never return to this receiver, because another instance has received
// them. The place of such a message becomes free when, since its last failure, the log
// has recorded 8, 64 or 512 times as many failures as it holds messages; each of the
// three numbers applies to a third of the places. The first ones become free soon, the
// last ones after a queue of half a million messages. The time is measured in failures,
// not in seconds, because a message waits for the messages before it, however long their
// handlers take.
type DeliveryLog struct {
	mu       sync.Mutex
	capacity int
	failed   int64 // calls of Failed so far
	segments [4]segment
}

// segment is a quarter of a DeliveryLog. A new message takes the place of the segment's
// oldest message if that one failed more than patience calls of Failed ago.
type segment struct {
	patience int64
	failures *lru.Cache[string, failure]
}

// failure keeps the error's text, not the error: an error may refer to any amount of
// memory.
type failure struct {
	count     int
	lastError string
	at        int64 // the last failure, in calls of Failed
}

// NewDeliveryLog returns an empty log for a receiver with at most maxInFlight unsettled
// deliveries.
func NewDeliveryLog(maxInFlight int) *DeliveryLog {
	l := &DeliveryLog{}
	for i := range l.segments {
		l.segments[i].failures = lru.New[string, failure](0)
	}
	l.Resize(maxInFlight)
	return l
}

// Resize adapts the log to a change of MaxInFlight, also when an endpoint pauses or is
// rate limited. It makes room for more messages, and never evicts any: after MaxInFlight
// falls, the messages that were in flight still count.
func (l *DeliveryLog) Resize(maxInFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = max(l.capacity, minDeliveryLog, 4*maxInFlight)
	for i := range l.segments {
		s := &l.segments[i]
		s.failures.Resize(l.capacity / len(l.segments))
		s.patience = int64(l.capacity) << (3 * (len(l.segments) - 1 - i)) // 512, 64, 8 times
	}
	l.segments[len(l.segments)-1].patience = 0 // the LRU cache
}

// Failed records another failure of the message, and keeps [ErrorText] of its cause,
// which may be nil.
func (l *DeliveryLog) Failed(key string, cause error) {
	text := ErrorText(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	s, f := l.find(key)
	if s == nil {
		s = l.segmentForNew()
	}
	s.failures.Put(key, failure{count: f.count + 1, lastError: text, at: l.failed})
}

// find returns the segment with a message, or nil.
func (l *DeliveryLog) find(key string) (*segment, failure) {
	for i := range l.segments {
		s := &l.segments[i]
		if f, ok := s.failures.Get(key); ok {
			return s, f
		}
	}
	return nil, failure{}
}

// segmentForNew returns the segment with the most patience that has a free place. The
// last segment always has one.
func (l *DeliveryLog) segmentForNew() *segment {
	for i := range l.segments {
		s := &l.segments[i]
		_, oldest, _ := s.failures.Oldest()
		if s.failures.Len() < l.capacity/len(l.segments) || l.failed-oldest.at > s.patience {
			return s
		}
	}
	return nil
}

// Delivered returns Incoming.DeliveryCount (1 and the failures recorded so far) and
// Incoming.LastError ("" if none) for a message that is about to be handed out. It
// records nothing: a redelivery without a failure does not count.
func (l *DeliveryLog) Delivered(key string) (count int, lastError string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, f := l.find(key)
	return 1 + f.count, f.lastError
}

// Forget removes a message that is completed or moved away.
func (l *DeliveryLog) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, _ := l.find(key); s != nil {
		s.failures.Delete(key)
	}
}

// Len returns the number of messages in the log.
func (l *DeliveryLog) Len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.segments {
		n += l.segments[i].failures.Len()
	}
	return n
}

// maxDeliveryKey is the size in bytes of the longest NativeID that is a key itself.
const maxDeliveryKey = 512

// DeliveryKey returns the key of a message in a [DeliveryLog]: its NativeID, or the hash of one
// of more than 512 bytes.
func DeliveryKey(in *core.Incoming) string {
	if len(in.NativeID) > maxDeliveryKey {
		return fmt.Sprintf("sha256 of a NativeID:%x", sha256.Sum256([]byte(in.NativeID)))
	}
	return in.NativeID
}

// ErrorText returns the text that an adapter keeps of a cause given to Abandon: the
// error's text as valid UTF-8, cut to 4 KiB without splitting a character.
// It is "" for nil.
func ErrorText(cause error) string {
	if cause == nil {
		return ""
	}
	text := cause.Error()
	if len(text) > maxErrorText {
		end := maxErrorText
		for end > maxErrorText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = strings.Clone(text[:end]) // a slice would keep the whole text in memory
	}
	return strings.ToValidUTF8(text, "?") // one byte: the text does not grow
}
