package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// publisher sends on one channel with publisher confirms, and opens the next one when that
// is lost. One goroutine writes; callers wait for the confirms of their own messages.
type publisher struct {
	t     *Transport
	link  *link
	in    chan *parcel
	start sync.Once
	up    bool // the goroutine was started; written within start

	// Only the goroutine uses the fields below.
	sess  *outbox
	watch *time.Timer
	held  *wire // nil: none

	failed   error // the error of the last attempt to open a channel, nil if there is one
	failedAt time.Time
}

// parcel is the messages of one call on one channel.
type parcel struct {
	letters []letter
	since   time.Time
	taken   chan struct{} // closed when the publisher is done with it
	outbox  *outbox       // the outbox it was sent on; set before taken is closed

	mu       sync.Mutex // guards the fields below, until taken is closed
	begun    int        // number of letters that may have been written
	unwanted bool
	err      error // why the letters after begun were not written
}

// letter is one message that is being sent.
type letter struct {
	index         int // of the message in its Send
	exchange, key string
	mandatory     bool
	copyID        string
	publishing    amqp.Publishing
	confirm       *amqp.DeferredConfirmation // nil: it was not written completely
}

func newPublisher(t *Transport, l *link) *publisher {
	return &publisher{t: t, link: l, in: make(chan *parcel)}
}

// send passes letters to the broker and reports the result of each. The end of ctx ends the
// waiting, but not sends in progress.
func (p *publisher) send(ctx context.Context, letters []letter, report func(l *letter, state core.SendState, err error)) {
	if len(letters) == 0 {
		return
	}
	refuse := func(err error) {
		for i := range letters {
			report(&letters[i], core.SendRefused, err)
		}
	}
	p.start.Do(func() { p.up = p.t.life.Go(p.run) })
	if !p.up {
		refuse(core.ErrClosed)
		return
	}
	x := &parcel{letters: letters, since: time.Now(), taken: make(chan struct{})}
	select {
	case p.in <- x:
	case <-ctx.Done():
		refuse(fmt.Errorf("waiting to be sent: %w", ctx.Err()))
		return
	case <-p.t.life.Context().Done():
		refuse(core.ErrClosed)
		return
	}
	x.await(ctx)
	x.report(ctx, report)
}

// await returns when all confirms have arrived or the caller no longer waits for them.
func (x *parcel) await(ctx context.Context) {
	select {
	case <-x.taken:
	case <-ctx.Done():
		x.giveUp()
		return
	}
	for i := range x.letters {
		if x.letters[i].confirm == nil {
			return
		}
		select {
		case <-x.letters[i].confirm.Done():
		case <-x.outbox.given:
		case <-ctx.Done():
			x.giveUp() // later confirms must not keep returns
			return
		}
	}
}

// giveUp begins no more letters, and lets the results of begun letters be forgotten.
func (x *parcel) giveUp() {
	x.mu.Lock()
	x.unwanted = true
	x.mu.Unlock()
}

// report reports the result of each letter.
func (x *parcel) report(ctx context.Context, report func(l *letter, state core.SendState, err error)) {
	select {
	case <-x.taken:
	default: // it is still being written
		x.mu.Lock()
		defer x.mu.Unlock()
		for i := range x.letters {
			if i < x.begun {
				report(&x.letters[i], core.SendUnknown, fmt.Errorf("waiting for its confirm: %w", ctx.Err()))
			} else {
				report(&x.letters[i], core.SendRefused, fmt.Errorf("waiting to be sent: %w", ctx.Err()))
			}
		}
		return
	}
	if x.outbox != nil {
		x.outbox.collectReturns()
	}
	for i := range x.letters {
		l := &x.letters[i]
		switch {
		case i >= x.begun && x.err == nil: // the publisher noticed first that the caller no longer waits
			report(l, core.SendRefused, fmt.Errorf("waiting to be sent: %w", ctx.Err()))
		case i >= x.begun:
			report(l, core.SendRefused, x.err)
		case l.confirm == nil:
			report(l, core.SendUnknown, x.err)
		default:
			state, err := x.outbox.outcome(ctx, l)
			report(l, state, err)
		}
	}
}

