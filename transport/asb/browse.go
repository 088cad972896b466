package asb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Browse implements queues.Browser by peeking, which needs the right Listen. The service does not tell whether a message is locked, so
// locked ones are [queues.Ready]. A delayed message that becomes due gets another key: the service moves it to the end of the queue.
// The queues of Config.SessionQueues cannot be browsed, because the SDK peeks into a session only while it has the session's lock.
func (t *Transport) Browse(ctx context.Context, r queues.Request) (queues.Page, error) {
	page, err := t.browse(ctx, &r)
	if err != nil {
		return queues.Page{}, fmt.Errorf("asb: browse %q: %w", r.Queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return page, nil
}

// maxPeeked is the most messages that the service returns for one request
// (https://github.com/Azure/azure-sdk-for-python/issues/26643).
const maxPeeked = 250

func (t *Transport) browse(ctx context.Context, r *queues.Request) (queues.Page, error) {
	if err := t.life.Err(ctx); err != nil {
		return queues.Page{}, err
	}
	if err := transport.PrepareBrowse(r); err != nil {
		return queues.Page{}, err
	}
	address, err := t.cfg.names().QueueAddress(r.Queue)
	if err != nil {
		return queues.Page{}, err
	}
	if t.cfg.names().KeepsGroups(address) {
		return queues.Page{}, transport.Permanent(fmt.Errorf("the queue has sessions, into which the SDK peeks only with their locks; to fix: receive its messages and close the receiver without settling them: %w", errors.ErrUnsupported))
	}
	b := &browsing{t: t, address: address, request: r}
	if r.Keys != nil {
		return b.byKeys(ctx)
	}
	return b.page(ctx)
}

// browsing is the reading of one page.
type browsing struct {
	t        *Transport
	address  string
	request  *queues.Request
	read     []queues.Message
	bytes    int // of the messages in read, as far as they are kept
	peeked   int // messages
	received int // bytes of these
	link     *peekLink
}

// page reads a range.
func (b *browsing) page(ctx context.Context) (queues.Page, error) {
	next, err := b.start()
	if err != nil {
		return queues.Page{}, err
	}
	for len(b.read) < b.request.Limit && (b.bytes < b.request.MaxBytes || len(b.read) == 0) {
		messages, err := b.peek(ctx, next, min(b.request.Limit-len(b.read), b.fitting()))
		if err != nil {
			return queues.Page{}, err
		}
		if len(messages) == 0 {
			return queues.Page{Messages: b.read}, nil
		}
		for _, m := range messages {
			if m.SequenceNumber == nil {
				continue
			}
			shown := b.message(m)
			size := shown.Headers.Bytes() + len(shown.Body)
			if len(b.read) > 0 && b.bytes+size > b.request.MaxBytes {
				b.bytes = b.request.MaxBytes // the page is full
				break
			}
			b.read, b.bytes = append(b.read, shown), b.bytes+size
			next = *m.SequenceNumber + 1
		}
	}
	return queues.Page{Messages: b.read, Next: cursor(b.address, next-1)}, nil
}

// fitting returns how many messages a request may bring, so that they are not many more bytes than a page.
func (b *browsing) fitting() int {
	rest, size := b.request.MaxBytes-b.bytes, b.t.cfg.MaxMessageBytes
	if b.peeked > 0 {
		size = 2*b.received/b.peeked + 1024
	}
	return max(1, min(maxPeeked, rest/size))
}

// byKeys reads the messages with the keys of the request. Sequence numbers that are close to each other need one request.
func (b *browsing) byKeys(ctx context.Context) (queues.Page, error) {
	keys := make([]int64, 0, len(b.request.Keys))
	for _, key := range b.request.Keys {
		if n, ok := parseSequence(key); ok {
			keys = append(keys, n)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for len(keys) > 0 {
		from, n := keys[0], 1
		for limit := b.fitting(); n < len(keys) && keys[n]-from < int64(min(2*(n+1), limit)); n++ {
		}
		messages, err := b.peek(ctx, from, int(keys[n-1]-from)+1)
		if err != nil {
			return queues.Page{}, err
		}
		last := keys[n-1] // nothing else is there, unless the service returned fewer messages
		if len(messages) > 0 && len(messages) <= int(keys[n-1]-from) {
			last = from
		}
		for _, m := range messages {
			if m.SequenceNumber == nil {
				continue
			}
			last = max(last, *m.SequenceNumber)
			if _, wanted := slices.BinarySearch(keys, *m.SequenceNumber); !wanted {
				continue
			}
			if b.bytes >= b.request.MaxBytes {
				return queues.Page{}, transport.ErrTooManyKeys
			}
			shown := b.message(m)
			b.read, b.bytes = append(b.read, shown), b.bytes+shown.Headers.Bytes()+len(shown.Body)
		}
		after, found := slices.BinarySearch(keys, last)
		if found {
			after++
		}
		keys = keys[after:]
	}
	return queues.Page{Messages: b.read}, nil
}

// message returns a peeked message as the next delivery would have it.
func (b *browsing) message(m *azservicebus.ReceivedMessage) queues.Message {
	var in message.Received
	b.t.codec.Read(&in, b.address, m)
	in.DeliveryCount-- // that of the next delivery
	if !in.Expires.IsZero() && in.HasOwnLifetime(b.link.timeToLive()) {
		in.ExpiresAt = in.Expires.Add(-b.t.clock.Ahead())
	}
	shown := queues.Message{Incoming: in.Incoming, Key: strconv.FormatInt(*m.SequenceNumber, 10), BodyBytes: len(in.Body)}
	switch m.State {
	case azservicebus.MessageStateDeferred:
		shown.State = queues.Parked
	case azservicebus.MessageStateScheduled:
		shown.State = queues.Delayed
		if m.ScheduledEnqueueTime != nil {
			shown.DueAt = m.ScheduledEnqueueTime.Add(-b.t.clock.Ahead())
		}
	}
	b.peeked++
	b.received += shown.Headers.Bytes() + len(shown.Body)
	if b.request.WithoutBody {
		shown.Body = nil
		m.Body, m.RawAMQPMessage.Body = nil, azservicebus.AMQPAnnotatedMessageBody{} // Native has them too
	}
	return shown
}

// A cursor is the address of a queue and the sequence number of the last message, separated by cursorMark, which addresses do not have.
const cursorMark = "#"

func cursor(address string, last int64) string {
	return address + cursorMark + strconv.FormatInt(last, 10)
}

// start returns the sequence number at which the page begins.
func (b *browsing) start() (int64, error) {
	if b.request.After == "" {
		return 0, nil
	}
	address, text, _ := strings.Cut(b.request.After, cursorMark)
	last, ok := parseSequence(text)
	if !ok || address != b.address {
		return 0, transport.Permanent(fmt.Errorf("After is %.300q, which is no Next of a page of this queue; begin with \"\"", b.request.After))
	}
	return last + 1, nil
}

// parseSequence parses a sequence number in the form in which it is written here. In a partitioned queue its highest bits are
// the partition (https://learn.microsoft.com/azure/service-bus-messaging/message-sequencing).
func parseSequence(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n < math.MaxInt64 && strconv.FormatInt(n, 10) == text
}

// peek peeks at most limit messages. The service may return fewer, but none only if nothing follows. If a link that was
// used before is lost, it opens another one.
func (b *browsing) peek(ctx context.Context, from int64, limit int) (messages []*azservicebus.ReceivedMessage, err error) {
	for {
		l, used, err := b.t.peeking.link(b.address)
		if err != nil {
			return nil, err
		}
		b.link = l
		err = attempt(ctx, requestTimeout, func(ctx context.Context) (err error) {
			messages, err = sdkclient.PeekFrom(ctx, l.client, l.sdk, from, limit)
			return err
		})
		if err == nil {
			return messages, nil
		}
		if lost := b.t.peeking.drop(l, transient(err)); !used || !lost || ctx.Err() != nil {
			return nil, err
		}
	}
}
