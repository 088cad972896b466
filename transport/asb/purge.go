package asb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Purge implements core.Remover. It receives and completes messages until none is left of
// those that existed when it began: a delayed message that becomes due later stays.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	removed, err := t.purge(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("asb: purge %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return removed, nil
}

// purgeIdle is the longest time that the service may take for the next message of a queue
// that is not empty.
const purgeIdle = 2 * time.Second

const (
	// purgeSessionIdle is that time for the next message of a session. A message that is
	// missed is found when its session is offered again.
	purgeSessionIdle = purgeIdle / 4
	// purgeFirst is how long the first session may take, which costs some ten requests. How long it took tells how long a further one may.
	purgeFirst = 15 * time.Second
	// maxKept is the most sessions with later messages that Purge skips.
	maxKept = 100
)

func (t *Transport) purge(ctx context.Context, queue string) (removed int, err error) {
	if err := t.life.Err(ctx); err != nil {
		return 0, err
	}
	address, err := t.cfg.names().QueueAddress(queue)
	if err != nil {
		return 0, err
	}
	client, err := t.cfg.connect()
	if err != nil {
		return 0, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		_ = client.Close(ctx)
	}()
	began := t.clock.Now()
	name, sub := t.cfg.names().Source(address)
	if t.cfg.names().KeepsGroups(address) {
		return purgeSessions(ctx, client, name, began)
	}
	var sdk *azservicebus.Receiver
	open := func(ctx context.Context) (err error) {
		sdk, err = client.Receiver(ctx, name, &azservicebus.ReceiverOptions{SubQueue: sub})
		return err
	}
	err = attempt(ctx, requestTimeout, func(ctx context.Context) error {
		if err := open(ctx); err != nil {
			return err
		}
		return sdkclient.Peek(ctx, client, sdk)
	})
	if err != nil {
		return 0, err
	}
	p := purging{client: client, sdk: sdk, began: began}
	err = p.drain(ctx, purgeIdle)
	// The service would send released messages to this link again, so it gets the requested
	// ones before.
	if err == nil {
		err = p.gather(ctx, p.complete)
	}
	if err != nil { // messages are released also if the call ends early
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		_ = p.gather(ctx, p.keep)
	}
	p.close(ctx)
	if len(p.unremoved) == 0 {
		return p.removed, err
	}
	openErr := attempt(ctx, requestTimeout, open)
	if openErr == nil {
		openErr = release(ctx, client, sdk, p.unremoved, sub)
	}
	return p.removed, errors.Join(err, openErr)
}

// release releases messages by their lock tokens alone.
func release(ctx context.Context, c *sdkclient.Client, sdk settler, messages []*azservicebus.ReceivedMessage, sub azservicebus.SubQueue) error {
	errs := make([]error, len(messages))
	var settling sync.WaitGroup
	for i, m := range messages {
		bare := &azservicebus.ReceivedMessage{LockToken: m.LockToken}
		var properties map[string]any
		if sub != azservicebus.SubQueueDeadLetter { // there deliveries are not counted
			state := message.StateOf(m, false)
			state.Released++
			properties = state.Properties(m)
		}
		settling.Go(func() {
			errs[i] = attempt(ctx, requestTimeout, func(ctx context.Context) error {
				return c.Do(ctx, "settle", func() error { return abandon(properties)(ctx, sdk, bare) })
			})
		})
	}
	settling.Wait()
	return errors.Join(errs...)
}

// purgeSessions empties the sessions that no receiver has locked.
func purgeSessions(ctx context.Context, c *sdkclient.Client, name string, began time.Time) (removed int, err error) {
	var sessions []string
	err = attempt(ctx, requestTimeout, func(ctx context.Context) (err error) {
		sessions, err = listSessions(ctx, c, name)
		return err
	})
	if err != nil {
		return 0, err
	}
	patience := purgeIdle
	if len(sessions) > 0 {
		patience = purgeFirst
	}
	var kept []*purging // sessions whose messages came later: the service would offer these sessions again
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		for _, p := range kept {
			p.close(ctx) // which ends the locks of its messages
		}
	}()
	for {
		asked := time.Now()
		accept, cancel := context.WithTimeout(ctx, patience)
		sdk, err := sdkclient.Call(accept, c, "accept a session", func() (*azservicebus.SessionReceiver, error) {
			return c.SDK.AcceptNextSessionForQueue(accept, name, nil)
		}, nil)
		cancel()
		patience = max(purgeIdle, 3*time.Since(asked))
		switch {
		case ctx.Err() != nil:
			return removed, ctx.Err()
		case err != nil && (isContext(err) || faultOf(err) == faultNoSession):
			return removed, nil
		case err != nil:
			return removed, err
		}
		p := &purging{client: c, sdk: sdk, began: began}
		err = p.drain(ctx, purgeSessionIdle)
		removed += p.removed
		if p.removed == 0 || len(p.unremoved) > 0 {
			kept = append(kept, p)
		} else {
			p.close(ctx)
		}
		if err != nil || len(kept) == maxKept {
			return removed, err
		}
	}
}

