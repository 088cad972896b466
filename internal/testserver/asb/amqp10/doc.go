// Package amqp10 is the server side of AMQP 1.0: a codec of its types, performatives,
// frames and messages, and an engine for connections, sessions and links on which a broker is built.
//
// It follows OASIS AMQP 1.0, parts 1 (types), 2 (transport), 3 (messaging) and 5 (security):
// https://docs.oasis-open.org/amqp/core/v1.0/os/. Transactions, resuming of links and
// the TLS layer are left out. The engine passes messages on as they are encoded.
//
// Bytes from the network are not trusted: the codec checks each length or count against
// the available bytes, and limits nesting and the size of arrays whose elements take no
// space.
package amqp10
