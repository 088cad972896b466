package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// delays forwards messages from a queue of long delays: a FIFO queue that delays each
// message by 15 minutes, SQS's maximum. A message that is due within 15 minutes goes from
// there to its destination queue; any other message goes to the same queue once more. The
// senders and other receivers may be NServiceBus endpoints, whose transport does the
// same.
type delays struct {
	r       *receiver
	url     string
	pauses  transport.Outages
	outages transport.Outages // not those of requests for messages; no retry can end them
}

func newDelays(r *receiver, url string, told func(core.ConnectionChange)) *delays {
	return &delays{r: r, url: url, outages: transport.Outages{ConnectionChanged: told}}
}

// run forwards messages until the receiver closes.
func (d *delays) run() {
	r := d.r
	for r.closing.Err() == nil {
		began := time.Now()
		arrived, err := r.request(r.cut, d.url, receiveBatch)
		if err == nil {
			err = d.forward(arrived)
		}
		switch {
		case err == nil:
			d.pauses.End()
			d.outages.End()
			continue
		case r.closing.Err() != nil:
			return
		case !transient(err):
			d.outages.Failed(fmt.Errorf("sqs: forward the messages to %q that are delayed for more than %v, in the queue %q: %w", r.address, maxNativeDelay, delayQueue(r.address), r.t.explained(err)), began)
		}
		_ = transport.Sleep(r.closing, r.t.life.Context(), d.pauses.Failed(err, began), nil)
	}
}

// forwarding is a message that is sent on, and then deleted from its previous queue.
type forwarding struct {
	from   *delivery
	entry  *batch.Entry[*sending] // nil: the message is only deleted
	to     *batch.Batcher[*sending]
	excess error // the service allows no such message: it was not sent
}

// forwardTo begins to send a message to a queue.
func (t *Transport) forwardTo(address string, from *delivery, s *sending) forwarding {
	if len(s.attributes()) > message.MaxAttributes {
		// The sender's attributes leave no room for those of the copy: some become headers alone.
		own := message.Encoded{Attrs: s.Attrs}
		if m := t.codec.Recode(from.in, message.MaxAttributes-len(own.Attrs), serviceLimit-own.Bytes()); m != nil {
			m.Attrs = append(m.Attrs, own.Attrs...)
			s.Encoded, s.native = m, nil
		}
	}
	f := forwarding{from, &batch.Entry[*sending]{Item: s, Bytes: s.bytes()}, t.sender(address), s.excess()}
	if f.excess == nil {
		f.to.Add(f.entry)
	}
	return f
}

// await waits until the message is sent on. It returns whether the service refuses this
// message, now and later.
func (f *forwarding) await() (refused bool, err error) {
	switch {
	case f.excess != nil:
		return true, f.excess
	case f.entry == nil:
		return false, nil
	}
	err, _ = f.to.Await(context.Background(), f.entry, 0)
	if _, ofEntry := errors.AsType[*entryError](err); ofEntry {
		kind := faultOf(err)
		refused = kind == faultTooLarge || kind == faultOther
	}
	return refused, err
}

// forward sends messages on and deletes them. If a message was sent and could not be
// deleted, it is sent once more when it is redelivered; the service drops the second one
// if that is within five minutes. A message that is refused with the attributes of its
// delay goes to the receiver's queue without them, from where it goes to the error queue.
func (d *delays) forward(arrived []*delivery) error {
	r := d.r
	if len(arrived) == 0 {
		return nil
	}
	forwarded := make([]forwarding, len(arrived))
	for i, m := range arrived {
		now := m.now()
		due, sent := m.longDue()
		remaining := due.Sub(now)
		s := m.copied(message.AttrDelaySeconds, message.AttrDue, message.AttrDelay, message.AttrLives)
		if m.in.TTL > 0 {
			lives := m.in.TTL - now.Sub(sent)
			if lives <= 0 { // it has expired
				forwarded[i].from = m
				continue
			}
			s.Add(message.AttrLives, strconv.FormatInt(max(1, lives.Milliseconds()), 10))
		}
		to := delayQueue(r.address)
		if remaining > maxNativeDelay {
			s.Add(message.AttrDelaySeconds, strconv.FormatInt(seconds(remaining), 10))
			s.Add(message.AttrDue, strconv.FormatInt(due.UnixMilli(), 10))
			s.group, s.deduplication = m.in.NativeID, m.in.NativeID
		} else {
			to = r.address
			if remaining > 0 {
				s.delaySeconds = int32(seconds(remaining))
				s.Add(message.AttrDelay, strconv.FormatInt(int64(s.delaySeconds)*1000, 10))
			}
			if m.in.GroupKey != "" {
				s.group = message.GroupID(m.in.GroupKey)
			}
		}
		forwarded[i] = r.t.forwardTo(to, m, s)
	}
	refused, err := r.finishForwarding(d.url, forwarded)
	if len(refused) == 0 {
		return err
	}
	bare := make([]forwarding, len(refused))
	for i, m := range refused {
		s := m.copied(message.AttrDelaySeconds, message.AttrDue, message.AttrDelay, message.AttrLives, message.AttrWait)
		s.Add(message.AttrWait, message.Undelayed)
		bare[i] = r.t.forwardTo(r.address, m, s)
	}
	refused, undelayed := r.finishForwarding(d.url, bare)
	r.release(d.url, refused)
	return cmp.Or(err, undelayed)
}

