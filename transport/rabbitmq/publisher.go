package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/wire"
)

// publisher sends on one channel with publisher confirms, and opens the next one when that
// is lost. One goroutine writes; callers wait for the confirms of their own messages.
type publisher struct {
	t         *Transport
	conns     *connManager
	batches   chan *publishBatch
	startOnce sync.Once
	started   bool // the goroutine was started; written within startOnce

	// Only the goroutine uses the fields below.
	channel    *confirmChannel
	watchTimer *time.Timer
	corked     *wire.Conn // nil: none

	openErr      error // the error of the last attempt to open a channel, nil if there is one
	openFailedAt time.Time
}

// publishBatch is the messages of one call on one channel.
type publishBatch struct {
	publications []publication
	queuedAt     time.Time
	done         chan struct{}   // closed when the publisher is done with it
	channel      *confirmChannel // the channel it was sent on; set before done is closed

	mu       sync.Mutex // guards the fields below, until done is closed
	started  int        // number of publications that may have been written
	canceled bool
	err      error // why the publications from started on were not written
}

// publication is one message that is being sent.
type publication struct {
	index         int // of the message in its Send
	exchange, key string
	mandatory     bool
	event         bool // to a topic, and so perhaps to several queues
	copyID        string
	publishing    amqp.Publishing
	confirm       *amqp.DeferredConfirmation // nil: it was not written completely
}

func newPublisher(t *Transport, conns *connManager) *publisher {
	return &publisher{t: t, conns: conns, batches: make(chan *publishBatch)}
}

// send passes publications to the broker and reports the result of each. The end of ctx
// ends the waiting, but not sends in progress.
func (p *publisher) send(ctx context.Context, publications []publication, report func(m *publication, state core.SendState, err error)) {
	if len(publications) == 0 {
		return
	}
	refuse := func(err error) {
		for i := range publications {
			report(&publications[i], core.SendRefused, err)
		}
	}
	p.startOnce.Do(func() { p.started = p.t.life.Go(p.run) })
	if !p.started {
		refuse(core.ErrClosed)
		return
	}
	b := &publishBatch{publications: publications, queuedAt: time.Now(), done: make(chan struct{})}
	select {
	case p.batches <- b:
	case <-ctx.Done():
		refuse(fmt.Errorf("waiting to be sent: %w", ctx.Err()))
		return
	case <-p.t.life.Context().Done():
		refuse(core.ErrClosed)
		return
	}
	b.await(ctx)
	b.report(ctx, report)
}

// await returns when all confirms have arrived or the caller no longer waits for them.
func (b *publishBatch) await(ctx context.Context) {
	select {
	case <-b.done:
	case <-ctx.Done():
		b.cancel()
		return
	}
	for i := range b.publications {
		if b.publications[i].confirm == nil {
			return
		}
		select {
		case <-b.publications[i].confirm.Done():
		case <-b.channel.abandoned:
		case <-ctx.Done():
			b.cancel() // later confirms must not keep returns
			return
		}
	}
}

// cancel starts no more publications, and lets the results of started ones be forgotten.
func (b *publishBatch) cancel() {
	b.mu.Lock()
	b.canceled = true
	b.mu.Unlock()
}

// report reports the result of each publication.
func (b *publishBatch) report(ctx context.Context, report func(m *publication, state core.SendState, err error)) {
	select {
	case <-b.done:
	default: // it is still being written
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := range b.publications {
			if i < b.started {
				report(&b.publications[i], core.SendUnknown, fmt.Errorf("waiting for its confirm: %w", ctx.Err()))
			} else {
				report(&b.publications[i], core.SendRefused, fmt.Errorf("waiting to be sent: %w", ctx.Err()))
			}
		}
		return
	}
	if b.channel != nil {
		b.channel.collectReturns()
	}
	for i := range b.publications {
		m := &b.publications[i]
		switch {
		case i >= b.started && b.err == nil: // the publisher noticed first that the caller no longer waits
			report(m, core.SendRefused, fmt.Errorf("waiting to be sent: %w", ctx.Err()))
		case i >= b.started:
			report(m, core.SendRefused, b.err)
		case m.confirm == nil:
			report(m, core.SendUnknown, b.err)
		default:
			state, err := b.channel.outcome(ctx, m)
			report(m, state, err)
		}
	}
}

