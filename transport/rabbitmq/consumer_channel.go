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

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/acks"
)

// consumerChannel is a channel of a receiver, from its opening until it is lost.
//
// The broker fixes the prefetch of a consumer when the consumer begins. So that MaxInFlight
// can change at run time, several consumers share it: to raise it, one more consumer begins
// with the difference; to lower it, the latest consumers are cancelled.
type consumerChannel struct {
	r       *receiver
	ch      *amqp.Channel
	lost    chan *amqp.Error
	cancels chan string

	consumers     []*consumer // the receiver's mu guards their counts
	consumerCount int         // number of consumers ever begun, for their tags

	writeMu    sync.Mutex    // held while settlements are written
	acks       *acks.Batcher // the receiver's mu guards it
	writerDone chan struct{} // closed when no more acknowledgements are written
	ended      chan struct{} // closed when end is called
	readers    sync.WaitGroup
}

// consumer is one of the consumers of a channel.
type consumer struct {
	tag      string
	prefetch int
	drained  chan struct{} // closed when it has ended and all of its deliveries have arrived

	// The receiver's mu guards these.
	cancelled bool // only the goroutine of run writes it
	arrived   int  // number of deliveries
	unsettled int  // of these, not settled
	acks      acks.Consumer
}

// openChannel opens a channel and consumes.
func (r *receiver) openChannel(ctx context.Context) (*consumerChannel, error) {
	conn, err := r.conns.get(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var c *consumerChannel
	var left bool
	err = r.t.runWithContext(ctx, func() error {
		opened, err := r.openChannelOn(conn)
		mu.Lock()
		defer mu.Unlock()
		if left && err == nil { // the caller no longer waits
			opened.end()
		}
		c = opened
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	left = true
	if err != nil {
		if c != nil {
			c.end()
		}
		return nil, err
	}
	return c, nil
}

// openChannelOn is openChannel without a context. If it returns no error, the caller must
// end the channel.
func (r *receiver) openChannelOn(conn *connection) (*consumerChannel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// A missing queue must be noticed even if MaxInFlight is 0 at first.
	if _, err := ch.QueueDeclarePassive(r.queue, true, false, false, false, nil); err != nil {
		_ = ch.Close()
		return nil, err
	}
	c := &consumerChannel{
		r: r, ch: ch,
		lost:       ch.NotifyClose(make(chan *amqp.Error, 1)),
		cancels:    ch.NotifyCancel(make(chan string, 16)),
		acks:       acks.New(),
		writerDone: make(chan struct{}),
		ended:      make(chan struct{}),
	}
	r.mu.Lock()
	r.channel = c
	r.mu.Unlock()
	go c.writeLoop()
	if err := c.adjustConsumers(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// run keeps the consumers in line with MaxInFlight. It returns why the channel has ended.
func (c *consumerChannel) run() error {
	for {
		select {
		case e := <-c.lost:
			return closeError(e)
		case _, said := <-c.cancels:
			if !said { // the channel is closed
				return closeError(<-c.lost)
			}
			return fmt.Errorf("the broker cancelled the consumer of %q: its queue was deleted or moved to another node", c.r.queue)
		case <-c.r.changed:
			if err := c.adjustConsumers(); err != nil {
				select {
				case e := <-c.lost:
					return closeError(e)
				default:
					return err
				}
			}
		case <-c.r.closing.Done():
			return context.Canceled
		}
	}
}

// closeError returns the reason for which a channel was closed.
func closeError(said *amqp.Error) error {
	if said == nil {
		return errors.New("the channel was closed")
	}
	return said
}

// mostConsumers is the maximum number of consumers of a channel, without those that are
// ending.
const mostConsumers = 8

// adjustConsumers begins and ends consumers so that their prefetch adds up to MaxInFlight,
// and requeues excess messages.
func (c *consumerChannel) adjustConsumers() error {
	c.r.mu.Lock()
	most := c.r.mostConsumedLocked()
	c.r.mu.Unlock()
	if err := c.cancelExcess(most); err != nil {
		return err
	}
	active, n := c.activeConsumers()
	missing, ending := c.releaseExcess(most, active)
	if missing <= 0 || ending && active > 0 && missing*4 < most {
		return nil // so few are not worth a consumer while ending ones are about to free some
	}
	_, err := c.consume(min(missing, math.MaxUint16), priority(n))
	return err
}

// cancelExcess ends the latest consumers if together they may prefetch too much. If there
// are too many consumers for another one to begin, it ends half of them.
func (c *consumerChannel) cancelExcess(most int) error {
	active, n := c.activeConsumers()
	tooMany := active < most && n >= mostConsumers
	for _, consumer := range slices.Backward(c.consumers) {
		if active <= most && (!tooMany || n <= mostConsumers/2) {
			break
		}
		if consumer.cancelled {
			continue
		}
		cancelled, err := c.cancelQuietly(consumer, tooMany)
		if err != nil || !cancelled {
			return err
		}
		active -= consumer.prefetch
		n--
	}
	return nil
}

// activeConsumers returns how many messages the consumers that are not ending may prefetch,
// and how many such consumers there are.
func (c *consumerChannel) activeConsumers() (messages, consumers int) {
	for _, consumer := range c.consumers {
		if !consumer.cancelled {
			messages += consumer.prefetch
			consumers++
		}
	}
	return messages, consumers
}

// releaseExcess is called when consumers have ended because of a MaxInFlight of most, and
// the others may prefetch active messages. It releases arrived messages beyond MaxInFlight
// (excess) and no longer postpones returns. It returns how many more messages may be
// consumed, and whether ending consumers still have unsettled messages.
func (c *consumerChannel) releaseExcess(most, active int) (missing int, ending bool) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mostConsumedLocked() >= most { // it was not lowered again
		c.acks.PostponeRequeues(false)
	}
	for r.hasExcessLocked() {
		last := len(r.prefetched) - 1
		c.settleLocked(r.prefetched[last], acks.Release)
		r.prefetched[last] = nil
		r.prefetched = r.prefetched[:last]
	}
	missing = r.mostConsumedLocked() - active
	left := c.consumers[:0]
	for _, consumer := range c.consumers {
		if consumer.cancelled {
			missing -= consumer.unsettled
			ending = ending || consumer.unsettled > 0
		}
		if !consumer.cancelled || consumer.unsettled > 0 {
			left = append(left, consumer)
		}
	}
	clear(c.consumers[len(left):])
	c.consumers = left
	c.acks.SetMaxInFlight(r.maxInFlight)
	return missing, ending
}

// consume begins one more consumer.
func (c *consumerChannel) consume(prefetch int, args amqp.Table) (*consumer, error) {
	if err := c.ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	c.consumerCount++
	consumer := &consumer{
		tag: fmt.Sprintf("%s-%d", c.r.t.copyIDs.prefix, c.consumerCount), prefetch: prefetch,
		drained: make(chan struct{}),
	}
	deliveries, err := c.ch.Consume(c.r.queue, consumer.tag, false, false, false, false, args)
	if err != nil {
		return nil, err
	}
	c.consumers = append(c.consumers, consumer)
	c.readers.Go(func() {
		defer close(consumer.drained)
		for d := range deliveries {
			c.r.addDelivery(c, consumer, &d)
		}
	})
	return consumer, nil
}

// cancel ends a consumer. When it returns, all messages that the broker sent to it have
// arrived.
func (c *consumerChannel) cancel(consumer *consumer) error {
	if err := c.ch.Cancel(consumer.tag, false); err != nil {
		return err
	}
	<-consumer.drained
	c.r.mu.Lock()
	consumer.cancelled = true
	c.r.mu.Unlock()
	return nil
}

// settleLocked requests the settlement of a delivery. The receiver's mu is held.
func (c *consumerChannel) settleLocked(d *delivery, how acks.Settlement) {
	d.settled = true
	d.consumer.unsettled--
	if d.consumer.cancelled {
		c.r.changed.Notify()
	}
	c.acks.Settle(&d.entry, how)
}

// drain acknowledges settled messages and then requeues all others, when the receiver is
// closed. Its errors do not matter: the broker redelivers messages whose settlement it has
// not received.
//
// A channel sends a quorum queue about 32 commands before it waits for a reply. It keeps
// the others for later, and drops them when it is closed. The answer to a cancel arrives
// when the queue has all commands sent before it.
func (c *consumerChannel) drain() {
	c.acks.Stop()
	<-c.writerDone
	for _, consumer := range c.consumers {
		if !consumer.cancelled {
			_ = c.ch.Cancel(consumer.tag, false)
		}
	}
	_ = c.ch.Nack(0, true, true) // all unacknowledged messages
	_ = c.ch.Close()
}

// end is called when the channel is lost or closed: its deliveries are lost.
func (c *consumerChannel) end() {
	r := c.r
	r.mu.Lock()
	if r.channel == c {
		r.channel = nil
		clear(r.prefetched)
		r.prefetched, r.prefetchHead, r.unsettled = r.prefetched[:0], 0, 0
	}
	r.mu.Unlock()
	close(c.ended)
	_ = c.ch.Close() // in case the channel is not closed yet
	<-c.writerDone
	c.readers.Wait()
}

// linger is how long an acknowledgement waits for others.
const linger = time.Millisecond

// writeLoop writes acknowledgements in batches.
func (c *consumerChannel) writeLoop() {
	defer close(c.writerDone)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-c.acks.Pending:
		case <-c.acks.Stopped:
			_ = c.flush(true) // after an error the broker redelivers
			return
		case <-c.ended:
			return
		}
		timer.Reset(linger)
		select {
		case <-c.acks.FlushNow:
		case <-timer.C:
		case <-c.acks.Stopped:
		case <-c.ended:
			return
		}
		if c.flush(false) != nil {
			return // the channel is lost, which run notices
		}
	}
}

// flush writes the requested settlements.
func (c *consumerChannel) flush(all bool) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.r.mu.Lock()
	b := c.acks.Take(all)
	c.r.mu.Unlock()
	for _, r := range b.Requeues {
		var err error
		if r.Counted {
			err = c.ch.Reject(r.Entry.Tag, true)
		} else {
			err = c.ch.Nack(r.Entry.Tag, false, true)
		}
		if err != nil {
			return err
		}
	}
	if b.UpTo > 0 {
		if err := c.ch.Ack(b.UpTo, b.Multiple); err != nil {
			return err
		}
	}
	for _, tag := range b.Single {
		if err := c.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	return nil
}