// longDue returns when a message in a queue of long delays is due, and when it was first
// sent as far as the message tells, by the service's clock.
func (d *delivery) longDue() (due, sent time.Time) {
	attrs := message.Attributes(d.in.Native.(*types.Message))
	var delay time.Duration
	if n, err := strconv.ParseInt(attrs[message.AttrDue], 10, 64); err == nil {
		delay = time.UnixMilli(n).Sub(d.in.Sent)
	} else if delay = message.ParseMilliseconds(attrs[message.AttrDelay]); delay == 0 { // from an NServiceBus endpoint
		if n, err := strconv.ParseInt(attrs[message.AttrDelaySeconds], 10, 64); err == nil && n > 0 && n < int64((1<<63-1)/time.Second) {
			delay = time.Duration(n) * time.Second
		}
	}
	return d.in.Sent.Add(d.r.believed(delay)), d.in.Sent
}

// believed returns a delay that a message asks for, or Config.MaxDelay if that is shorter.
func (r *receiver) believed(delay time.Duration) time.Duration {
	limit := r.t.cfg.MaxDelay
	if delay > limit {
		r.t.warnOfDelay.Do(func() {
			r.warn(fmt.Sprintf("a message to %q asks for a delay of %v, more than Config.MaxDelay; such messages are delivered after %v. "+
				"Raise Config.MaxDelay if senders need longer delays", r.address, delay, limit))
		})
	}
	return min(delay, limit)
}

// now returns the service's time. It is exact for a message that has just been received
// for the first time.
func (d *delivery) now() time.Time {
	if d.in.ReceiveCount == 1 && !d.in.First.IsZero() {
		return d.in.First
	}
	return d.r.t.clock.Now()
}

// copied returns the message as it was received, without the attributes of these names.
func (d *delivery) copied(without ...string) *sending {
	m := d.in.Native.(*types.Message)
	s := &sending{Encoded: &message.Encoded{Text: aws.ToString(m.Body), Trace: m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)]}, native: maps.Clone(m.MessageAttributes)}
	for _, name := range without {
		delete(s.native, name)
	}
	return s
}

// finishForwarding waits until messages are sent on, and deletes them from the queue with
// the URL. A message that could not be sent stays there, and is redelivered at once; its
// count stays the same in this process. Messages that the service refuses, now and later,
// are returned.
func (r *receiver) finishForwarding(url string, forwarded []forwarding) (refused []*delivery, err error) {
	var done, left []*delivery
	for _, f := range forwarded {
		switch always, failed := f.await(); {
		case failed == nil:
			done = append(done, f.from)
		case always:
			f.from.refusal = failed
			refused = append(refused, f.from)
		default:
			err = failed
			left = append(left, f.from)
		}
	}
	settleRequests{r.t, url}.deleteAll(r.cut, done)
	r.release(url, left)
	return refused, err
}

// release makes messages of the queue with the URL, which no handler has seen, available to
// others. Their count stays the same in this process.
func (r *receiver) release(url string, unseen []*delivery) {
	for _, d := range unseen {
		d.noteUnseen()
	}
	settleRequests{r.t, url}.release(r.cut, unseen)
}