// start claims the next publication for writing. It returns false if the caller no longer
// waits.
func (b *publishBatch) start(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.canceled {
		return false
	}
	b.started = i + 1
	return true
}

// fail records why publications were not sent.
func (b *publishBatch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (p *publisher) run() {
	p.watchTimer = time.NewTimer(watchInterval)
	p.watchTimer.Stop()
	defer p.watchTimer.Stop()
	for {
		select {
		case b := <-p.batches:
			p.publish(b)
			p.publishQueued()
			p.uncork()
		case <-p.watchTimer.C:
			p.channel.collectConfirms(nil)
		case <-p.t.life.Context().Done():
			return
		}
		if p.channel != nil && len(p.channel.unconfirmed) > p.channel.head {
			p.watchTimer.Reset(watchInterval)
		}
	}
}

// publishQueued publishes the batches that wait at this moment, so that they are written
// together.
func (p *publisher) publishQueued() {
	for {
		select {
		case b := <-p.batches:
			p.publish(b)
		default:
			return
		}
	}
}

// cork buffers published messages until uncork, which is called before any wait for the
// broker.
func (p *publisher) cork(c *wire.Conn) {
	if p.corked == nil {
		c.Cork()
		p.corked = c
	}
}

func (p *publisher) uncork() {
	if p.corked != nil {
		p.corked.Uncork()
		p.corked = nil
	}
}

func (p *publisher) publish(b *publishBatch) {
	defer close(b.done)
	if p.openErr != nil && b.queuedAt.Before(p.openFailedAt) { // it has already waited during that attempt
		b.fail(p.openErr)
		return
	}
	c, err := p.openChannel()
	if err == nil {
		err = p.t.blocked.wait(p.t.life.Context(), p.uncork)
	}
	p.openErr = nil
	if err != nil {
		p.openErr, p.openFailedAt = fmt.Errorf("not connected: %w", err), time.Now()
		b.fail(p.openErr)
		return
	}
	b.channel = c
	for i := range b.publications {
		m := &b.publications[i]
		if i%maxUnconfirmed == 0 {
			c.collectReturns()
		}
		if c.collectConfirms(p.uncork); c.isAbandoned() {
			b.fail(c.closeReason())
			return
		}
		if !b.start(i) {
			return
		}
		p.cork(c.conn.netConn)
		m.confirm, err = c.ch.PublishWithDeferredConfirm(m.exchange, m.key, m.mandatory, false, m.publishing)
		p.t.format.Recycle(m.publishing.Headers)
		m.publishing = amqp.Publishing{} // its caller may wait long
		if err != nil {
			if why := c.closeReason(); why != nil {
				err = why
			}
			b.fail(fmt.Errorf("the connection was lost: %w", err))
			return
		}
		if len(c.unconfirmed) == c.head {
			c.setOldest(m.confirm)
		}
		c.unconfirmed = append(c.unconfirmed, pendingConfirm{m.confirm, b, m.copyID})
	}
}

// openChannel returns the channel, or a new one if the last is lost.
func (p *publisher) openChannel() (*confirmChannel, error) {
	last := p.channel
	if last != nil && !last.isAbandoned() && !last.ch.IsClosed() {
		return last, nil
	}
	p.uncork()
	timeout := firstConfirmTimeout
	if last != nil && last.isAbandoned() {
		timeout = min(2*last.confirmTimeout, maxConfirmTimeout)
		select {
		case <-last.discarded: // or the next channel would be closed with the connection
		case <-p.t.life.Context().Done():
			return nil, core.ErrClosed
		}
	} else if last != nil && !last.confirmedAny {
		timeout = last.confirmTimeout
	}
	conn, err := p.conns.get(p.t.life.Context())
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	p.channel = &confirmChannel{
		t:              p.t,
		conn:           conn,
		ch:             ch,
		closes:         ch.NotifyClose(make(chan *amqp.Error, 1)),
		returns:        ch.NotifyReturn(make(chan amqp.Return, 2*maxUnconfirmed)),
		returned:       map[string]string{},
		abandoned:      make(chan struct{}),
		discarded:      make(chan struct{}),
		confirmTimeout: timeout,
	}
	return p.channel, nil
}
