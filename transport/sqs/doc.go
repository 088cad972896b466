// Package sqs connects endpoints to Amazon SQS, and publishes through Amazon SNS, by the AWS SDK for Go v2.
//
//	transport, err := sqs.Open() // region and credentials as the SDK finds them
//
// Queues are standard ones, or FIFO ones if their name ends with ".fifo", which keep the
// messages of a group in order ([core.Abilities.GroupOrder]). Messages are written in
// NServiceBus's format ([Wrapped]) or unchanged ([Raw]). docs/transports/sqs.md describes
// costs, rights and limits.
package sqs
