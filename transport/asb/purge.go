package asb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// Purge implements core.Purger. It receives and completes messages until none is left that was there when it began: a delayed one that becomes
// due in the meantime stays.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	removed, err := t.purge(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("asb: purge %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return removed, nil
}

// purgeIdle is how long the service may take for the next message of a queue that is not empty.
const purgeIdle = 2 * time.Second

const (
	// purgeSessionIdle is the same for the next message of a session. One that is left is found when its session is offered again.
	purgeSessionIdle = purgeIdle / 4
	// mostKept is how many sessions with later messages Purge passes over.
	mostKept = 100
)

func (t *Transport) purge(ctx context.Context, queue string) (removed int, err error) {
	if err := t.life.Err(ctx); err != nil {
		return 0, err
	}
	address, err := t.cfg.queueAddress(queue)
	if err != nil {
		return 0, err
	}
	client, err := t.connect()
	if err != nil {
		return 0, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		_ = client.Close(ctx)
	}()
	began := t.clock.Now()
	name, sub := t.cfg.source(address)
	if t.cfg.keepsGroups(address) {
		return purgeSessions(ctx, client, name, began)
	}
	sdk, err := client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: sub})
	if err != nil {
		return 0, err
	}
	if err := peek(ctx, sdk); err != nil {
		return 0, err
	}
	removed, later, err := drain(ctx, sdk, began, purgeIdle)
	if err != nil || len(later) == 0 {
		return removed, err
	}
	// The service would send them to this link again.
	_ = sdk.Close(ctx)
	if sdk, err = client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: sub}); err != nil {
		return removed, err
	}
	return removed, release(ctx, sdk, later)
}

// release gives messages back by their locks alone.
func release(ctx context.Context, sdk settler, messages []*azservicebus.ReceivedMessage) error {
	errs := make([]error, len(messages))
	var settling sync.WaitGroup
	for i, m := range messages {
		bare := &azservicebus.ReceivedMessage{LockToken: m.LockToken}
		properties := map[string]any{propertyReleased: int64(releasedOf(m) + 1)}
		settling.Go(func() { errs[i] = abandon(properties)(ctx, sdk, bare) })
	}
	settling.Wait()
	return errors.Join(errs...)
}

// purgeSessions empties the sessions that no receiver has.
func purgeSessions(ctx context.Context, client *azservicebus.Client, name string, began time.Time) (removed int, err error) {
	if err := listSessions(ctx, client, name); err != nil {
		return 0, err
	}
	var kept []*azservicebus.SessionReceiver // of sessions whose messages came later: the service would offer these again
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		for _, sdk := range kept {
			_ = sdk.Close(ctx) // which ends the locks of its messages
		}
	}()
	for {
		accept, cancel := context.WithTimeout(ctx, purgeIdle)
		sdk, err := client.AcceptNextSessionForQueue(accept, name, nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return removed, ctx.Err()
		case err != nil && (isContext(err) || faultOf(err) == faultNoSession):
			return removed, nil
		case err != nil:
			return removed, err
		}
		n, later, err := drain(ctx, sdk, began, purgeSessionIdle)
		removed += n
		if n == 0 || len(later) > 0 {
			kept = append(kept, sdk)
		} else {
			_ = sdk.Close(ctx)
		}
		if err != nil || len(kept) == mostKept {
			return removed, err
		}
	}
}

// drain completes messages until there is none that was available before a time of the service's clock. It returns the others that came.
func drain(ctx context.Context, sdk interface {
	settler
	source
}, began time.Time, idle time.Duration) (removed int, later []*azservicebus.ReceivedMessage, err error) {
	for {
		wait, cancel := context.WithTimeout(ctx, idle)
		messages, err := fetch(wait, sdk, mostAsked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return removed, later, ctx.Err()
		case err != nil && !isContext(err):
			return removed, later, err
		case len(messages) == 0:
			return removed, later, nil
		}
		var done []*azservicebus.ReceivedMessage
		for _, m := range messages {
			if availableAfter(m, began) {
				later = append(later, m)
			} else {
				done = append(done, m)
			}
		}
		errs := make([]error, len(done))
		var settling sync.WaitGroup
		for i, m := range done {
			settling.Go(func() { errs[i] = complete(ctx, sdk, m) })
		}
		settling.Wait()
		if err := errors.Join(errs...); err != nil {
			return removed, later, err
		}
		if removed += len(done); len(later) > 0 {
			return removed, later, nil // messages are received in their order
		}
	}
}

// availableAfter reports whether a message became available after a time.
func availableAfter(m *azservicebus.ReceivedMessage, t time.Time) bool {
	return m.EnqueuedTime != nil && m.EnqueuedTime.After(t) || m.ScheduledEnqueueTime != nil && m.ScheduledEnqueueTime.After(t)
}
