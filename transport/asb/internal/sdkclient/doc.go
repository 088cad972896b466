// Package sdkclient makes the calls of the Service Bus SDK. Every call returns soon after the end of its context, also if
// the SDK does not return from it. Failed attempts to connect and to sign in are followed by pauses, and messages
// that the SDK could not decode are changed before it does (makeReadable).
package sdkclient
