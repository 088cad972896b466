package rabbitmq

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// sizeLimit remembers the broker's max_message_size, which AMQP does not tell: the broker
// closes the channel on which a larger message arrives, and other messages in flight on it
// may be lost. The limit may be lower than Config.MaxMessageBytes, and lower than the size
// of a message that the broker has accepted before.
type sizeLimit struct {
	connected func() bool // the publishing connection, over which the broker told the limit, still exists

	limit atomic.Int64 // of the body; 0 means unknown

	mu    sync.Mutex
	since time.Time // when the broker told the limit
}

// sizeLimitTTL is how long a limit is trusted: the broker's limit can be raised without a
// restart.
const sizeLimitTTL = 5 * time.Minute

// tooLargeReason matches the reason for closing a channel after a message larger than
// max_message_size.
var tooLargeReason = regexp.MustCompile(`message size \d+ is larger than (?:configured )?max size (\d+)`)

// learn reports whether an error of a send contains the limit, and remembers it.
func (s *sizeLimit) learn(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	if !ok || !said.Server || said.Code != amqp.PreconditionFailed {
		return false
	}
	parts := tooLargeReason.FindStringSubmatch(said.Reason)
	if parts == nil {
		return false
	}
	limit, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || limit < 1 || limit > math.MaxInt {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit.Load() != limit {
		s.since = time.Now()
		s.limit.Store(limit)
	}
	return true
}

// check returns an error for a body that the broker would refuse, as far as is known.
func (s *sizeLimit) check(body int) error {
	limit := s.limit.Load()
	if limit == 0 || int64(body) <= limit {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.since) > sizeLimitTTL || !s.connected() { // the broker may have been restarted
		s.limit.Store(0)
		return nil
	}
	return fmt.Errorf("%w; raise max_message_size in the broker's configuration (rabbitmq.conf) to %d at least",
		&core.TooLargeError{Limit: "the broker's max_message_size", Max: int(limit), Size: body}, body)
}

// forget forgets the limit because there is a new connection.
func (s *sizeLimit) forget() { s.limit.Store(0) }