// delayAll delays messages of the receiver's own queue that are not due: events, which
// SNS does not delay, and messages to a FIFO queue, in which SQS cannot delay a single
// message. There a message waits in a separate group, which the adapter made: in another
// group it would block the messages after it. delayAll returns messages that cannot be
// delayed, as malformed ones.
func (r *receiver) delayAll(notDue []*delivery) (malformed []*delivery, err error) {
	var forwarded []forwarding
	for _, d := range notDue {
		now := d.now()
		remaining := d.in.Sent.Add(r.believed(d.in.Wait)).Sub(now)
		fifo := isFIFO(r.address)
		waits := remaining > 0 && (fifo || remaining > maxNativeDelay)
		if waits && (d.in.WaitsAlone || !fifo) && d.in.ReceiveCount == 1 {
			r.settler.lock(r.cut, []*delivery{d}, min(remaining, longestDelayLock))
			continue
		}
		s := d.copied(message.AttrWait, message.AttrLives)
		if d.in.TTL > 0 {
			s.Add(message.AttrLives, strconv.FormatInt(max(1, (d.in.TTL-now.Sub(d.in.Sent)).Milliseconds()), 10))
		}
		switch {
		case waits: // once more
			s.Add(message.AttrWait, strconv.FormatInt(max(1, remaining.Milliseconds()), 10))
		case d.in.Enveloped: // the envelope has the previous value
			s.Add(message.AttrWait, "0")
		}
		if remaining > 0 && !waits {
			s.delaySeconds = int32(seconds(remaining))
			s.Add(message.AttrDelay, strconv.FormatInt(int64(s.delaySeconds)*1000, 10))
		}
		switch {
		case fifo && waits:
			s.group = message.Waiting + d.in.NativeID
		case d.in.GroupKey != "":
			s.group = message.GroupID(d.in.GroupKey)
		case fifo:
			s.group = message.Ungrouped + d.in.NativeID
		}
		if fifo {
			s.deduplication = d.in.NativeID
		}
		forwarded = append(forwarded, r.t.forwardTo(r.address, d, s))
	}
	malformed, err = r.finishForwarding(r.url, forwarded)
	for _, d := range malformed {
		d.in.Malformed = errors.Join(d.in.Malformed, fmt.Errorf("its delay of %v cannot be honoured, because SQS allows no copy of it that waits for the rest; send it with fewer attributes or a smaller body: %w", d.in.Wait, d.refusal))
	}
	return malformed, err
}

// longestDelayLock is the longest lock of a message that is not due. After it the message
// is sent anew, so that it never reaches the service's limit of a lock.
const longestDelayLock = 11 * time.Hour

// releaseAll makes messages that no handler has seen available to others. Unlocking a
// message would count as an attempt, so it is replaced by a copy, which the service counts
// from 1; the copy has the number of earlier attempts in the engine's header. A FIFO queue
// keeps the message, so that its order stays the same.
func (r *receiver) releaseAll(surplus []*delivery) {
	if len(surplus) == 0 {
		return
	}
	if isFIFO(r.address) {
		r.release(r.url, surplus)
		return
	}
	forwarded := make([]forwarding, len(surplus))
	for i, d := range surplus {
		s := d.copied(message.AttrFailures, message.AttrEnqueued, message.AttrLives, message.AttrDelay)
		if n := d.in.DeliveryCount - 1 + d.in.Failures(); n > 0 {
			s.Add(message.AttrFailures, strconv.Itoa(n))
		}
		if !d.in.EnqueuedAt.IsZero() {
			s.Add(message.AttrEnqueued, strconv.FormatInt(d.in.EnqueuedAt.UnixMilli(), 10))
		}
		if d.in.TTL > 0 {
			s.Add(message.AttrLives, strconv.FormatInt(max(1, (d.in.TTL-d.now().Sub(d.in.Sent)).Milliseconds()), 10))
		}
		if d.in.GroupKey != "" {
			s.group = message.GroupID(d.in.GroupKey)
		}
		forwarded[i] = r.t.forwardTo(r.address, d, s)
	}
	refused, _ := r.finishForwarding(r.url, forwarded) // messages that could not be sent were released
	r.release(r.url, refused)
}
