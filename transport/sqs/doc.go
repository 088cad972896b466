// Package sqs connects endpoints to Amazon SQS, and publishes through Amazon SNS, by the AWS SDK for Go v2.
//
//	transport, err := sqs.Open() // region and credentials as the SDK finds them
//
// Queues are standard ones, or FIFO ones where their name ends with ".fifo": these keep the messages of a group in
// order ([core.Capabilities.GroupOrder]). Messages are written as NServiceBus writes them ([Wrapped]) or as they are ([Raw]).
// docs/transports/sqs.md describes costs, rights and limits.
package sqs
