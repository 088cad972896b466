package asb

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Check reaches the service and verifies that all queues of the topology exist. It peeks
// into the endpoint's own queues, which needs the right Listen, and opens links for
// sending to the other ones.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.check(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("asb: check: %w", transport.Unavailable(ctx, err, transient))
	}
	return nil
}

func (t *Transport) check(ctx context.Context, topology core.Topology) error {
	if err := t.checkExpiry(topology); err != nil {
		return err
	}
	var errs []error
	for _, queue := range topology.Queues {
		address, err := t.cfg.names().QueueAddress(queue)
		switch {
		case err != nil:
		case queue == topology.InputQueue:
			err = t.reach(ctx, address)
		default:
			err = t.reachToSend(ctx, address)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the queue %q: %w", queue, t.explained(err)))
			if ctx.Err() != nil || transient(err) {
				break // the other queues would fail in the same way
			}
		}
	}
	return errors.Join(errs...)
}

// reachToSend verifies that messages can be sent to a queue.
func (t *Transport) reachToSend(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sender, err := t.sending.sender(ctx, t.cfg.QueuePrefix+address)
	if err != nil {
		return err
	}
	defer t.sending.release(sender)
	if _, err = sender.newBatch(ctx); err != nil {
		t.closeIfUnusable(sender, err)
	}
	return err
}

// reach verifies that a queue exists and can be received from, with the right Listen.
func (t *Transport) reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, err := t.cfg.connect()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(ctx) }()
	name, sub := t.cfg.names().Source(address)
	if t.cfg.names().KeepsGroups(address) {
		_, err := listSessions(ctx, client, name)
		return err
	}
	sdk, err := client.Receiver(ctx, name, &azservicebus.ReceiverOptions{SubQueue: sub})
	if err != nil {
		return err
	}
	return sdkclient.Peek(ctx, client, sdk)
}

// listSessions asks a queue for its sessions, to check that it exists: without a session
// the SDK has no link to it.
func listSessions(ctx context.Context, c *sdkclient.Client, name string) ([]string, error) {
	return sdkclient.Call(ctx, c, "list sessions", func() ([]string, error) {
		page, err := c.SDK.NewListSessionsForQueuePager(name, nil).NextPage(ctx)
		return page.Sessions, err
	}, nil)
}
