// Package transport is the toolkit for authors of adapters: parts that each adapter would
// otherwise write itself. Applications do not need it.
//
// [Lifecycle] has the state of a transport, open or closed, its receivers and its
// goroutines, and closes them.
//
// [CheckOutgoing] and [CheckReceiver] refuse messages and receivers that the capabilities
// exclude, and [NoneSent] and [AllSent] make the error of a failed Send.
//
// [Outages] schedules the retries in an outage, and notifies the endpoint of it.
// [Permanent] marks errors that no retry can fix. [Sleep] is a pause that a context ends,
// [Await] waits for goroutines until a context ends, and [Signal] wakes a goroutine.
//
// [KeepLocked] renews the lock of a delivery, for programs that call a transport without an
// endpoint. [ServiceClock] estimates the broker's clock.
//
// [DeliveryLog] counts deliveries for a broker that does not. [Cache] is a bounded map.
//
// [PackHeaders] and [UnpackHeaders] carry the group key, the properties and the id of a
// message if the broker has no fields for them. [BadName] makes the error of a name.
// [Integer] reads an integer of any AMQP type.
//
// [Wrapper] is for transports that add something to any other transport, [Undescribed] for
// those that have nothing to say about themselves.
//
// [AppendHeadersJSON] and [ParseHeadersJSON] write and read headers as one text, for a
// column or an attribute, as NServiceBus does.
//
// [ReadURL] reads the URL of a server; its errors explain the mistake and contain no
// password.
package transport
