package sqlserver

import (
	"context"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// checkRights checks the rights that every endpoint needs, in any mode and with any
// retries, to receive from its queues and to send to others, and the rights in needed.
func (t *Transport) checkRights(ctx context.Context, inputs, others []*queues.Queue, needed []dialect.Right) ([]error, error) {
	for _, q := range inputs {
		needed = append(needed, t.dialect.Receiving(q.Table)...)
	}
	for _, q := range others {
		needed = append(needed, t.dialect.Sending(q.Table, q.Kind() == queues.NServiceBus)...)
	}
	return t.server.Missing(ctx, needed)
}
