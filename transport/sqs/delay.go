package sqs

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/transport"
)

// delays forwards messages from a queue of long delays: a FIFO queue that delays each message by 15 minutes, the most that SQS
// can. When it is received it goes to the same queue once more, or, when it is due within 15 minutes, to the queue that it is for. Its
// senders and other receivers may be NServiceBus endpoints, whose transport does the same.
type delays struct {
	r   *receiver
	url string
}

func newDelays(r *receiver, url string) *delays { return &delays{r: r, url: url} }

// run goes on until the receiver closes.
func (d *delays) run() {
	r := d.r
	outages := transport.Outages{}
	for r.closing.Err() == nil {
		began := time.Now()
		arrived, err := r.request(r.cut, d.url, receiveBatch)
		if err == nil {
			outages.End()
			err = d.forward(arrived)
		}
		if err != nil && r.closing.Err() == nil {
			_ = transport.Sleep(r.closing, r.t.life.Context(), outages.Failed(err, began), nil)
		}
	}
}

// forward sends messages on and deletes them. One that was sent and could not be deleted is sent again when it comes
// again, and dropped by the service if that is within five minutes.
func (d *delays) forward(arrived []*delivery) error {
	r := d.r
	if len(arrived) == 0 {
		return nil
	}
	entries := make([]*entry[*sending], len(arrived))
	targets := make([]*batcher[*sending], len(arrived))
	for i, m := range arrived {
		now := m.now()
		due, sent := m.longDue()
		remaining := due.Sub(now)
		s := m.copied(attrDelaySeconds, attrDue, attrDelay, attrLives)
		if m.in.ttl > 0 {
			lives := m.in.ttl - now.Sub(sent)
			if lives <= 0 {
				continue // it has expired
			}
			s.add(attrLives, strconv.FormatInt(max(1, lives.Milliseconds()), 10))
		}
		to := delayQueue(r.address)
		if remaining > mostNativeDelay {
			s.add(attrDelaySeconds, strconv.FormatInt(seconds(remaining), 10))
			s.add(attrDue, strconv.FormatInt(due.UnixMilli(), 10))
			s.group, s.deduplication = m.in.NativeID, m.in.NativeID
		} else {
			to = r.address
			if remaining > 0 {
				s.delaySeconds = int32(seconds(remaining))
				s.add(attrDelay, strconv.FormatInt(int64(s.delaySeconds)*1000, 10))
			}
			if m.in.GroupKey != "" {
				s.group = groupID(m.in.GroupKey)
			}
		}
		entries[i], targets[i] = &entry[*sending]{what: s, bytes: s.bytes()}, r.t.sender(to)
		targets[i].add(entries[i])
	}
	return d.r.sent(d.url, arrived, entries, targets)
}

// longDue returns when a message in a queue of long delays is due, and when it was sent for the first time as far as can be told,
// by the service's clock.
func (d *delivery) longDue() (due, sent time.Time) {
	attrs := attributes(d.in.Native.(*types.Message))
	if n, err := strconv.ParseInt(attrs[attrDue], 10, 64); err == nil {
		return time.UnixMilli(n), d.in.sent
	}
	delay := duration(attrs[attrDelay])
	if delay == 0 { // from an NServiceBus endpoint
		if n, err := strconv.ParseInt(attrs[attrDelaySeconds], 10, 64); err == nil && n > 0 && n < int64((1<<63-1)/time.Second) {
			delay = time.Duration(n) * time.Second
		}
	}
	return d.in.sent.Add(delay), d.in.sent
}

// now is the service's time, which a message that has just been received for the first time tells exactly.
func (d *delivery) now() time.Time {
	if d.in.received == 1 && !d.in.first.IsZero() {
		return d.in.first
	}
	return d.r.t.clock.now()
}

// copied returns the message as it was received, without some of its attributes.
func (d *delivery) copied(without ...string) *sending {
	m := d.in.Native.(*types.Message)
	s := &sending{outMessage: &outMessage{text: value(m.Body)}, native: maps.Clone(m.MessageAttributes)}
	for _, name := range without {
		delete(s.native, name)
	}
	return s
}

// sent waits until messages are sent on, and deletes them from the queue in which they were. What could not be sent stays
// there, and is received again.
func (r *receiver) sent(url string, arrived []*delivery, entries []*entry[*sending], targets []*batcher[*sending]) error {
	var failed error
	var over, left []*delivery
	for i, e := range entries {
		if e == nil {
			over = append(over, arrived[i])
			continue
		}
		if err, _ := targets[i].await(context.Background(), e, 0); err != nil {
			failed = err
			left = append(left, arrived[i])
			continue
		}
		over = append(over, arrived[i])
	}
	other := &settler{r: &receiver{t: r.t, url: url, address: r.address}}
	if len(over) > 0 {
		other.deleteAll(r.cut, over)
	}
	if len(left) > 0 {
		other.giveBack(r.cut, left)
	}
	return failed
}

