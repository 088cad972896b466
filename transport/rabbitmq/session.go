package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is a channel of a receiver, from its beginning until it is lost.
//
// The broker fixes how much a consumer may hold when it begins. So that MaxInFlight can
// change live there are several, which share it: to raise it, one more begins with the
// difference; to lower it, the latest ones end.
type session struct {
	r       *receiver
	ch      *amqp.Channel
	lost    chan *amqp.Error
	cancels chan string

	consumers []*consumer // the receiver's mu guards their counts
	named     int         // how many consumers there ever were

	writing sync.Mutex    // held while settlements are written
	acks    *acks         // the receiver's mu guards it
	written chan struct{} // closed when no acknowledgement is written any more
	over    chan struct{} // closed when the session is
	pumps   sync.WaitGroup
}

// consumer is one of a session's.
type consumer struct {
	tag      string
	prefetch int
	drained  chan struct{} // closed when it has ended and all that it was sent has arrived

	// The receiver's mu guards these.
	cancelled bool // written by the session's goroutine alone
	arrived   int  // how many it was sent
	unsettled int  // of what it was sent
	unwritten int  // of what it was sent: unsettled as far as the broker knows
	withheld  bool // its settlements are not written now
}

// begin opens a channel and consumes.
func (r *receiver) begin(ctx context.Context) (*session, error) {
	conn, err := r.link.get(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var s *session
	var left bool
	err = r.t.bound(ctx, func() error {
		begun, err := r.beginOn(conn)
		mu.Lock()
		defer mu.Unlock()
		if left && err == nil { // nobody waits for it any more
			begun.end()
		}
		s = begun
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	left = true
	if err != nil {
		if s != nil {
			s.end()
		}
		return nil, err
	}
	return s, nil
}

// beginOn does so without a context. Without an error the session is to be ended.
func (r *receiver) beginOn(conn *connection) (*session, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// Also where nothing is consumed at first, a missing queue is to be noticed.
	if _, err := ch.QueueDeclarePassive(r.queue, true, false, false, false, nil); err != nil {
		_ = ch.Close()
		return nil, err
	}
	s := &session{
		r: r, ch: ch,
		lost:    ch.NotifyClose(make(chan *amqp.Error, 1)),
		cancels: ch.NotifyCancel(make(chan string, 16)),
		acks:    newAcks(),
		written: make(chan struct{}),
		over:    make(chan struct{}),
	}
	r.mu.Lock()
	r.session = s
	r.mu.Unlock()
	go s.write()
	if err := s.adjust(); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// run keeps the consumers as they are to be. It returns why the session has ended.
func (s *session) run() error {
	for {
		select {
		case e := <-s.lost:
			return why(e)
		case _, said := <-s.cancels:
			if !said { // the channel is closed
				return why(<-s.lost)
			}
			return fmt.Errorf("the broker cancelled the consumer of %q: its queue was deleted or moved to another node", s.r.queue)
		case <-s.r.changed:
			if err := s.adjust(); err != nil {
				select {
				case e := <-s.lost:
					return why(e)
				default:
					return err
				}
			}
		case <-s.r.closing.Done():
			return context.Canceled
		}
	}
}

// why is the reason for which a channel was closed.
func why(said *amqp.Error) error {
	if said == nil {
		return errors.New("the channel was closed")
	}
	return said
}

// mostConsumers is how many consumers a session has beside those that are ending.
const mostConsumers = 8

// adjust begins and ends consumers so that together they hold MaxInFlight, and gives back
// what is too much.
func (s *session) adjust() error {
	s.r.mu.Lock()
	most := s.r.mostConsumed()
	s.r.mu.Unlock()
	if err := s.shrink(most); err != nil {
		return err
	}
	active, n := s.active()
	missing, ending := s.adjusted(most, active)
	if missing <= 0 || ending && active > 0 && missing*4 < most {
		return nil // so few are not worth a consumer while others are about to be free
	}
	_, err := s.consume(min(missing, math.MaxUint16), priority(n))
	return err
}

// shrink ends the latest consumers where together they may hold too much, and half of them
// where they are too many for another one to begin.
func (s *session) shrink(most int) error {
	active, n := s.active()
	crowded := active < most && n >= mostConsumers
	for _, c := range slices.Backward(s.consumers) {
		if active <= most && (!crowded || n <= mostConsumers/2) {
			break
		}
		if c.cancelled {
			continue
		}
		retired, err := s.retire(c, crowded)
		if err != nil || !retired {
			return err
		}
		active -= c.prefetch
		n--
	}
	return nil
}

// active is how many messages the consumers that are not ending may hold, and how many
// those are.
func (s *session) active() (messages, consumers int) {
	for _, c := range s.consumers {
		if !c.cancelled {
			messages += c.prefetch
			consumers++
		}
	}
	return messages, consumers
}

// adjusted is called when consumers have ended because of a MaxInFlight of most, and the
// others may hold so many. It releases what arrived but may not be held any more (excess), lets go
// back what waited for the consumers to end, and returns how many more may be consumed and
// whether those that are ending still hold something.
func (s *session) adjusted(most, active int) (missing int, ending bool) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mostConsumed() >= most { // it was not lowered again
		s.acks.holdGiven(false)
	}
	for r.excess() {
		last := len(r.arrived) - 1
		s.settle(r.arrived[last], release)
		r.arrived[last] = nil
		r.arrived = r.arrived[:last]
	}
	missing = r.mostConsumed() - active
	left := s.consumers[:0]
	for _, c := range s.consumers {
		if c.cancelled {
			missing -= c.unsettled
			ending = ending || c.unsettled > 0
		}
		if !c.cancelled || c.unsettled > 0 {
			left = append(left, c)
		}
	}
	clear(s.consumers[len(left):])
	s.consumers = left
	s.acks.flushAt(r.maxInFlight)
	return missing, ending
}

// consume begins one more consumer.
func (s *session) consume(prefetch int, args amqp.Table) (*consumer, error) {
	if err := s.ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	s.named++
	c := &consumer{
		tag: fmt.Sprintf("%s-%d", s.r.t.copies.prefix, s.named), prefetch: prefetch,
		drained: make(chan struct{}),
	}
	deliveries, err := s.ch.Consume(s.r.queue, c.tag, false, false, false, false, args)
	if err != nil {
		return nil, err
	}
	s.consumers = append(s.consumers, c)
	s.pumps.Go(func() {
		defer close(c.drained)
		for d := range deliveries {
			s.r.arrive(s, c, &d)
		}
	})
	return c, nil
}

// cancel ends a consumer. When it returns, all that the broker sent it has arrived.
func (s *session) cancel(c *consumer) error {
	if err := s.ch.Cancel(c.tag, false); err != nil {
		return err
	}
	<-c.drained
	s.r.mu.Lock()
	c.cancelled = true
	s.r.mu.Unlock()
	return nil
}

// settlement is what becomes of a delivery at the broker.
type settlement int

const (
	acknowledge settlement = iota // it is gone
	abandon                       // it failed: basic.reject, which every broker counts
	release                       // basic.nack, which brokers from 4.3 on do not count
)

// settle orders what becomes of a delivery. The receiver's mu is held.
func (s *session) settle(d *delivery, how settlement) {
	d.settled = true
	d.consumer.unsettled--
	if d.consumer.cancelled {
		s.r.changed.Notify()
	}
	s.acks.settle(&d.entry, how)
}

// farewell gives everything back when the receiver is closed, after it has acknowledged
// what was settled. Its errors do not matter: what the broker was not told comes again.
//
// A channel tells a quorum queue about 32 things before it hears back, and forgets what it
// has kept for later when it is closed. The answer to a cancel comes when the queue has
// everything that was said before it.
func (s *session) farewell() {
	s.acks.stop()
	<-s.written
	for _, c := range s.consumers {
		if !c.cancelled {
			_ = s.ch.Cancel(c.tag, false)
		}
	}
	_ = s.ch.Nack(0, true, true) // all there are
	_ = s.ch.Close()
}

// end is called when the session has ended: its deliveries are lost to whoever has them.
func (s *session) end() {
	r := s.r
	r.mu.Lock()
	if r.session == s {
		r.session = nil
		clear(r.arrived)
		r.arrived, r.first, r.held = r.arrived[:0], 0, 0
	}
	r.mu.Unlock()
	close(s.over)
	_ = s.ch.Close() // where it is not the channel that broke
	<-s.written
	s.pumps.Wait()
}

// linger is how long an acknowledgement waits for others.
const linger = time.Millisecond

// write writes acknowledgements, many at a time.
func (s *session) write() {
	defer close(s.written)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-s.acks.some:
		case <-s.acks.stopped:
			_ = s.flush(true) // what the broker is not told comes again
			return
		case <-s.over:
			return
		}
		timer.Reset(linger)
		select {
		case <-s.acks.enough:
		case <-timer.C:
		case <-s.acks.stopped:
		case <-s.over:
			return
		}
		if s.flush(false) != nil {
			return // the channel is lost, which run notices
		}
	}
}

// flush writes what has been ordered.
func (s *session) flush(all bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.r.mu.Lock()
	b := s.acks.take(all)
	s.r.mu.Unlock()
	for _, g := range b.given {
		var err error
		if g.counted {
			err = s.ch.Reject(g.entry.tag, true)
		} else {
			err = s.ch.Nack(g.entry.tag, false, true)
		}
		if err != nil {
			return err
		}
	}
	if b.upTo > 0 {
		if err := s.ch.Ack(b.upTo, b.several); err != nil {
			return err
		}
	}
	for _, tag := range b.singly {
		if err := s.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	return nil
}
