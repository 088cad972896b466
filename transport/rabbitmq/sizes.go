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

// sizes remembers the broker's max_message_size, which AMQP does not tell: the broker
// closes the channel of a larger message, and the other messages that are in flight on it
// may be lost. It may be lower than Config.MaxMessageBytes, and lower than a message that
// the broker has accepted before.
type sizes struct {
	connected func() bool // the connection for sending is that of the broker that told it

	limit atomic.Int64 // of the body; 0 is not known

	mu    sync.Mutex
	since time.Time // when the limit was told
}

// sizesLast is for how long a limit is taken for that of the broker: it can be raised
// without a restart.
const sizesLast = 5 * time.Minute

// tooLargeReason is how a channel is closed for a message larger than max_message_size.
var tooLargeReason = regexp.MustCompile(`message size \d+ is larger than (?:configured )?max size (\d+)`)

// learn reports whether an error of a send tells the limit, and remembers it then.
func (s *sizes) learn(err error) bool {
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
func (s *sizes) check(body int) error {
	limit := s.limit.Load()
	if limit == 0 || int64(body) <= limit {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.since) > sizesLast || !s.connected() { // it may have been restarted
		s.limit.Store(0)
		return nil
	}
	return fmt.Errorf("%w; raise max_message_size in the broker's configuration (rabbitmq.conf) to %d at least",
		&core.TooLargeError{Limit: "the broker's max_message_size", Max: int(limit), Size: body}, body)
}

// forget forgets the limit, as there is a new connection.
func (s *sizes) forget() { s.limit.Store(0) }
