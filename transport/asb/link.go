package asb

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
)

// link is a receiving link of the SDK, of one poller.
type link struct {
	r      *receiver
	sdk    *azservicebus.Receiver
	opened time.Time // zero: it has not worked since it was lost
	credit int       // messages that were asked for and have not come, at most
	losses int       // soon after it was opened, since messages have come
	singly time.Time // until when it asks for one message at a time
	usage  *usage
}

// usage are the settlements that wait for an answer on a link.
type usage struct {
	alive context.Context // ends when the link is lost
	end   context.CancelFunc

	mu       sync.Mutex // guards closing, and the growth of settling
	closing  bool
	settling sync.WaitGroup
}

func newUsage() *usage {
	u := &usage{}
	u.alive, u.end = context.WithCancel(context.Background())
	return u
}

// begin reports whether a settlement may use the link. Then settling.Done has to follow.
func (u *usage) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing || u.alive.Err() != nil {
		return false
	}
	u.settling.Add(1)
	return true
}

// close refuses further settlements, and waits for those in progress.
func (u *usage) close() {
	u.mu.Lock()
	u.closing = true
	u.mu.Unlock()
	u.settling.Wait()
}

func newLink(r *receiver) *link { return &link{r: r, usage: newUsage()} }

// lost ends the settlements that wait for an answer on the link.
func (l *link) lost() {
	l.opened, l.credit = time.Time{}, 0
	l.usage.end()
	l.usage = newUsage()
}

// errLinkLost is the error of a link that is lost again before messages have come. The SDK keeps the cause to itself.
var errLinkLost = errors.New("the service has closed the link to receive messages by")

// steady is how long a link has to last for its loss to be none of several in a row: the service closes links that were idle for ten minutes
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot, "Link is closed").
const steady = time.Minute

// requestSize returns how many messages the next request may bring at most.
func (l *link) requestSize() int {
	if time.Now().Before(l.singly) {
		return 1
	}
	return mostAsked
}

// singleOut lets each request bring one message, after one that cannot be read has made others inaccessible: until those are redelivered, and
// so that it does not do so again. It returns the messages that came in the meantime.
func (l *link) singleOut() (last []*delivery) {
	l.singly = time.Now().Add(2 * l.r.lockDuration())
	return l.close() // it has asked for many
}

// receive waits for messages. Without messages and error the link was lost, and the next call opens another one. It may return messages
// that came before the error.
func (l *link) receive(ctx context.Context, most int) (deliveries []*delivery, err error) {
	if l.sdk == nil {
		options := &azservicebus.ReceiverOptions{}
		name, sub := l.r.t.cfg.source(l.r.address)
		options.SubQueue = sub
		if l.r.mode == core.TransactionNone {
			options.ReceiveMode = azservicebus.ReceiveModeReceiveAndDelete
		}
		if l.sdk, err = l.r.client.NewReceiverForQueue(name, options); err != nil {
			return nil, err
		}
	}
	if l.opened.IsZero() {
		// While the queue is empty a request for messages tells nothing of a link that works again.
		if err := l.check(); err != nil {
			return l.closeIfUnusable(err), err
		}
		l.opened = time.Now()
		l.r.works()
	}
	messages, err := fetch(ctx, l.sdk, most)
	l.credit = max(l.credit, most) - len(messages)
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

// loss notes that the link was lost after a time without messages. It is an error if that happens again and again.
func (l *link) loss(lasted time.Duration) error {
	if lasted > steady {
		l.losses = 0
	}
	if l.losses++; l.losses > 1 {
		return errLinkLost
	}
	return nil
}

// closeIfUnusable closes the link if the error shows that it is unusable, and returns messages that came before it.
func (l *link) closeIfUnusable(err error) (last []*delivery) {
	if _, unreadable := errors.AsType[*unreadableError](err); unreadable {
		return l.singleOut()
	}
	switch {
	case linkClosed(err):
		return l.discard()
	case !isContext(err):
		l.lost()
	}
	return nil
}

// discard closes the SDK's receiver, whose link is lost, and returns messages that came before that. The SDK would keep the link where the
// service has closed it with com.microsoft:server-busy, and receive nothing any more.
func (l *link) discard() (last []*delivery) {
	l.credit = 0
	l.usage.end()
	return l.close()
}

// deliveries returns those of messages that have arrived.
func (l *link) deliveries(messages []*azservicebus.ReceivedMessage) []*delivery {
	at := time.Now()
	deliveries := make([]*delivery, len(messages))
	for i, m := range messages {
		deliveries[i] = newDelivery(l.r, m, at, l.usage, nil)
	}
	return deliveries
}

// check opens the link. It is not interrupted: the SDK may leave a connection behind that cannot be used.
func (l *link) check() error {
	ctx, cancel := context.WithTimeout(l.r.closing, requestTimeout)
	defer cancel()
	return peek(ctx, l.sdk)
}

// close closes the link, and returns the messages that came before that; the next request opens another one. The SDK cannot withdraw
// its request, and a message that is on its way when its link is closed stays locked without a receiver. So the link stays open until nothing
// comes any more, or all has come that was asked for. Its messages are settled by their locks alone after that.
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
	_ = l.sdk.Close(ctx)
	if l.r.mode == core.TransactionNone { // the SDK has kept them, since the service has forgotten them
		for messages := l.listen(ctx); len(messages) > 0; messages = l.listen(ctx) {
			last = append(last, l.deliveries(messages)...)
		}
	}
	l.sdk = nil
	l.lost()
	return last
}

// onTheWay is the longest time that a message which was asked for may be on its way.
const onTheWay = 150 * time.Millisecond

// listen returns messages that come on a link that is about to be closed.
func (l *link) listen(ctx context.Context) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(ctx, onTheWay)
	defer cancel()
	messages, _ := fetch(ctx, l.sdk, max(l.credit, 1))
	return messages
}
