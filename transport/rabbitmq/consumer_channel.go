package rabbitmq

import (
	"context"
	"errors"
	"fmt"
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
	// closingReturns: the messages are returned by closing the channel.
	closingReturns bool

	consumers      []*consumer // the receiver's mu guards their counts
	waitsUntilFull bool        // a new consumer is not worth it before a consumer is full; the receiver's mu guards it
	consumerCount  int         // number of consumers ever begun, for their tags

	writeMu    sync.Mutex    // held while settlements are written
	acks       *acks.Batcher // the receiver's mu guards it
	writerDone chan struct{} // closed when no more acknowledgements are written
	ended      chan struct{} // closed when end is called
	readers    sync.WaitGroup
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
	version, _ := brokerVersion(conn)
	c.closingReturns = r.brokerCounts && !version.HasDefaultLimit()
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

// drain acknowledges settled messages and then requeues all others, when the receiver is
// closed. Its errors do not matter: the broker redelivers messages whose settlement it has
// not received.
//
// Before RabbitMQ 4.0 a quorum queue with a delivery limit returns the messages of one nack in
// any order, and those of a closed channel in theirs. Later ones keep the order of both, and
// from 4.3 on do not count the nack.
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
	if !c.closingReturns {
		_ = c.ch.Nack(0, true, true) // all unacknowledged messages
	}
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
