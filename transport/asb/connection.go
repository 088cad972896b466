package asb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// connection is a connection to the service that is replaced when it is lost. The SDK
// would keep using a lost one: it recovers within the attempts of one call, and the
// adapter makes only one attempt, since a message with an unknown outcome must not be
// sent a second time without the sender's knowledge.
type connection struct {
	connect func() (*sdkclient.Client, error)
	life    *transport.Lifecycle

	mu       sync.Mutex // guards the fields below
	closed   bool
	client   *sdkclient.Client
	senders  map[string]*sender            // of client, by queue or topic
	turn     int                           // counts uses of senders
	leftover []func(context.Context) error // left for close to close, because the transport was already closed
}

// sender is a link for sending.
type sender struct {
	*azservicebus.Sender
	client *sdkclient.Client
	to     string      // queue or topic
	using  int         // calls that use it; guarded by the connection's mu
	used   int         // the connection's turn at the last use; guarded by its mu
	opened atomic.Bool // it has a link, as far as is known

	// The service has refused these: a partitioned queue or topic accepts no batch of
	// several sessions, and one that also has duplicate detection accepts no batch at
	// all.
	refusesMixed, refusesBatches atomic.Bool
}

// maxSenders is the most queues and topics that have links for sending at the same time.
// The service allows 1,000 links on a connection, and a sender has four.
const maxSenders = 200

// sender returns the sender to a queue or topic. The caller must call release.
func (c *connection) sender(ctx context.Context, to string) (*sender, error) {
	for {
		s, client, err := c.find(to)
		if s != nil || err != nil {
			return s, err
		}
		// Without the mutex, since the SDK waits while it opens a connection.
		sdk, err := sdkclient.Call(ctx, client, "open a sender", func() (*azservicebus.Sender, error) { return client.SDK.NewSender(to, nil) }, nil)
		if sdkclient.WasNotMade(err) {
			continue // with another client
		}
		if err != nil {
			return nil, err
		}
		c.add(&sender{Sender: sdk, client: client, to: to})
	}
}

// find returns the sender to a queue or topic for use, or nil and the client that has none.
func (c *connection) find(to string) (*sender, *sdkclient.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, core.ErrClosed
	}
	if c.client == nil || c.client.Stuck() {
		client, err := c.connect()
		if err != nil {
			return nil, nil, err
		}
		client.Replace = c.replace
		c.client, c.senders = client, map[string]*sender{}
	}
	s := c.senders[to]
	if s != nil {
		c.turn++
		s.using++
		s.used = c.turn
	}
	return s, c.client, nil
}

// add adds a sender, unless there is one already, or its client is no longer in use.
func (c *connection) add(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != s.client {
		return // the client is being closed
	}
	if c.senders[s.to] != nil {
		c.closeAsyncLocked(s.close)
		return
	}
	if len(c.senders) >= maxSenders {
		c.dropLocked()
	}
	c.senders[s.to] = s
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
		c.closeAsyncLocked(oldest.close)
	}
}

// forget closes a sender, for example because its queue or topic does not exist, so that
// the next message opens a new one.
func (c *connection) forget(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders[s.to] == s {
		delete(c.senders, s.to)
		c.closeAsyncLocked(s.close)
	}
}

// lost closes the connection of a sender, which is lost, so that the next message opens a
// new one.
func (c *connection) lost(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == s.client {
		c.client, c.senders = nil, nil
		c.closeAsyncLocked(s.client.Close)
	}
}

// replace lets further messages use another client than the one of which a call was given
// up. The messages on it that wait for an answer keep their connection until their contexts
// have ended.
func (c *connection) replace(stuck *sdkclient.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == stuck {
		c.client, c.senders = nil, nil
	}
	switch {
	case c.closed:
		stuck.Abort()
	case !c.life.Go(func() {
		_ = transport.Sleep(c.life.Context(), c.life.Context(), requestTimeout, nil) // or the transport is closed
		stuck.Abort()
	}):
		c.leftover = append(c.leftover, func(context.Context) error { stuck.Abort(); return nil })
	}
}

// close closes the links of the sender.
func (s *sender) close(ctx context.Context) error {
	return s.client.CallClose(ctx, "close a sender", s.Close)
}

// closeGrace is how long the closing of links may take.
const closeGrace = 10 * time.Second

func (c *connection) closeAsyncLocked(closeLink func(context.Context) error) {
	if !c.life.Go(func() {
		ctx, cancel := context.WithTimeout(c.life.Context(), closeGrace)
		defer cancel()
		_ = closeLink(ctx) // the connection is lost, or no longer needed
	}) {
		c.leftover = append(c.leftover, closeLink)
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
	var running sync.WaitGroup
	for _, closeLink := range closing {
		running.Go(func() { _ = closeLink(ctx) }) // a client that cannot be closed is aborted
	}
	running.Wait()
}
