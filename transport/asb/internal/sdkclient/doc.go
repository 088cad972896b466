// Package sdkclient makes the calls of the Service Bus SDK. Every call returns soon after the end of its context, also if
// the SDK does not return from it. Failed attempts to connect and to sign in are followed by pauses, and a message that
// the SDK cannot read is an error instead of a panic.
package sdkclient
