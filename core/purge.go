package core

import (
	"context"
	"errors"
	"fmt"
)

// purge empties the input queue if PurgeOnStart is set.
func (ep *Endpoint) purge(ctx context.Context) error {
	if !ep.config.PurgeOnStart {
		return nil
	}
	queue := ep.inputQueue()
	p, ok := ep.transport.(Purger) // New has checked it
	if !ok {
		return fmt.Errorf("purge queue %q: the transport cannot empty queues: %w", queue, errors.ErrUnsupported)
	}
	removed, err := p.Purge(ctx, queue)
	if err != nil {
		return fmt.Errorf("purge queue %q: %w", queue, err)
	}
	ep.log.endpoint.Warn("input queue was emptied before the first message, as Config.PurgeOnStart says", "queue", ep.address, "messages", removed)
	return nil
}
