package inmemory

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Send stores a copy of each message. It first checks everything that can be wrong with
// the messages themselves, and after an error it sends none of them. A missing
// destination affects only its own message.
//
// The time to be received counts from the Send, even for a delayed message. Properties
// are carried without other effect, and so is GroupKey without Capabilities.GroupOrder.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	err := t.life.Err(ctx)
	bad := -1
	for i := 0; i < len(msgs) && err == nil; i++ {
		err, bad = transport.CheckOutgoing(&msgs[i], &t.caps), i
		switch {
		case err != nil:
		case msgs[i].Topic != "":
			err = t.checkTopic(msgs[i].Topic)
		case t.caps.MaxQueueName > 0:
			err = t.checkQueue(msgs[i].Queue)
		}
	}
	if err != nil {
		return fmt.Errorf("inmemory: send: %w", transport.NoneSent(msgs, bad, err))
	}
	now := time.Now()
	var failed *core.SendError
	for i := range msgs {
		var one [1]*queue
		queues, err := t.broker.destinations(&msgs[i], &one)
		if err == nil {
			err = transport.CheckSubscribers(ctx, &msgs[i], len(queues))
		}
		if err != nil {
			if failed == nil {
				failed = transport.AllSent(msgs, core.SendAccepted, nil)
			}
			failed.Results[i].State = core.SendRefused
			failed.Results[i].Err = err
			continue
		}
		t.deliver(&msgs[i], queues, now)
	}
	if failed != nil {
		return fmt.Errorf("inmemory: send: %w", failed)
	}
	return nil
}

// deliver stores one copy in each queue. The copies share one body, which is never
// written.
func (t *Transport) deliver(out *core.Outgoing, queues []*queue, now time.Time) {
	if len(queues) == 0 {
		return
	}
	body := bytes.Clone(out.Body)
	for _, q := range queues {
		q.send(t.broker.newMessage(out, body, now, t.caps.GroupOrder))
	}
}

// destinationsOf returns the queues of each message. Anything that can be refused is refused
// here: a queue, once it exists, exists for ever and accepts every message.
func (t *Transport) destinationsOf(ctx context.Context, out []core.Outgoing) ([][]*queue, error) {
	destinations := make([][]*queue, len(out))
	for i := range out {
		err := transport.CheckOutgoing(&out[i], &t.caps)
		if err == nil {
			destinations[i], err = t.broker.destinations(&out[i], new([1]*queue))
		}
		if err == nil {
			err = transport.CheckSubscribers(ctx, &out[i], len(destinations[i]))
		}
		if err != nil {
			return nil, transport.NoneSent(out, i, err)
		}
	}
	return destinations, nil
}

// deliverAll sends messages to the results of destinationsOf.
func (t *Transport) deliverAll(out []core.Outgoing, destinations [][]*queue) {
	now := time.Now()
	for i := range out {
		t.deliver(&out[i], destinations[i], now)
	}
}
