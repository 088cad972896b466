package asb

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// peeking has the links for peeking, which share a connection. No message is requested on them.
type peeking struct {
	t *Transport

	mu     sync.Mutex // guards the fields below
	closed bool
	client *sdkclient.Client    // nil: none
	links  map[string]*peekLink // of client, by address
}

// peekLink is a link for peeking into one queue.
type peekLink struct {
	address string
	client  *sdkclient.Client
	sdk     *azservicebus.Receiver
	// timeToLive returns the longest of a message in the queue, or 0 if that is not known.
	timeToLive func() time.Duration
}

// maxPeekLinks is the most queues that have links for peeking at the same time.
const maxPeekLinks = 32

// link returns the link to a queue. used reports whether there was one already.
func (p *peeking) link(address string) (l *peekLink, used bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, core.ErrClosed
	}
	if p.client == nil || p.client.Stuck() {
		if p.client, err = p.t.cfg.connect(); err != nil { // does not contact the service
			return nil, false, err
		}
		p.links = map[string]*peekLink{}
	}
	if l := p.links[address]; l != nil {
		return l, true, nil
	}
	if len(p.links) >= maxPeekLinks {
		for _, l := range p.links {
			p.dropLinkLocked(l)
			break
		}
	}
	name, sub := p.t.cfg.names().Source(address)
	l = &peekLink{address: address, client: p.client, timeToLive: sync.OnceValue(func() time.Duration { return p.t.readTimeToLive(name) })}
	// The SDK's receiver opens its link when it is first used.
	if l.sdk, err = p.client.SDK.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: sub}); err != nil {
		return nil, false, err
	}
	p.links[address] = l
	return l, false, nil
}

// readTimeToLive returns the longest time to live of a message in a queue, or 0 if the program may not know it.
func (t *Transport) readTimeToLive(name string) time.Duration {
	if t.cfg.NoAdmin {
		return 0
	}
	ctx, cancel := context.WithTimeout(t.life.Context(), requestTimeout)
	defer cancel()
	has, err := t.admin.GetQueue(ctx, name, nil)
	if err != nil || has == nil {
		return 0
	}
	return longestLife(&has.QueueProperties)
}

// longestLife returns the longest time to live of a message in a queue.
func longestLife(p *admin.QueueProperties) time.Duration {
	if d, limited := parseDuration(value(p.DefaultMessageTimeToLive)); limited {
		return d
	}
	return math.MaxInt64 // forever
}

// drop closes a link after an error, or the connection if that is lost. lost reports whether it was, now or before.
func (p *peeking) drop(l *peekLink, connectionLost bool) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.client != l.client:
		return true
	case connectionLost:
		p.closeAsync(l.client.Close)
		p.client, p.links = nil, nil
	default:
		p.dropLinkLocked(l)
	}
	return connectionLost
}

func (p *peeking) dropLinkLocked(l *peekLink) {
	if p.links[l.address] == l {
		delete(p.links, l.address)
		p.closeAsync(func(ctx context.Context) error { return l.client.CallClose(ctx, "close a link", l.sdk.Close) })
	}
}

// closeAsync closes a link or a connection. If the transport is closed, its connection is.
func (p *peeking) closeAsync(closeNow func(context.Context) error) {
	p.t.life.Go(func() {
		ctx, cancel := context.WithTimeout(p.t.life.Context(), closeGrace)
		defer cancel()
		_ = closeNow(ctx) // it is lost, or no longer needed
	})
}

// close closes the connection permanently.
func (p *peeking) close(ctx context.Context) {
	p.mu.Lock()
	client := p.client
	p.closed, p.client, p.links = true, nil, nil
	p.mu.Unlock()
	if client != nil {
		_ = client.Close(ctx) // a client that cannot be closed is aborted
	}
}
