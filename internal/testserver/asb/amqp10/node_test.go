package amqp10

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is a deadline that means never: a test that waits for it has failed.
const patience = 2 * time.Minute

// node is a broker with one queue in memory. Messages that a client sends are those that
// receivers get.
type node struct {
	attach func(*Link) bool // may take a link over; nil for none

	mu       sync.Mutex
	cond     sync.Cond
	queue    [][]byte
	links    []*Link
	incoming []Incoming
	settled  []Settlement
	unsent   int
	closed   int
}

func newNode() *node {
	n := &node{}
	n.cond.L = &n.mu
	return n
}

func (n *node) Attach(l *Link) {
	n.mu.Lock()
	n.links = append(n.links, l)
	n.cond.Broadcast()
	n.mu.Unlock()
	switch {
	case n.attach != nil && n.attach(l):
	case l.Incoming():
		l.AcceptIncoming(&inlet{n, l}, Reply{MaxMessageSize: 1 << 20, Credit: 10})
	default:
		l.AcceptOutgoing(&outlet{node: n, link: l}, Reply{})
	}
}

type inlet struct {
	node *node
	link *Link
}

func (i *inlet) Transfer(m Incoming) {
	m.Payload = bytes.Clone(m.Payload)
	n := i.node
	n.mu.Lock()
	n.incoming = append(n.incoming, m)
	n.queue = append(n.queue, m.Payload)
	links := slices.Clone(n.links)
	n.cond.Broadcast()
	n.mu.Unlock()
	if !m.Settled {
		i.link.Settle(m.ID, Accepted{})
	}
	for _, l := range links {
		l.Wake()
	}
}

func (i *inlet) Closed() { i.node.countClosed() }

func (n *node) countClosed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed++
	n.cond.Broadcast()
}

type outlet struct {
	node *node
	link *Link
	sent uint64
}

func (o *outlet) Next(limit int) []Outgoing {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var next []Outgoing
	for len(next) < limit && len(n.queue) > 0 {
		o.sent++
		tag := binary.BigEndian.AppendUint64(nil, o.sent)
		settled := o.link.Request().SenderSettleMode != nil && *o.link.Request().SenderSettleMode == SenderSettled
		next = append(next, Outgoing{Tag: tag, Payload: n.queue[0], Settled: settled, Ref: o.sent})
		n.queue = n.queue[1:]
	}
	return next
}

func (o *outlet) Unsent(messages []Outgoing) {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsent += len(messages)
	n.cond.Broadcast()
}

func (o *outlet) Settle(s Settlement) {
	n := o.node
	n.mu.Lock()
	n.settled = append(n.settled, s)
	n.cond.Broadcast()
	n.mu.Unlock()
	if !s.Settled {
		o.link.Settle(s.ID, s.State)
	}
}

func (o *outlet) Closed() { o.node.countClosed() }

// await waits until holds, which runs with the node's mutex.
func (n *node) await(t *testing.T, subject string, holds func() bool) {
	t.Helper()
	timer := time.AfterFunc(patience, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cond.Broadcast()
	})
	defer timer.Stop()
	end := time.Now().Add(patience)
	n.mu.Lock()
	defer n.mu.Unlock()
	for !holds() {
		if !time.Now().Before(end) {
			t.Fatalf("%s did not happen", subject)
		}
		n.cond.Wait()
	}
}

// serve serves a connection over TCP and returns the client's end. ended gets the result of
// Serve.
func serve(t *testing.T, cfg Config, h Handler) (client net.Conn, c *Conn, ended chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c = NewConn(server, cfg, h)
	ended = make(chan error, 1)
	go func() { ended <- c.Serve() }()
	t.Cleanup(func() {
		client.Close()
		<-c.done
		<-c.written
	})
	return client, c, ended
}
