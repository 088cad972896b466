package asb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// settler settles messages and renews their locks. The SDK's Receiver and SessionReceiver
// implement it.
type settler interface {
	CompleteMessage(ctx context.Context, m *azservicebus.ReceivedMessage, options *azservicebus.CompleteMessageOptions) error
	AbandonMessage(ctx context.Context, m *azservicebus.ReceivedMessage, options *azservicebus.AbandonMessageOptions) error
	DeadLetterMessage(ctx context.Context, m *azservicebus.ReceivedMessage, options *azservicebus.DeadLetterOptions) error
}

// control settles the messages of a receiver and renews their locks. It requests no
// messages itself, so the service sends it none, not even while the receiver closes.
type control struct {
	r       *receiver
	opening chan struct{} // has a value while a call opens current
	current atomic.Pointer[controlLink]
}

// controlLink is the link of a control.
type controlLink struct {
	sdk        *azservicebus.Receiver
	client     *sdkclient.Client
	connection context.Context // ends with its connection
}

func newControl(r *receiver) *control { return &control{r: r, opening: make(chan struct{}, 1)} }

// link returns the SDK's receiver. A new one has a link, unless the service cannot be
// reached. Settlements would open a link too, but they wait for 4 s before their second
// attempt (see openLink).
func (c *control) link(ctx context.Context) (*controlLink, error) {
	if l := c.usable(); l != nil {
		return l, nil
	}
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.opening }()
	if l := c.usable(); l != nil {
		return l, nil
	}
	l := &controlLink{client: c.r.currentClient()}
	name, sub := c.r.t.cfg.names().Source(c.r.address)
	var err error
	if l.sdk, err = l.client.Receiver(ctx, name, &azservicebus.ReceiverOptions{SubQueue: sub}); err != nil {
		return nil, err
	}
	switch l.connection, err = openLink(ctx, openAttempt, l.client, l.sdk); {
	case err == nil:
		c.current.Store(l)
		return l, nil
	case !sdkclient.IsStuck(err): // whose client is being closed
		_ = l.close(ctx) // it has no link
	}
	return nil, err
}

// openLink opens the link of the SDK's receiver, and returns a context that ends with its
// connection. The first attempt may be the one in which the SDK detects that the connection
// is lost.
func openLink(ctx context.Context, limit time.Duration, c *sdkclient.Client, sdk *azservicebus.Receiver) (connection context.Context, err error) {
	for range 2 {
		err = attempt(ctx, limit, func(ctx context.Context) (err error) {
			connection, err = sdkclient.Open(ctx, c, sdk)
			return err
		})
		if err == nil || sdkclient.IsStuck(err) {
			break
		}
	}
	return connection, err
}

// usable returns the link that is open, or nil if there is none.
func (c *control) usable() *controlLink {
	l := c.current.Load()
	switch {
	case l == nil || l.client.Stuck():
		return nil
	case l.connection.Err() != nil:
		c.lost(l)
		return nil
	}
	return l
}

// lost closes a link, which is lost, so that the next call opens another one.
func (c *control) lost(l *controlLink) {
	if !c.current.CompareAndSwap(l, nil) {
		return
	}
	c.r.t.life.Go(func() {
		ctx, cancel := context.WithTimeout(c.r.t.life.Context(), closeGrace)
		defer cancel()
		_ = l.close(ctx)
	})
}

// close closes the link.
func (l *controlLink) close(ctx context.Context) error {
	return l.client.CallClose(ctx, "close a link", l.sdk.Close)
}

// settleAttempt is the longest wait for an answer on a link, before a settlement or
// renewal is repeated on another one. It is shorter than the pause after which the SDK
// repeats a settlement that was refused because the server is busy (azservicebus v1.11.0,
// messageSettler.go: it takes no RetryOptions, so 4 s, less a fifth of jitter): the
// second time the SDK sends nothing and reports a success, since go-amqp v1.7.0 takes a
// refused message for a settled one (Receiver.messageDisposition). It also prevents the
// SDK's pauses of up to a minute from delaying a settlement.
const settleAttempt = 3 * time.Second

// openAttempt is the longest time to open a link and get an answer on it, which takes
// about ten requests.
const openAttempt = 10 * time.Second

// errNoAnswer is the error of a request that the service has not answered in time.
var errNoAnswer = errors.New("the service has not answered in time")

// attempt makes a call of the SDK, and waits for at most limit.
func attempt(ctx context.Context, limit time.Duration, call func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && !sdkclient.IsStuck(err) {
		return errNoAnswer
	}
	return err
}

// errConnectionLost is the error of a request whose connection has ended before the answer.
var errConnectionLost = errors.New("the connection was lost before the service answered")

// attemptOn is attempt for a settlement or renewal on the link of a connection. It also ends
// with the connection: the SDK does not return then, but repeats a settlement on the same
// link after pauses of seconds (see settleAttempt).
func attemptOn(ctx, connection context.Context, limit time.Duration, call func(ctx context.Context) error) error {
	connected, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(connection, cancel)()
	err := attempt(connected, limit, call)
	if err != nil && connected.Err() != nil && ctx.Err() == nil && !sdkclient.IsStuck(err) {
		return errConnectionLost
	}
	return err
}

// do calls the SDK. If the link is lost, or the call is given up, it calls the SDK a second
// time on another link.
func (c *control) do(ctx context.Context, name string, ask func(ctx context.Context, sdk *azservicebus.Receiver) error) (err error) {
	for range 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, openErr := c.link(ctx)
		switch {
		case sdkclient.IsStuck(openErr):
			err = openErr
			continue // there is another connection
		case openErr != nil:
			return openErr
		}
		err = attemptOn(ctx, l.connection, settleAttempt, func(ctx context.Context) error { return l.do(ctx, name, ask) })
		if err == nil || !isLinkError(err) {
			return err
		}
		c.lost(l)
	}
	return err
}

// do calls the SDK.
func (l *controlLink) do(ctx context.Context, name string, ask func(ctx context.Context, sdk *azservicebus.Receiver) error) error {
	return l.client.Do(ctx, name, func() error { return ask(ctx, l.sdk) })
}

// isLinkError reports whether an error may concern only the link, so that another link may
// succeed.
func isLinkError(err error) bool {
	f := faultOf(err)
	return f == faultRefused || f == faultNoToken || f == faultOutage && !answered(err) && !isContext(err)
}

func (c *control) close(ctx context.Context) {
	if l := c.current.Load(); l != nil {
		_ = l.close(ctx)
	}
}
