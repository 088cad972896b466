package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// publisher sends on one channel with publisher confirms, and on the next one when that
// is lost. One goroutine writes; callers wait for the confirms of their own messages.
type publisher struct {
	t     *Transport
	in    chan *parcel
	start sync.Once
	up    bool // the goroutine was started; written within start

	// What follows is the goroutine's own.
	sess  *outbox
	watch *time.Timer
	held  *wire // nil: none

	failed   error // of the last attempt to open a channel, nil if there is one
	failedAt time.Time
}

// window is how many messages may be under way on a channel without their confirms.
const window = 1024

// parcel is what one call sends on one channel.
type parcel struct {
	letters []letter
	since   time.Time
	taken   chan struct{} // closed when the publisher does nothing more with it
	outbox  *outbox       // that it was sent on; set before taken is closed

	mu       sync.Mutex // guards what follows, until taken is closed
	begun    int        // how many letters may have been written
	unwanted bool
	err      error // why those after begun were not
}

// letter is one message on its way.
type letter struct {
	index         int // of the message in its Send
	exchange, key string
	mandatory     bool
	copyID        string
	publishing    amqp.Publishing
	confirm       *amqp.DeferredConfirmation // nil: it was not written as a whole
}

func newPublisher(t *Transport) *publisher {
	return &publisher{t: t, in: make(chan *parcel)}
}

// send hands letters to the broker and tells what became of each. Its caller's context
// ends the waiting, not what is under way.
func (p *publisher) send(ctx context.Context, letters []letter, report func(l *letter, state core.SendState, err error)) {
	if len(letters) == 0 {
		return
	}
	refuse := func(err error) {
		for i := range letters {
			report(&letters[i], core.SendRefused, err)
		}
	}
	p.start.Do(func() { p.up = p.t.goes(p.run) })
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
	case <-p.t.life.Done():
		refuse(core.ErrClosed)
		return
	}
	x.await(ctx)
	x.report(ctx, report)
}

// await returns when all confirms are there, or nobody waits for them any more.
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
			x.giveUp() // of what is confirmed later nobody asks for the return
			return
		}
	}
}

// giveUp has no more letters begun, and forgotten what comes of those that were.
func (x *parcel) giveUp() {
	x.mu.Lock()
	x.unwanted = true
	x.mu.Unlock()
}

// report tells what became of each letter.
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
		case i >= x.begun && x.err == nil: // the publisher noticed first that nobody waits
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

// begin claims the next letter for writing. It reports false where nobody wants that
// any more.
func (x *parcel) begin(i int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unwanted {
		return false
	}
	x.begun = i + 1
	return true
}

// fail notes why letters were not sent.
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
		case <-p.t.life.Done():
			return
		}
		if p.sess != nil && len(p.sess.under) > p.sess.head {
			p.watch.Reset(watchEvery)
		}
	}
}

// publishWaiting publishes what others want to send at this moment, so that it is written
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

// hold keeps what is published until letGo, which comes before anything that waits for the
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
	if p.failed != nil && x.since.Before(p.failedAt) { // it has waited long enough
		x.fail(p.failed)
		return
	}
	s, err := p.open()
	if err == nil {
		err = p.t.blocked.wait(p.t.life, p.letGo)
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

// open returns the channel, a new one if the last is lost.
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
		case <-last.discarded: // or the next one would end with its connection
		case <-p.t.life.Done():
			return nil, core.ErrClosed
		}
	} else if last != nil && !last.heard {
		limit = last.patience
	}
	conn, err := p.t.sending.get(p.t.life)
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

// outbox is one channel with publisher confirms.
type outbox struct {
	t      *Transport
	conn   *connection
	ch     *amqp.Channel
	closes chan *amqp.Error

	// returns has room for twice as many messages as can be under way, and is read before
	// each window of more is sent: the library's reader does not wait long for room, and
	// then a lost message would look accepted. A message is returned before it is
	// confirmed, so it is in there when its confirm is done.
	returns chan amqp.Return

	given     chan struct{} // closed when the channel is given up
	discarded chan struct{} // closed when it is closed

	// What follows is the publisher's goroutine's own. Those under way are from head on.
	under    []underWay
	head     int
	first    *amqp.DeferredConfirmation // that is waited for
	since    time.Time
	patience time.Duration // with first
	heard    bool          // there were confirms

	mu       sync.Mutex // guards what follows
	returned map[string]string
	reason   error // why the channel was closed
}

// underWay is a message that is written but, as far as is known, not confirmed.
type underWay struct {
	confirm *amqp.DeferredConfirmation
	of      *parcel
	copyID  string
}

const (
	// watchEvery is how often a channel is looked at on which messages are under way.
	watchEvery = 500 * time.Millisecond

	// patience is how long the first of them may be waited for, from when it is the first,
	// before the channel is given up, and firstPatience that of a new channel. Brokers confirm within
	// milliseconds or, under load, a second or two. But what is published on a channel to a
	// quorum queue while that has no leader, as right after a broker's start, may never be
	// confirmed, and neither is what follows on the same channel.
	//
	// A broker whose disk is slow is waited for twice as long on each channel that follows
	// one that was given up, up to mostPatience: otherwise it would never be heard.
	patience      = 5 * time.Second
	firstPatience = 2 * time.Second
	mostPatience  = time.Minute
)

