package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/lru"
)

// MaxErrorText is the most bytes that ErrorText, and so a DeliveryLog, keeps of
// one error.
const MaxErrorText = 4 << 10

// minDeliveryLog is the least number of messages that a DeliveryLog remembers.
const minDeliveryLog = 1000

// DeliveryLog remembers how often each message failed and with what text, for
// an adapter whose broker keeps no delivery count. It lives in the memory of
// one process: another instance counts for itself and a restart begins at 1, so
// an adapter that uses it says NativeDeliveryCount: false.
//
// It holds the larger of 1,000 and 4 x MaxInFlight, at its highest, messages and
// forgets the one
// whose failure was recorded or asked for longest ago. A forgotten message
// counts from 1 again: it gets more attempts than configured, never fewer. The
// bound is on memory, which stays flat however many distinct messages fail.
//
// The adapter calls Delivered for every message it hands out, Failed in
// Abandon, and Forget once the message is gone for good. A key is what
// DeliveryKey returns. A DeliveryLog is safe for concurrent use.
type DeliveryLog struct {
	mu       sync.Mutex
	capacity int
	failures *lru.Cache[string, failure]
}

// failure keeps the error's text, never the error: an error may hold on to
// anything.
type failure struct {
	count     int
	lastError string
}

// NewDeliveryLog returns an empty log for a receiver that holds at most
// maxInFlight unsettled deliveries.
func NewDeliveryLog(maxInFlight int) *DeliveryLog {
	capacity := deliveryLogCapacity(maxInFlight)
	return &DeliveryLog{capacity: capacity, failures: lru.New[string, failure](capacity)}
}

// Resize follows a change of MaxInFlight, that of an endpoint that pauses or is
// rate limited included: it makes room for more and forgets nothing where there
// became fewer, because the failures of those that were held count on.
func (l *DeliveryLog) Resize(maxInFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = max(l.capacity, deliveryLogCapacity(maxInFlight))
	l.failures.Resize(l.capacity)
}

func deliveryLogCapacity(maxInFlight int) int {
	return max(minDeliveryLog, 4*maxInFlight)
}

// Failed records one more failure of the message and its cause, which may be
// nil. Of the cause it keeps ErrorText.
func (l *DeliveryLog) Failed(key string, cause error) {
	text := ErrorText(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	f, _ := l.failures.Get(key)
	l.failures.Put(key, failure{count: f.count + 1, lastError: text})
}

// Delivered returns Incoming.DeliveryCount (1 and the failures recorded so far)
// and Incoming.LastError ("" if none) for a message about to be handed out. It
// records nothing: a delivery that comes back without having failed does not
// count.
func (l *DeliveryLog) Delivered(key string) (count int, lastError string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, _ := l.failures.Get(key)
	return 1 + f.count, f.lastError
}

// Forget drops what is known of a message, which is completed or moved away.
func (l *DeliveryLog) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures.Delete(key)
}

// Len returns how many messages the log remembers.
func (l *DeliveryLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Len()
}

// DeliveryKey returns the key of a message in a DeliveryLog: its NativeID or,
// for a foreign message without one, a hash of its headers and body. Two
// foreign messages with the same content share a key, and so a count.
func DeliveryKey(in *core.Incoming) string {
	if in.NativeID != "" {
		return in.NativeID
	}
	// Every part is preceded by its length, so that no two contents run
	// together into the same input. Header order is not part of the content:
	// some brokers do not keep it.
	h := sha256.New()
	hashPart(h, in.Body)
	headers := in.Headers.Map()
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		hashPart(h, []byte(key))
		hashPart(h, []byte(headers[key]))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func hashPart(h hash.Hash, part []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	h.Write(length[:])
	h.Write(part)
}

// ErrorText returns what an adapter keeps of a cause given to Abandon: the
// error's text as valid UTF-8, cut to MaxErrorText bytes without splitting a
// character. It is "" for nil.
func ErrorText(cause error) string {
	if cause == nil {
		return ""
	}
	text := cause.Error()
	if len(text) > MaxErrorText {
		end := MaxErrorText
		for end > MaxErrorText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = strings.Clone(text[:end]) // a slice would keep all of it alive
	}
	return strings.ToValidUTF8(text, "?") // one byte: the text does not grow again
}
