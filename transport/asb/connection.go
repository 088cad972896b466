package asb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// connection is a connection to the service that is replaced when it is lost. The SDK
// would keep using a lost one: it recovers within the attempts of one call, and the
// adapter makes only one attempt, since a message with an unknown outcome must not be
// sent a second time without the sender's knowledge.
type connection struct {
	connect func() (*azservicebus.Client, error)
	life    *transport.Lifecycle

	mu       sync.Mutex // guards the fields below
	closed   bool
	client   *azservicebus.Client
	senders  map[string]*sender            // of client, by queue or topic
	turn     int                           // counts uses of senders
	leftover []func(context.Context) error // left for close to close, because the transport was already closed
}

// sender is a link for sending.
type sender struct {
	*azservicebus.Sender
	client *azservicebus.Client
	to     string      // queue or topic
	using  int         // calls that use it; guarded by the connection's mu
	used   int         // the connection's turn at the last use; guarded by its mu
	opened atomic.Bool // it has a link, as far as is known

	// The service has refused these: a partitioned queue or topic accepts no batch of
	// several sessions, and one that also has duplicate detection accepts no batch at
	// all.
	refusesMixed, refusesBatches atomic.Bool
}

// mostSenders is the most queues and topics that have links for sending at the same time.
// The service allows 1,000 links on a connection, and a sender has four.
const mostSenders = 200

// sender returns the sender to a queue or topic. The caller must call release.
func (c *connection) sender(to string) (*sender, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, core.ErrClosed
	}
	if c.client == nil {
		client, err := c.connect()
		if err != nil {
			return nil, err
		}
		c.client, c.senders = client, map[string]*sender{}
	}
	s := c.senders[to]
	if s == nil {
		sdk, err := c.client.NewSender(to, nil)
		if err != nil {
			return nil, err
		}
		if len(c.senders) >= mostSenders {
			c.dropLocked()
		}
		s = &sender{Sender: sdk, client: c.client, to: to}
		c.senders[to] = s
	}
	c.turn++
	s.using++
	s.used = c.turn
	return s, nil
}

// has reports whether a sender is still the current one of its queue or topic. Once the
// connection is closed, it returns true for every sender.
func (c *connection) has(s *sender) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.senders[s.to] == s
}

// release ends the use of a sender.
func (c *connection) release(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.using--
}

// dropLocked closes the least recently used sender that is not in use, if there is one.
func (c *connection) dropLocked() {
	var oldest *sender
	for _, s := range c.senders {
		if s.using == 0 && (oldest == nil || s.used < oldest.used) {
			oldest = s
		}
	}
	if oldest != nil {
		delete(c.senders, oldest.to)
		c.closeLaterLocked(oldest.Close)
	}
}

// forget closes a sender, for example because its queue or topic does not exist, so that
// the next message opens a new one.
func (c *connection) forget(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders[s.to] == s {
		delete(c.senders, s.to)
		c.closeLaterLocked(s.Close)
	}
}

// lost closes the connection of a sender, which is lost, so that the next message opens a
// new one.
func (c *connection) lost(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == s.client {
		c.client, c.senders = nil, nil
		c.closeLaterLocked(s.client.Close)
	}
}

// closeGrace is how long the closing of links may take.
const closeGrace = 10 * time.Second

func (c *connection) closeLaterLocked(closeNow func(context.Context) error) {
	if !c.life.Go(func() {
		ctx, cancel := context.WithTimeout(c.life.Context(), closeGrace)
		defer cancel()
		_ = closeNow(ctx) // the connection is lost, or no longer needed
	}) {
		c.leftover = append(c.leftover, closeNow)
	}
}

// close closes the connection permanently.
func (c *connection) close(ctx context.Context) {
	c.mu.Lock()
	closing := c.leftover
	if c.client != nil {
		closing = append(closing, c.client.Close)
	}
	c.closed, c.client, c.senders, c.leftover = true, nil, nil, nil
	c.mu.Unlock()
	for _, closeNow := range closing {
		_ = closeNow(ctx)
	}
}
