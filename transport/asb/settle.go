package asb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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
	opening chan struct{} // has a value while a call opens sdk
	sdk     atomic.Pointer[azservicebus.Receiver]
}

func newControl(r *receiver) *control { return &control{r: r, opening: make(chan struct{}, 1)} }

// receiver returns the SDK's receiver. A new one has a link, unless the service cannot be
// reached. Settlements would open a link too, but they wait for 4 s before their second
// attempt, and the first attempt may be the one in which the SDK detects that the
// connection is lost.
func (c *control) receiver(ctx context.Context) (*azservicebus.Receiver, error) {
	if sdk := c.sdk.Load(); sdk != nil {
		return sdk, nil
	}
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.opening }()
	if sdk := c.sdk.Load(); sdk != nil {
		return sdk, nil
	}
	name, sub := c.r.t.cfg.source(c.r.address)
	sdk, err := c.r.client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: sub})
	if err != nil {
		return nil, err
	}
	for range 2 {
		if err = attempt(ctx, openAttempt, func(ctx context.Context) error { return peek(ctx, sdk) }); err == nil {
			c.sdk.Store(sdk)
			return sdk, nil
		}
	}
	_ = sdk.Close(ctx) // it has no link
	return nil, err
}

// lost closes the SDK's receiver, whose link is lost, so that the next call opens another one.
func (c *control) lost(sdk *azservicebus.Receiver) {
	if !c.sdk.CompareAndSwap(sdk, nil) {
		return
	}
	c.r.t.life.Go(func() {
		ctx, cancel := context.WithTimeout(c.r.t.life.Context(), closeGrace)
		defer cancel()
		_ = sdk.Close(ctx)
	})
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

// attempt calls the SDK, and waits for at most limit.
func attempt(ctx context.Context, limit time.Duration, call func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return errNoAnswer
	}
	return err
}

// do calls the SDK. If the link is lost, it calls the SDK a second time on another link.
func (c *control) do(ctx context.Context, call func(ctx context.Context, sdk *azservicebus.Receiver) error) (err error) {
	for range 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		sdk, openErr := c.receiver(ctx)
		if openErr != nil {
			return openErr
		}
		if err = attempt(ctx, settleAttempt, func(ctx context.Context) error { return call(ctx, sdk) }); err == nil || !onlyHere(err) {
			return err
		}
		c.lost(sdk)
	}
	return err
}

// onlyHere reports whether an error may concern only the link, so that another link may
// succeed.
func onlyHere(err error) bool {
	f := faultOf(err)
	return f == faultRefused || f == faultNoToken || f == faultOutage && !answered(err) && !isContext(err)
}

func (c *control) close(ctx context.Context) {
	if sdk := c.sdk.Load(); sdk != nil {
		_ = sdk.Close(ctx)
	}
}
