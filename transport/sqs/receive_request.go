package sqs

import (
	"context"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/transport/sqs/internal/sdkclient"
)

// systemAttributes are the attributes that requests for messages ask for.
var systemAttributes = []types.MessageSystemAttributeName{
	types.MessageSystemAttributeNameApproximateReceiveCount,
	types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp,
	types.MessageSystemAttributeNameSentTimestamp,
	types.MessageSystemAttributeNameMessageGroupId,
	types.MessageSystemAttributeNameAWSTraceHeader,
}

// request requests messages, and waits WaitTime for the first one. It is not canceled
// when the receiver closes: the service would still put messages into the answer, and
// they would be locked without a receiver.
func (r *receiver) request(ctx context.Context, url string, places int) ([]*delivery, error) {
	traced, first := sdkclient.FirstByte(ctx)
	out, err := r.t.poll.ReceiveMessage(traced, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: int32(places),
		WaitTimeSeconds: int32(r.t.cfg.WaitTime / time.Second), VisibilityTimeout: int32(r.visibility / time.Second),
		MessageSystemAttributeNames: systemAttributes, MessageAttributeNames: allAttributes,
	})
	if err != nil {
		return nil, err
	}
	at := first()
	if now, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
		r.t.clock.Observe(now, at) // in whole seconds, rounded down
	}
	deliveries := make([]*delivery, len(out.Messages))
	for i := range out.Messages {
		m := &out.Messages[i]
		in := r.t.codec.Read(r.address, m)
		if in.DeliveryCount == 1 && !in.First.IsZero() {
			r.t.clock.Observe(in.First, at)
		}
		if in.TTL > 0 && !in.Sent.IsZero() {
			in.ExpiresAt = in.Sent.Add(in.TTL - r.t.clock.Ahead())
		}
		deliveries[i] = newDelivery(r, in, m, at)
	}
	return deliveries, nil
}

var allAttributes = []string{"All"}