// admit forgets what has been confirmed and, if there is a beforeWait, waits until one more
// message may be under way. It gives a channel up that confirms nothing any more.
func (s *outbox) admit(beforeWait func()) {
	for s.head < len(s.under) && !s.isGiven() {
		first := &s.under[s.head]
		if isDone(first.confirm) {
			s.confirmed(first)
			s.head++
			if s.head == len(s.under) || s.head == window {
				n := copy(s.under, s.under[s.head:])
				clear(s.under[n:])
				s.under, s.head = s.under[:n], 0
			}
			continue
		}
		s.judge(first.confirm)
		if beforeWait == nil || s.room() {
			return
		}
		beforeWait()
		timer := time.NewTimer(watchEvery)
		select { // the end of the channel is the end of all
		case <-first.confirm.Done():
		case <-s.under[s.head+window/2].confirm.Done(): // the first may be of a queue that has no leader
		case <-timer.C:
		}
		timer.Stop()
	}
}

func isDone(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// confirmed forgets a message.
func (s *outbox) confirmed(u *underWay) {
	s.heard, s.patience = true, patience
	s.forget(u)
	*u = underWay{}
}

// room reports whether one more message may be under way. It makes room where others than
// the first are confirmed.
func (s *outbox) room() bool {
	if len(s.under)-s.head < window {
		return true
	}
	left := s.under[:s.head]
	for i := s.head; i < len(s.under); i++ {
		if u := &s.under[i]; isDone(u.confirm) {
			s.confirmed(u)
		} else {
			left = append(left, *u)
		}
	}
	clear(s.under[len(left):])
	s.under = left
	return len(s.under)-s.head < window
}

func (s *outbox) waitFor(first *amqp.DeferredConfirmation) {
	s.first, s.since = first, time.Now()
}

// judge gives the channel up if it has waited for the first message for too long, but not
// because of a blockade.
func (s *outbox) judge(first *amqp.DeferredConfirmation) {
	if s.first != first {
		s.waitFor(first)
	}
	if s.t.blocked.waited(s.since) < s.patience {
		return
	}
	s.mu.Lock()
	s.reason = fmt.Errorf("the broker has not confirmed a message for %v", s.patience)
	s.mu.Unlock()
	close(s.given)
	s.under, s.head, s.first = nil, 0, nil
	if !s.t.goes(s.discard) {
		close(s.discarded)
	}
}

// discard closes a channel that was given up, or where the broker does not even answer
// to that, the connection.
func (s *outbox) discard() {
	defer close(s.discarded)
	hopeless := time.AfterFunc(grace, func() { closeConnection(s.conn, time.Now()) })
	defer hopeless.Stop()
	_ = s.ch.Close()
}

func (s *outbox) isGiven() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}

// forget drops the return of a message that nobody asks for any more.
func (s *outbox) forget(u *underWay) {
	u.of.mu.Lock()
	unwanted := u.of.unwanted
	u.of.mu.Unlock()
	if unwanted {
		s.collectReturns()
		s.mu.Lock()
		delete(s.returned, u.copyID)
		s.mu.Unlock()
	}
}

// collectReturns takes what has been returned so far.
func (s *outbox) collectReturns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				return // the channel is closed
			}
			if id, ok := r.Headers[copyIDHeader].(string); ok {
				s.returned[id] = fmt.Sprintf("%d %s", r.ReplyCode, r.ReplyText)
			}
		default:
			return
		}
	}
}

// outcome is what became of a letter that was written.
func (s *outbox) outcome(ctx context.Context, l *letter) (core.SendState, error) {
	select {
	case <-l.confirm.Done():
	default:
		err := ctx.Err()
		if s.isGiven() {
			err = s.why()
		}
		return core.SendUnknown, fmt.Errorf("waiting for its confirm: %w", err)
	}
	s.mu.Lock()
	text, returned := s.returned[l.copyID]
	delete(s.returned, l.copyID)
	s.mu.Unlock()
	switch {
	case returned:
		return core.SendRefused, fmt.Errorf("%w: the broker returned the message: %s", core.ErrQueueNotFound, text)
	case l.confirm.Acked():
		return core.SendAccepted, nil
	}
	if s.ch.IsClosed() || s.isGiven() {
		err := s.why()
		if err == nil {
			err = errors.New("the channel was closed")
		}
		return core.SendUnknown, fmt.Errorf("the connection was lost before its confirm: %w", err)
	}
	if !l.mandatory { // some of a topic's queues may have it
		return core.SendUnknown, errNegative
	}
	return core.SendRefused, errNegative
}

var errNegative = errors.New("the broker confirmed negatively: the queue is full (x-max-length with reject-publish), or has no leader")

// why is the reason for which the channel was closed, or nil.
func (s *outbox) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case e := <-s.closes:
		if e != nil {
			s.reason = e
		}
	default:
	}
	return s.reason
}