// purging is the purge of a queue or a session through one link.
type purging struct {
	client *sdkclient.Client
	sdk    interface {
		settler
		sdkclient.Source
		Close(ctx context.Context) error
	}
	began     time.Time // by the service's clock
	credit    int       // most messages that were requested and have not arrived
	removed   int
	unremoved []*azservicebus.ReceivedMessage // became available afterwards, or were not completed
}

// fetch receives at most most messages, and waits at most idle for the first one.
func (p *purging) fetch(ctx context.Context, limit int, idle time.Duration) ([]*azservicebus.ReceivedMessage, error) {
	wait, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	messages, err := sdkclient.Fetch(wait, p.client, p.sdk, limit, nil)
	p.credit = max(p.credit, limit) - len(messages)
	if ctx.Err() == nil && isContext(err) {
		err = nil // no message arrived
	}
	return messages, err
}

// close closes the link.
func (p *purging) close(ctx context.Context) {
	_ = p.client.CallClose(ctx, "close a link", p.sdk.Close) // the connection is closed soon
}

// drain completes messages until none is left that was available before the purge began.
// The first one may take purgeIdle, each further one idle. Messages are received in order,
// except that the SDK releases those that arrive between two calls, and the service sends
// them again after others. So drain ends when a call brings later messages alone.
func (p *purging) drain(ctx context.Context, idle time.Duration) error {
	for patience := purgeIdle; ; patience = idle {
		messages, err := p.fetch(ctx, maxRequested, patience)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return nil
		}
		removed := p.removed
		if err := p.complete(ctx, messages); err != nil || p.removed == removed {
			return err
		}
	}
}

// gather receives requested messages that have not arrived yet, as link.close does:
// otherwise they would stay locked. It calls take with them.
func (p *purging) gather(ctx context.Context, take func(context.Context, []*azservicebus.ReceivedMessage) error) error {
	for p.credit > 0 {
		messages, err := p.fetch(ctx, p.credit, purgeSessionIdle)
		if err != nil || len(messages) == 0 {
			return err
		}
		if err := take(ctx, messages); err != nil {
			return err
		}
	}
	return nil
}

// keep keeps messages for release.
func (p *purging) keep(_ context.Context, messages []*azservicebus.ReceivedMessage) error {
	p.unremoved = append(p.unremoved, messages...)
	return nil
}

// complete completes messages that were available when the purge began, and keeps the
// others.
func (p *purging) complete(ctx context.Context, messages []*azservicebus.ReceivedMessage) error {
	errs := make([]error, len(messages))
	var settling sync.WaitGroup
	for i, m := range messages {
		if availableAfter(m, p.began) {
			p.unremoved = append(p.unremoved, m)
			continue
		}
		p.removed++
		settling.Go(func() {
			errs[i] = attempt(ctx, requestTimeout, func(ctx context.Context) error {
				return p.client.Do(ctx, "settle", func() error { return complete(ctx, p.sdk, m) })
			})
		})
	}
	settling.Wait()
	for i, err := range errs {
		if err != nil {
			p.removed--
			p.unremoved = append(p.unremoved, messages[i])
		}
	}
	return errors.Join(errs...)
}

// availableAfter reports whether a message became available after a time.
func availableAfter(m *azservicebus.ReceivedMessage, t time.Time) bool {
	return m.EnqueuedTime != nil && m.EnqueuedTime.After(t) || m.ScheduledEnqueueTime != nil && m.ScheduledEnqueueTime.After(t)
}
