package asb

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// unreadableError is the error of a message that the SDK cannot read. It panics where a property that the service sets, DeadLetterReason for
// example, has another type, as in a message of a foreign sender (azservicebus v1.11.0, newReceivedMessage). Then the messages of the whole
// request are lost to the receiver until their locks end.
type unreadableError struct{ reason any }

func (e *unreadableError) Error() string {
	return fmt.Sprintf("the SDK cannot read a message (%v), which stays in the queue; to fix: receive it with another program, such as the Service Bus Explorer, and remove the property that has a wrong type", e.reason)
}

// source is where messages come from: the SDK's Receiver and SessionReceiver are.
type source interface {
	ReceiveMessages(ctx context.Context, most int, options *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// fetch receives messages. Its error is an *unreadableError where the SDK panics.
func fetch(ctx context.Context, from source, most int) (messages []*azservicebus.ReceivedMessage, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			messages, err = nil, &unreadableError{reason}
		}
	}()
	return from.ReceiveMessages(ctx, most, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: afterFirst})
}

// peek opens the link of the SDK's receiver, and asks for an answer on it.
func peek(ctx context.Context, sdk *azservicebus.Receiver) error {
	defer func() {
		_ = recover() // a message that cannot be read is an answer
	}()
	_, err := sdk.PeekMessages(ctx, 1, nil)
	return err
}
