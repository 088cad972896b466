package sdkclient

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// UnreadableError is the error of a message at which the SDK panics. No such message is known that makeReadable does not
// change. The messages of the whole request are lost to the receiver until their locks end.
type UnreadableError struct{ reason any }

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the SDK cannot read a message (%v), which stays in the queue; to fix: receive it with another program, such as the Service Bus Explorer, and report it to the authors of this adapter", e.reason)
}

// afterFirst is how long a request waits for further messages after the first one.
// Messages that arrive between two requests go back to the queue, so a request should
// not end while many are arriving.
const afterFirst = 2 * time.Millisecond

// Source is the source of messages. The SDK's Receiver and SessionReceiver implement it.
type Source interface {
	ReceiveMessages(ctx context.Context, limit int, options *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// Fetch receives messages. It returns an *UnreadableError if the SDK panics. If it returns
// a *stuckError, takeAbandoned gets the messages that arrive after all.
func Fetch(ctx context.Context, c *Client, from Source, limit int, takeAbandoned func([]*azservicebus.ReceivedMessage)) ([]*azservicebus.ReceivedMessage, error) {
	return Call(ctx, c, "receive", func() ([]*azservicebus.ReceivedMessage, error) { return FetchNow(ctx, from, limit) }, takeAbandoned)
}

// FetchNow is Fetch within a call of the SDK.
func FetchNow(ctx context.Context, from Source, limit int) (messages []*azservicebus.ReceivedMessage, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			messages, err = nil, &UnreadableError{reason}
		}
	}()
	return from.ReceiveMessages(ctx, limit, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: afterFirst})
}

// Peek opens the link of the SDK's receiver, and requests an answer on it.
func Peek(ctx context.Context, c *Client, sdk *azservicebus.Receiver) error {
	return c.Do(ctx, "peek", func() error { return PeekNow(ctx, sdk) })
}

// Open is Peek, and returns a context that ends with the connection of the link.
func Open(ctx context.Context, c *Client, sdk *azservicebus.Receiver) (connection context.Context, err error) {
	for {
		before := c.Connection()
		if err := Peek(ctx, c, sdk); err != nil {
			return nil, err
		}
		if connection = c.Connection(); connection == before {
			return connection, nil // the answer came on this one
		}
	}
}

// PeekNow is Peek within a call of the SDK.
func PeekNow(ctx context.Context, sdk *azservicebus.Receiver) error {
	defer func() {
		_ = recover() // an unreadable message is an answer too
	}()
	_, err := sdk.PeekMessages(ctx, 1, nil)
	return err
}

// PeekFrom peeks at most limit messages from a sequence number on. It returns an *UnreadableError if the SDK panics.
func PeekFrom(ctx context.Context, c *Client, from Browser, sequence int64, limit int) ([]*azservicebus.ReceivedMessage, error) {
	return Call(ctx, c, "peek", func() (messages []*azservicebus.ReceivedMessage, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				messages, err = nil, &UnreadableError{reason}
			}
		}()
		return from.PeekMessages(ctx, limit, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &sequence})
	}, nil)
}

// Browser shows messages without taking them. The SDK's Receiver and SessionReceiver
// implement it.
type Browser interface {
	PeekMessages(ctx context.Context, limit int, options *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// maxBrowsed is how many messages HasActive looks at: there may be scheduled and deferred
// ones before an active one.
const maxBrowsed = 32

// HasActive reports whether the queue, or the session, has a message that it could
// deliver. Messages that the service has sent before its answer have arrived before it.
func HasActive(ctx context.Context, c *Client, from Browser) (has bool, err error) {
	err = c.Do(ctx, "peek", func() error {
		defer func() {
			if recover() != nil {
				has = true // a message that cannot be read is one too
			}
		}()
		messages, err := from.PeekMessages(ctx, maxBrowsed, &azservicebus.PeekMessagesOptions{FromSequenceNumber: new(int64)})
		has = slices.ContainsFunc(messages, func(m *azservicebus.ReceivedMessage) bool { return m.State == azservicebus.MessageStateActive })
		return err
	})
	return has, err
}