// delayAll sees to messages of the queue itself that are not due: events, which SNS does not delay, and messages to a
// FIFO queue, in which SQS delays none.
func (r *receiver) delayAll(early []*delivery) {
	var arrived []*delivery
	var entries []*entry[*sending]
	var targets []*batcher[*sending]
	for _, d := range early {
		now := d.now()
		remaining := d.in.sent.Add(d.in.wait).Sub(now)
		hold := isFIFO(r.address) || remaining > mostNativeDelay
		if hold && remaining > 0 && d.in.received == 1 {
			d.hold(min(remaining, longestHold))
			continue
		}
		s := d.copied(attrWait, attrLives)
		if d.in.ttl > 0 {
			s.add(attrLives, strconv.FormatInt(max(1, (d.in.ttl-now.Sub(d.in.sent)).Milliseconds()), 10))
		}
		switch {
		case hold && remaining > 0: // once more
			s.add(attrWait, strconv.FormatInt(max(1, remaining.Milliseconds()), 10))
		case remaining > 0:
			s.delaySeconds = int32(seconds(remaining))
			s.add(attrDelay, strconv.FormatInt(int64(s.delaySeconds)*1000, 10))
		}
		if isFIFO(r.address) {
			s.deduplication = d.in.NativeID
			if s.group = ungrouped + s.deduplication; d.in.GroupKey != "" && !(hold && remaining > 0) {
				s.group = groupID(d.in.GroupKey)
			}
		} else if d.in.GroupKey != "" {
			s.group = groupID(d.in.GroupKey)
		}
		arrived, entries, targets = append(arrived, d), append(entries, &entry[*sending]{what: s, bytes: s.bytes()}), append(targets, r.t.sender(r.address))
		targets[len(targets)-1].add(entries[len(entries)-1])
	}
	if len(arrived) > 0 {
		began := time.Now()
		if err := r.sent(r.url, arrived, entries, targets); err != nil {
			r.outages.Failed(err, began)
		}
	}
}

// putBack makes messages that no handler has seen available to others. To unlock one would count as an attempt, so a copy takes its
// place that has the count as it was; a FIFO queue keeps the message, for the sake of its order.
func (r *receiver) putBack(late []*delivery) {
	if len(late) == 0 {
		return
	}
	if isFIFO(r.address) {
		for _, d := range late {
			r.t.unseen.add(d.in.NativeID)
		}
		r.settler.giveBack(r.cut, late)
		return
	}
	entries := make([]*entry[*sending], len(late))
	targets := make([]*batcher[*sending], len(late))
	for i, d := range late {
		s := d.copied(attrDeliveries, attrEnqueued, attrLives, attrDelay)
		if n := d.in.DeliveryCount - 1; n > 0 {
			s.add(attrDeliveries, strconv.Itoa(n))
		}
		if !d.in.EnqueuedAt.IsZero() {
			s.add(attrEnqueued, strconv.FormatInt(d.in.EnqueuedAt.UnixMilli(), 10))
		}
		if d.in.ttl > 0 {
			s.add(attrLives, strconv.FormatInt(max(1, (d.in.ttl-d.now().Sub(d.in.sent)).Milliseconds()), 10))
		}
		if d.in.GroupKey != "" {
			s.group = groupID(d.in.GroupKey)
		}
		entries[i], targets[i] = &entry[*sending]{what: s, bytes: s.bytes()}, r.t.sender(r.address)
		targets[i].add(entries[i])
	}
	_ = r.sent(r.url, late, entries, targets) // what could not be sent was unlocked
}

// longestHold is how long a message is locked because it is not due. Then it is sent anew, so that it is never too old.
const longestHold = 11 * time.Hour

// hold locks a message for a time, whole seconds and no shorter.
func (d *delivery) hold(until time.Duration) {
	e := &entry[*settlement]{what: &settlement{kind: renewal, handle: d.handle, timeout: time.Duration(seconds(until)) * time.Second}}
	ctx, cancel := context.WithTimeout(d.r.cut, requestTimeout)
	defer cancel()
	d.r.settler.change(ctx, []*entry[*settlement]{e}) // else it comes again sooner
}
