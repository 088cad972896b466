package asb

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// link is a receiving link of the SDK, of one poller.
type link struct {
	r      *receiver
	sdk    *azservicebus.Receiver // nil: none
	client *sdkclient.Client      // of sdk
	opened time.Time              // zero: it has not worked since it was lost
	credit int                    // most messages that were requested and have not arrived
	losses int                    // soon after it was opened, since the last message arrived
	usage  *usage
}

func newLink(r *receiver) *link { return &link{r: r, usage: newUsage(context.Background())} }

// lost cancels the settlements that wait for an answer on the link.
func (l *link) lost() {
	l.opened, l.credit = time.Time{}, 0
	l.usage.end()
}

// errLinkLost is the error of a link that is lost again before messages have arrived. The
// SDK does not report the cause.
var errLinkLost = errors.New("the service has closed the link to receive messages by")

// steady is how long a link must last for its loss not to count as one of several in a
// row: the service closes links that were idle for ten minutes
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot,
// "Link is closed").
const steady = time.Minute

// receive waits for messages. If it returns neither messages nor an error, the link was
// lost, and the next call opens another one. It may return messages that arrived before
// the error.
func (l *link) receive(ctx context.Context, limit int) (deliveries []*delivery, err error) {
	switch {
	case l.sdk == nil:
	case l.client.Stuck():
		return l.discard(), nil
	case !l.opened.IsZero() && l.usage.alive.Err() != nil:
		err = l.loss(time.Since(l.opened))
		return l.discard(), err
	}
	if l.sdk == nil {
		if err := l.create(); err != nil {
			return nil, err
		}
	}
	if l.opened.IsZero() {
		// While the queue is empty, a request for messages does not show whether the link
		// works again. If the connection ends before the answer, the SDK would keep the
		// link: it recovers only in the second attempt of a call, which has none
		// (azservicebus v1.11.0, AMQPLinksImpl.Retry), or after an error of ReceiveMessages.
		if err := l.check(); err != nil {
			return l.discard(), err
		}
		l.opened = time.Now()
		l.r.works()
	}
	messages, err := l.poll(ctx, limit)
	l.credit = max(l.credit, limit) - len(messages)
	switch {
	case err != nil:
		return l.closeIfUnusable(err), err
	case len(messages) == 0:
		err = l.loss(time.Since(l.opened))
		return l.discard(), err
	}
	l.losses = 0
	return l.deliveries(messages), nil
}

// create creates a receiver of the SDK, which has no link yet.
func (l *link) create() (err error) {
	ctx, cancel := context.WithTimeout(l.r.closing, requestTimeout)
	defer cancel()
	name, sub := l.r.t.cfg.names().Source(l.r.address)
	options := &azservicebus.ReceiverOptions{SubQueue: sub}
	if l.r.mode == core.TransactionNone {
		options.ReceiveMode = azservicebus.ReceiveModeReceiveAndDelete
	}
	l.client = l.r.currentClient()
	l.sdk, err = l.client.Receiver(ctx, name, options)
	return err
}

// longestPoll is the longest wait for messages in one call of the SDK. A call from which
// the SDK does not return is given up only after the end of its context, and until then no
// message is received. Before the SDK reports that a link is lost, it waits for up to two
// minutes for the service to confirm that (azservicebus v1.11.0, AMQPLinksImpl.CloseIfNeeded).
const longestPoll = 10 * time.Second

// poll waits for messages until ctx ends or the link is lost. The SDK does not learn of the
// loss of a connection: it would close the client's connection, which may be another one by
// then, on which the control settles (azservicebus v1.11.0, AMQPLinksImpl.CloseIfNeeded).
func (l *link) poll(ctx context.Context, limit int) ([]*azservicebus.ReceivedMessage, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, longestPoll)
		unregister := context.AfterFunc(l.usage.alive, cancel)
		messages, err := sdkclient.Fetch(limited, l.client, l.sdk, limit, l.r.takeAbandoned)
		idle := limited.Err() != nil && ctx.Err() == nil
		lost := l.usage.alive.Err() != nil
		unregister()
		cancel()
		switch {
		case !idle || !isContext(err):
			return messages, err
		case lost:
			return nil, nil //nolint:nilerr // the caller opens another link
		}
	}
}

// loss records that the link was lost after a time without messages. It returns an error
// if that happens several times in a row.
func (l *link) loss(lasted time.Duration) error {
	if lasted > steady {
		l.losses = 0
	}
	if l.losses++; l.losses > 1 {
		return errLinkLost
	}
	return nil
}

