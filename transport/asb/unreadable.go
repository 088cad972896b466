package asb

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// unreadableError is the error of a message that the SDK cannot read. The SDK panics if a
// property that the service sets, such as DeadLetterReason, has another type, as in a
// message of a foreign sender (azservicebus v1.11.0, newReceivedMessage). The messages of
// the whole request are then lost to the receiver until their locks end.
type unreadableError struct{ reason any }

func (e *unreadableError) Error() string {
	return fmt.Sprintf("the SDK cannot read a message (%v), which stays in the queue; to fix: receive it with another program, such as the Service Bus Explorer, and remove the property that has a wrong type", e.reason)
}

// source is the source of messages. The SDK's Receiver and SessionReceiver implement it.
type source interface {
	ReceiveMessages(ctx context.Context, most int, options *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// fetch receives messages. It returns an *unreadableError if the SDK panics. If it returns
// a *stuckError, takeLate gets the messages that arrive after all.
func fetch(ctx context.Context, c *client, from source, most int, takeLate func([]*azservicebus.ReceivedMessage)) ([]*azservicebus.ReceivedMessage, error) {
	return call(ctx, c, "receive", func() ([]*azservicebus.ReceivedMessage, error) { return receiveMessages(ctx, from, most) }, takeLate)
}

// receiveMessages is fetch within a call of the SDK.
func receiveMessages(ctx context.Context, from source, most int) (messages []*azservicebus.ReceivedMessage, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			messages, err = nil, &unreadableError{reason}
		}
	}()
	return from.ReceiveMessages(ctx, most, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: afterFirst})
}

// peek opens the link of the SDK's receiver, and requests an answer on it.
func peek(ctx context.Context, c *client, sdk *azservicebus.Receiver) error {
	return c.do(ctx, "peek", func() error { return peekNow(ctx, sdk) })
}

// peekNow is peek within a call of the SDK.
func peekNow(ctx context.Context, sdk *azservicebus.Receiver) error {
	defer func() {
		_ = recover() // an unreadable message is an answer too
	}()
	_, err := sdk.PeekMessages(ctx, 1, nil)
	return err
}
