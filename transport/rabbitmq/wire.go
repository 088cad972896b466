package rabbitmq

import (
	"net"
	"sync/atomic"
)

// wire is a network connection as the client library uses it.
//
// It closes when nothing can be read from it any more, above all because no heartbeat
// came: the library closes it only after what writes to it has come back, which in a
// network that is stalled it does not.
type wire struct {
	net.Conn
	greeted  atomic.Bool
	alerting atomic.Bool // the broker began with an alert of TLS
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.greeted.Swap(true) {
		w.alerting.Store(p[0] == tlsAlert)
	}
	if err != nil {
		_ = w.Close() // it has failed already
	}
	return n, err
}

// tlsAlert is the first byte of what a server of TLS says to who speaks something else. AMQP
// begins a frame with a type of at most 8.
const tlsAlert = 0x15
