package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// leaseDelivery is a message that is leased to this receiver. Its lease is fenced by the row's
// count of claims: after another receiver has claimed the message, statements of this one
// have no effect.
type leaseDelivery struct {
	transport.UnsupportedDelivery
	r           *leaseStrategy
	in          core.Incoming
	seq         int64
	claims      int
	due         time.Time
	expired     bool
	partial     *dialect.Row // without the contents, until they have arrived; nil: the message is complete
	lockedUntil atomic.Pointer[time.Time]

	mu    sync.Mutex
	state state

	work work
}

var _ core.Delivery = (*leaseDelivery)(nil)

// String describes the delivery without the fields of its receiver.
func (d *leaseDelivery) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.Table.Address)
}

// GoString returns the same text as String.
func (d *leaseDelivery) GoString() string { return d.String() }

// Seq implements settle.Message.
func (d *leaseDelivery) Seq() int64 { return d.seq }

// Incoming implements core.Delivery.
func (d *leaseDelivery) Incoming() *core.Incoming { return &d.in }

// usable returns an error if the message can no longer be settled.
func (d *leaseDelivery) usable(ctx context.Context) error { return cmp.Or(d.advance(held), ctx.Err()) }

// begin makes this the one settlement.
func (d *leaseDelivery) begin() error { return d.advance(settled) }

// advance changes the state of a message that is held, unless its lease has ended by our
// clock. By the server's clock it may last a little longer, but the receiver has reused
// its place.
func (d *leaseDelivery) advance(next state) error {
	d.mu.Lock()
	ending := d.state == held && !time.Now().Before(d.LockedUntil())
	if ending {
		d.state = lost
	}
	err := d.state.ended()
	if err == nil {
		d.state = next
	}
	d.mu.Unlock()
	if ending {
		d.r.settled(d)
	}
	return err
}

func (d *leaseDelivery) become(s state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = s
}

func (d *leaseDelivery) failed(ctx context.Context, operation string, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", operation, d.in.NativeID, d.r.q.Table.Address, transport.Unavailable(ctx, err, d.r.t.server.Transient))
}

// LockedUntil implements core.Delivery.
func (d *leaseDelivery) LockedUntil() time.Time { return *d.lockedUntil.Load() }
