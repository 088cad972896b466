package sdkclient

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Client is a client of the SDK, which has one connection. All calls of the SDK that use a
// connection go through Do or Call, which return callGrace after the end of the call's
// context at the latest, also if the SDK does not.
//
// The SDK's calls can outlast their contexts (azservicebus v1.11.0, go-amqp v1.7.0):
//
//   - Once Sender.send has passed on a frame, it waits until the frame is written, or the
//     link has ended, but not for its context. The same is true of Receiver.sendDisposition
//     and of txFrameAndWait, which opens and ends links and sessions. That lasts while the
//     peer does not open the session's window, does not confirm the end of a link or a
//     session, or does not read. The end of the connection ends it.
//   - If the context ends before the frame is written, and the link ends at the same time,
//     Sender.send waits to return the message's credit to a link that is gone, with the
//     Sender's mutex held. Only Sender.Close ends that, which azservicebus does not call for
//     the requests on $management and $cbs (rpcLink.Close): these calls never return.
//   - AMQPLinksImpl.mu is held while a link is opened or closed, Namespace.negotiateClaimMu
//     during a request on $cbs, and Namespace.clientMu while a connection is opened. None
//     of them is given up when a context ends. So a call that does not return can block all
//     others of its client, Client.Close too.
//   - A credential gets a context that never ends (TokenProvider.getAZCoreToken).
//
// The end of the connection is therefore not enough, and each call has a goroutine, which
// the caller can leave behind. In addition, the client is replaced.
type Client struct {
	SDK    *azservicebus.Client
	dialer *dialer

	// Replace is called once, when a call was given up: it lets further calls use another
	// client, and aborts this one. If it is nil, the client is aborted.
	Replace func(*Client)

	todo  chan *task    // idle goroutines take tasks from it
	idle  atomic.Int32  // number of these goroutines
	ended chan struct{} // closed when the client is closed or aborted
	end   sync.Once     // closes ended

	stuck   atomic.Bool // a call was given up
	aborted atomic.Bool
}