// closeIfUnusable closes the link if the error shows that it is unusable, and returns
// messages that arrived before.
func (l *link) closeIfUnusable(err error) (last []*delivery) {
	_, unreadable := errors.AsType[*sdkclient.UnreadableError](err)
	switch {
	case unreadable || linkClosed(err) || sdkclient.IsStuck(err):
		return l.discard()
	case !isContext(err):
		l.lost()
	}
	return nil
}

// discard closes the SDK's receiver, whose link is lost, and returns messages that
// arrived before. If the service has closed the link with com.microsoft:server-busy, the
// SDK would keep it and never receive again.
func (l *link) discard() (last []*delivery) {
	l.credit = 0
	l.usage.end()
	return l.close()
}

// deliveries returns the deliveries of messages that have arrived.
func (l *link) deliveries(messages []*azservicebus.ReceivedMessage) []*delivery {
	at := time.Now()
	deliveries := make([]*delivery, len(messages))
	for i, m := range messages {
		deliveries[i] = newDelivery(l.r, m, at, l.usage, nil)
	}
	return deliveries
}

// check opens the link. It is not canceled early: the SDK may leave an unusable
// connection behind.
func (l *link) check() error {
	ctx, cancel := context.WithTimeout(l.r.closing, requestTimeout)
	defer cancel()
	connection, err := openLink(ctx, requestTimeout, l.client, l.sdk)
	if err == nil {
		l.usage = newUsage(connection)
	}
	return err
}

// close closes the link, and returns the messages that arrived before; the next request
// opens another link. The SDK cannot withdraw its request, and a message that arrives
// after its link is closed stays locked without a receiver. So the link stays open until
// no more messages arrive, or all requested ones have. After that the messages are
// settled by their lock tokens alone.
func (l *link) close() (last []*delivery) {
	if l.sdk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.r.graceful, closeGrace)
	defer cancel()
	for l.credit > 0 {
		messages := l.listen(ctx)
		if len(messages) == 0 {
			break
		}
		l.credit -= len(messages)
		last = append(last, l.deliveries(messages)...)
	}
	l.usage.close()
	last = append(last, l.deliveries(l.r.closeLink(ctx, l.client, l.sdk))...)
	l.sdk, l.client = nil, nil
	l.lost()
	return last
}

// onTheWay is the longest time in which a requested message may arrive.
const onTheWay = 150 * time.Millisecond

// listen returns messages that arrive on a link that is about to be closed.
func (l *link) listen(ctx context.Context) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(ctx, onTheWay)
	defer cancel()
	messages, _ := sdkclient.Fetch(ctx, l.client, l.sdk, max(l.credit, 1), l.r.takeAbandoned)
	return messages
}

// closeLink closes a link, and returns the messages that the SDK has kept. It keeps some
// only in mode None, in which the service has forgotten them.
func (r *receiver) closeLink(ctx context.Context, c *sdkclient.Client, sdk interface {
	sdkclient.Source
	Close(ctx context.Context) error
}) []*azservicebus.ReceivedMessage {
	closeNow := func() (kept []*azservicebus.ReceivedMessage, _ error) {
		_ = sdk.Close(ctx) // without an answer the service ends the link by itself
		for r.mode == core.TransactionNone {
			messages, _ := sdkclient.FetchNow(ctx, sdk, maxRequested) // an error if there are none left
			if len(messages) == 0 {
				break
			}
			kept = append(kept, messages...)
		}
		return kept, nil
	}
	if c.Stuck() {
		if r.mode == core.TransactionNone {
			go func() {
				kept, _ := closeNow()
				r.takeAbandoned(kept)
			}()
		}
		return nil
	}
	kept, _ := sdkclient.Call(ctx, c, "close a link", closeNow, r.takeAbandoned) // a call that was given up has none
	return kept
}

// takeAbandoned takes the messages of a call that was given up, and whose link is gone. They
// are released; in mode None they arrive, or are sent again when the receiver is closed.
// Those of a session are redelivered when its lock has ended.
func (r *receiver) takeAbandoned(messages []*azservicebus.ReceivedMessage) {
	if len(messages) == 0 || r.sessions && r.mode != core.TransactionNone {
		return
	}
	ended := newUsage(context.Background())
	ended.end()
	deliveries := make([]*delivery, len(messages))
	for i, m := range messages {
		deliveries[i] = newDelivery(r, m, time.Now(), ended, nil)
	}
	r.mu.Lock()
	closed := r.closed
	switch {
	case closed:
	case r.mode == core.TransactionNone:
		r.arriveLocked(deliveries...)
	default:
		r.pollers.Go(func() { r.releaseUnseen(deliveries) })
	}
	r.mu.Unlock()
	if closed && r.mode == core.TransactionNone {
		r.resend(r.t.life.Context(), deliveries)
	}
}
