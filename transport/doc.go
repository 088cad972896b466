// Package transport is the toolkit for adapter authors: parts that each adapter would
// otherwise write again. Applications do not need it.
//
// [Lifecycle] knows whether a transport is open, its receivers and its goroutines, and
// closes them.
//
// [CheckOutgoing] and [CheckReceiver] refuse messages and receivers that the
// capabilities exclude, and [NoneSent] and [AllSent] make the error of a failed Send.
//
// [Outages] says when to retry in an outage, and tells observers of it.
// [Permanent] marks errors that no retry helps. [Sleep] is a pause that a context ends,
// [Await] waits for goroutines until a context ends, and [Signal] wakes one.
//
// [ServiceClock] estimates the broker's clock.
//
// [DeliveryLog] counts deliveries for a broker that does not. [Cache] is a bounded map.
//
// [PackHeaders] and [UnpackHeaders] carry the group key and the properties of a
// message where the broker has no fields for them. [Integer] reads a number of any type of AMQP.
//
// [Wrapper] is for transports that add something to any other.
//
// [AppendHeadersJSON] and [ParseHeadersJSON] write and read headers as one text,
// for a column or an attribute, as NServiceBus does.
//
// [ReadURL] reads the URL of a server, with errors that help and hold no password.
package transport