// begin claims the next letter for writing. It returns false if the caller no longer waits.
func (x *parcel) begin(i int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unwanted {
		return false
	}
	x.begun = i + 1
	return true
}

// fail records why letters were not sent.
func (x *parcel) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
}

func (p *publisher) run() {
	p.watch = time.NewTimer(watchEvery)
	p.watch.Stop()
	defer p.watch.Stop()
	for {
		select {
		case x := <-p.in:
			p.publish(x)
			p.publishWaiting()
			p.letGo()
		case <-p.watch.C:
			p.sess.admit(nil)
		case <-p.t.life.Context().Done():
			return
		}
		if p.sess != nil && len(p.sess.under) > p.sess.head {
			p.watch.Reset(watchEvery)
		}
	}
}

// publishWaiting publishes the parcels that wait at this moment, so that they are written
// together.
func (p *publisher) publishWaiting() {
	for {
		select {
		case x := <-p.in:
			p.publish(x)
		default:
			return
		}
	}
}

// hold buffers published messages until letGo, which is called before any wait for the
// broker.
func (p *publisher) hold(w *wire) {
	if p.held == nil {
		w.hold()
		p.held = w
	}
}

func (p *publisher) letGo() {
	if p.held != nil {
		p.held.letGo()
		p.held = nil
	}
}

func (p *publisher) publish(x *parcel) {
	defer close(x.taken)
	if p.failed != nil && x.since.Before(p.failedAt) { // it has already waited during that attempt
		x.fail(p.failed)
		return
	}
	s, err := p.open()
	if err == nil {
		err = p.t.blocked.wait(p.t.life.Context(), p.letGo)
	}
	p.failed = nil
	if err != nil {
		p.failed, p.failedAt = fmt.Errorf("not connected: %w", err), time.Now()
		x.fail(p.failed)
		return
	}
	x.outbox = s
	for i := range x.letters {
		l := &x.letters[i]
		if i%window == 0 {
			s.collectReturns()
		}
		if s.admit(p.letGo); s.isGiven() {
			x.fail(s.why())
			return
		}
		if !x.begin(i) {
			return
		}
		p.hold(s.conn.wire)
		l.confirm, err = s.ch.PublishWithDeferredConfirm(l.exchange, l.key, l.mandatory, false, l.publishing)
		p.t.format.recycle(l.publishing.Headers)
		l.publishing = amqp.Publishing{} // its caller may wait long
		if err != nil {
			if why := s.why(); why != nil {
				err = why
			}
			x.fail(fmt.Errorf("the connection was lost: %w", err))
			return
		}
		if len(s.under) == s.head {
			s.waitFor(l.confirm)
		}
		s.under = append(s.under, underWay{l.confirm, x, l.copyID})
	}
}

// open returns the channel, or a new one if the last is lost.
func (p *publisher) open() (*outbox, error) {
	last := p.sess
	if last != nil && !last.isGiven() && !last.ch.IsClosed() {
		return last, nil
	}
	p.letGo()
	limit := firstPatience
	if last != nil && last.isGiven() {
		limit = min(2*last.patience, mostPatience)
		select {
		case <-last.discarded: // or the next channel would be closed with the connection
		case <-p.t.life.Context().Done():
			return nil, core.ErrClosed
		}
	} else if last != nil && !last.heard {
		limit = last.patience
	}
	conn, err := p.link.get(p.t.life.Context())
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
	p.sess = &outbox{
		t:         p.t,
		conn:      conn,
		ch:        ch,
		closes:    ch.NotifyClose(make(chan *amqp.Error, 1)),
		returns:   ch.NotifyReturn(make(chan amqp.Return, 2*window)),
		returned:  map[string]string{},
		given:     make(chan struct{}),
		discarded: make(chan struct{}),
		patience:  limit,
	}
	return p.sess, nil
}
