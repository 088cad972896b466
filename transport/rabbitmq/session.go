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
// The broker fixes the prefetch of a consumer when the consumer begins. So that MaxInFlight
// can change at run time, several consumers share it: to raise it, one more consumer begins
// with the difference; to lower it, the latest consumers are cancelled.
type session struct {
	r       *receiver
	ch      *amqp.Channel
	lost    chan *amqp.Error
	cancels chan string

	consumers []*consumer // the receiver's mu guards their counts
	named     int         // number of consumers ever begun

	writing sync.Mutex    // held while settlements are written
	acks    *acks         // the receiver's mu guards it
	written chan struct{} // closed when no more acknowledgements are written
	over    chan struct{} // closed when the session has ended
	pumps   sync.WaitGroup
}

// consumer is a consumer of a session.
type consumer struct {
	tag      string
	prefetch int
	drained  chan struct{} // closed when it has ended and all of its deliveries have arrived

	// The receiver's mu guards these.
	cancelled bool // only the session's goroutine writes it
	arrived   int  // number of deliveries
	unsettled int  // of these, not settled
	unwritten int  // of these, unsettled as far as the broker knows
	withheld  bool // its settlements must not be written now
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
		if left && err == nil { // the caller no longer waits
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

// beginOn is begin without a context. If it returns no error, the caller must end the
// session.
func (r *receiver) beginOn(conn *connection) (*session, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// A missing queue must be noticed even if MaxInFlight is 0 at first.
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

// run keeps the consumers in line with MaxInFlight. It returns why the session has ended.
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

// why returns the reason for which a channel was closed.
func why(said *amqp.Error) error {
	if said == nil {
		return errors.New("the channel was closed")
	}
	return said
}

// mostConsumers is the maximum number of consumers of a session, without those that are
// ending.
const mostConsumers = 8

// adjust begins and ends consumers so that their prefetch adds up to MaxInFlight, and
// requeues excess messages.
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
		return nil // so few are not worth a consumer while ending ones are about to free some
	}
	_, err := s.consume(min(missing, math.MaxUint16), priority(n))
	return err
}

// shrink ends the latest consumers if together they may hold too much. If there are too
// many consumers for another one to begin, it ends half of them.
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

// active returns how many messages the consumers that are not ending may hold, and how many
// such consumers there are.
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
// others may hold active messages. It releases arrived messages beyond MaxInFlight (excess)
// and ends the holding back of returns. It returns how many more messages may be consumed,
// and whether ending consumers still have unsettled messages.
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

// cancel ends a consumer. When it returns, all messages that the broker sent to it have
// arrived.
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

// settlement is how a delivery is settled at the broker.
type settlement int

const (
	acknowledge settlement = iota // the broker deletes the message
	abandon                       // it failed: basic.reject, which every broker counts
	release                       // basic.nack, which brokers from 4.3 on do not count
)

// settle requests the settlement of a delivery. The receiver's mu is held.
func (s *session) settle(d *delivery, how settlement) {
	d.settled = true
	d.consumer.unsettled--
	if d.consumer.cancelled {
		s.r.changed.Notify()
	}
	s.acks.settle(&d.entry, how)
}

// farewell acknowledges settled messages and then requeues all others, when the receiver is
// closed. Its errors do not matter: the broker redelivers messages whose settlement it has
// not received.
//
// A channel sends a quorum queue about 32 commands before it waits for a reply. It keeps
// the others for later, and drops them when it is closed. The answer to a cancel arrives
// when the queue has all commands sent before it.
func (s *session) farewell() {
	s.acks.stop()
	<-s.written
	for _, c := range s.consumers {
		if !c.cancelled {
			_ = s.ch.Cancel(c.tag, false)
		}
	}
	_ = s.ch.Nack(0, true, true) // all unacknowledged messages
	_ = s.ch.Close()
}

// end is called when the session has ended: its deliveries are lost.
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
	_ = s.ch.Close() // in case the channel is not closed yet
	<-s.written
	s.pumps.Wait()
}

// linger is how long an acknowledgement waits for others.
const linger = time.Millisecond

// write writes acknowledgements in batches.
func (s *session) write() {
	defer close(s.written)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-s.acks.some:
		case <-s.acks.stopped:
			_ = s.flush(true) // after an error the broker redelivers
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

// flush writes the requested settlements.
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