// New returns a client with a separate connection, which it opens when it is first used.
func New(cfg *Config) (*Client, error) {
	c := &Client{dialer: &dialer{cfg: cfg}, todo: make(chan *task), ended: make(chan struct{})}
	options := cfg.Options
	options.NewWebSocketConn = c.dialer.dial
	var err error
	if cfg.ConnectionString == "" {
		c.SDK, err = azservicebus.NewClient(cfg.Namespace, cfg.Credential, &options)
	} else if c.SDK, err = azservicebus.NewClientFromConnectionString(cfg.ConnectionString, &options); err != nil {
		// The SDK's error may quote the text.
		err = errors.New("the SDK does not take Config.ConnectionString; copy it again from the portal")
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// RequestTimeout is the longest time of a request that does not wait for messages.
const RequestTimeout = time.Minute

// callGrace is how long a call of the SDK may take after its context has ended, until it
// is given up.
const callGrace = 5 * time.Second

// stuckError is the error of a call that was given up, since the SDK did not return from it.
type stuckError struct {
	call  string // for example "send"
	made  bool   // false: the call was not made, because another one was given up
	ended error  // the error of its context; nil: its client was closed
}

func (e *stuckError) Error() string {
	switch {
	case !e.made:
		return e.call + ": the SDK has not returned from another call on this connection, which is being replaced"
	case e.ended == nil:
		return fmt.Sprintf("%s: the SDK has not returned within %v after the connection was closed, so the call was given up", e.call, callGrace)
	}
	return fmt.Sprintf("%s: the SDK has not returned within %v after the end of the context (%v), so the call was given up, and the connection is replaced", e.call, callGrace, e.ended)
}

// Unwrap returns the error of the call's context.
func (e *stuckError) Unwrap() error { return e.ended }

// IsStuck reports whether an error is that of a call that was given up.
func IsStuck(err error) bool {
	_, stuck := errors.AsType[*stuckError](err)
	return stuck
}

// WasNotMade reports whether an error is that of a call that was not made, because another
// one was given up.
func WasNotMade(err error) bool {
	stuck, ok := errors.AsType[*stuckError](err)
	return ok && !stuck.made
}

// Do makes a call of the SDK in a goroutine. If the SDK does not return within callGrace
// after the end of ctx, or of the client, Do returns a *stuckError.
func (c *Client) Do(ctx context.Context, name string, ask func() error) error {
	_, err := c.perform(ctx, name, ask)
	return err
}

// Call is Do for a call that returns a value. If Do returns a *stuckError, and the SDK
// returns a value after all, takeAbandoned gets it, unless takeAbandoned is nil.
func Call[T any](ctx context.Context, c *Client, name string, ask func() (T, error), takeAbandoned func(T)) (value T, err error) {
	answer := new(T)
	abandoned, err := c.perform(ctx, name, func() (err error) {
		*answer, err = ask()
		return err
	})
	if IsStuck(err) {
		if abandoned != nil && takeAbandoned != nil {
			go func() {
				if <-abandoned.done == nil {
					takeAbandoned(*answer)
				}
			}()
		}
		return value, err
	}
	return *answer, err
}

// task is a call that a goroutine makes.
type task struct {
	ask      func() error
	done     chan error // gets the error
	panicked string     // "": the SDK did not panic
}

// tasks has tasks for use again.
var tasks = sync.Pool{New: func() any { return &task{done: make(chan error, 1)} }}

// perform makes a call of the SDK in a goroutine. If it gives up the call, it returns the
// task with the error.
func (c *Client) perform(ctx context.Context, name string, ask func() error) (abandoned *task, err error) {
	if c.stuck.Load() {
		return nil, &stuckError{call: name}
	}
	t := tasks.Get().(*task)
	t.ask = ask
	select {
	case c.todo <- t:
	default:
		go c.work(t)
	}
	select {
	case err = <-t.done:
	case <-ctx.Done():
		err = c.await(ctx, name, t)
	case <-c.ended:
		err = c.await(ctx, name, t)
	}
	if IsStuck(err) {
		return t, err
	}
	if t.panicked != "" {
		panic(fmt.Sprintf("asb: the SDK panics: %s: %s", name, t.panicked))
	}
	t.ask = nil
	tasks.Put(t)
	return nil, err
}

// await waits for a task whose context or client has ended, and gives it up in the end.
func (c *Client) await(ctx context.Context, name string, t *task) error {
	timer := time.NewTimer(callGrace)
	defer timer.Stop()
	select {
	case err := <-t.done:
		return err
	case <-timer.C:
		c.GiveUp()
		return &stuckError{call: name, made: true, ended: ctx.Err()}
	}
}

// run makes the call.
func (t *task) run() {
	var err error
	defer func() {
		if reason := recover(); reason != nil {
			t.panicked = fmt.Sprintf("%v\n\n%s", reason, debug.Stack())
		}
		t.done <- err
	}()
	err = t.ask()
}

// maxIdle is the most goroutines of a client that wait for a task.
const maxIdle = 256

// work runs a task, and then others: a new goroutine has a small stack, which the SDK's
// calls outgrow several times.
func (c *Client) work(t *task) {
	for {
		t.run()
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		select {
		case t = <-c.todo:
			c.idle.Add(-1)
		case <-c.ended:
			return
		}
	}
}

// Receiver returns a receiver of a queue, which has no link yet. The SDK waits while it
// opens a connection.
func (c *Client) Receiver(ctx context.Context, queue string, options *azservicebus.ReceiverOptions) (*azservicebus.Receiver, error) {
	return Call(ctx, c, "open a receiver", func() (*azservicebus.Receiver, error) { return c.SDK.NewReceiverForQueue(queue, options) }, nil)
}

// Connection returns a context that ends with the connection that was opened last. Before
// the first one it returns nil. A settlement needs it: the SDK repeats one on a lost
// connection, after pauses of seconds, and in vain.
func (c *Client) Connection() context.Context { return c.dialer.connection() }

// Stuck reports whether a call was given up, so that further calls are not made.
func (c *Client) Stuck() bool { return c.stuck.Load() }

// GiveUp has the client replaced. Its calls end, and further ones are not made.
func (c *Client) GiveUp() {
	switch {
	case c.stuck.Swap(true):
	case c.Replace != nil:
		c.Replace(c)
	default:
		c.Abort()
	}
}

// Abort closes the connection without waiting for the service, and refuses others. The
// SDK closes its links in a goroutine: that ends the calls that the end of the connection
// does not, except for those that nothing ends. Such goroutines stay.
func (c *Client) Abort() {
	if c.aborted.Swap(true) {
		return
	}
	c.end.Do(func() { close(c.ended) })
	c.dialer.abort()
	go func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.SDK.Close(ctx) // its connection is gone
	}()
}

// Close closes the links and the connection.
func (c *Client) Close(ctx context.Context) error {
	err := c.CallClose(ctx, "close the connection", c.SDK.Close)
	c.end.Do(func() { close(c.ended) })
	if IsStuck(err) {
		c.Abort()
	}
	return err
}

// CallClose is Do for a call that closes something.
func (c *Client) CallClose(ctx context.Context, name string, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return c.Do(ctx, name, func() error { return ask(ctx) })
}
