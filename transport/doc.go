// Package transport is the adapter author's toolkit: what two adapters or more
// would otherwise each write for themselves. An application developer needs
// nothing of it.
//
// [DeliveryLog] counts deliveries for a broker that does not.
//
// [CheckOutgoing] and [CheckReceiver] check what every transport has to, and [NoneSent] and
// [AllSent] say what became of a failed Send.
//
// [Outages] says when to try again what an outage made fail, and tells observers.
//
// [PackHeaders] and [UnpackHeaders] carry the group key and the properties of a
// message where the broker has no fields for them.
//
// [AppendHeadersJSON] and [ParseHeadersJSON] write and read headers as one text,
// for a column or an attribute, as NServiceBus does.
//
// [ReadURL] reads the URL of a server, with errors that help and hold no password.
package transport
