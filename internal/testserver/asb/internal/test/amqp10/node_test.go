package amqp10_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// node is a broker with one queue in memory. Messages that a client sends are those that
// receivers get.
type node struct {
	attach func(*amqp10.Link) bool // may take a link over; nil for none

	mu       sync.Mutex
	cond     sync.Cond
	queue    [][]byte
	links    []*amqp10.Link
	incoming []amqp10.Incoming
	settled  []amqp10.Settlement
	unsent   int
	closed   int
}

func newNode() *node {
	n := &node{}
	n.cond.L = &n.mu
	return n
}

func (n *node) Attach(l *amqp10.Link) {
	n.mu.Lock()
	n.links = append(n.links, l)
	n.cond.Broadcast()
	n.mu.Unlock()
	switch {
	case n.attach != nil && n.attach(l):
	case l.Incoming():
		l.AcceptIncoming(&inlet{n, l}, amqp10.Reply{MaxMessageSize: 1 << 20, Credit: 10})
	default:
		l.AcceptOutgoing(&outlet{node: n, link: l}, amqp10.Reply{})
	}
}

type inlet struct {
	node *node
	link *amqp10.Link
}

func (i *inlet) Transfer(m amqp10.Incoming) {
	m.Payload = bytes.Clone(m.Payload)
	n := i.node
	n.mu.Lock()
	n.incoming = append(n.incoming, m)
	n.queue = append(n.queue, m.Payload)
	links := slices.Clone(n.links)
	n.cond.Broadcast()
	n.mu.Unlock()
	if !m.Settled {
		i.link.Settle(m.ID, amqp10.Accepted{})
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
	link *amqp10.Link
	sent uint64
}

func (o *outlet) Next(limit int) []amqp10.Outgoing {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var next []amqp10.Outgoing
	for len(next) < limit && len(n.queue) > 0 {
		o.sent++
		tag := binary.BigEndian.AppendUint64(nil, o.sent)
		settled := o.link.Request().SenderSettleMode != nil && *o.link.Request().SenderSettleMode == amqp10.SenderSettled
		next = append(next, amqp10.Outgoing{Tag: tag, Payload: n.queue[0], Settled: settled, Ref: o.sent})
		n.queue = n.queue[1:]
	}
	return next
}

func (o *outlet) Unsent(messages []amqp10.Outgoing) {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsent += len(messages)
	n.cond.Broadcast()
}

func (o *outlet) Settle(s amqp10.Settlement) {
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
func serve(t *testing.T, cfg amqp10.Config, h amqp10.Handler) (client net.Conn, c *amqp10.Conn, ended chan error) {
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
	c = amqp10.NewConn(server, cfg, h)
	ended = make(chan error, 1)
	go func() {
		ended <- c.Serve()
		close(ended)
	}()
	t.Cleanup(func() {
		client.Close()
		for range ended { // until Serve has returned
		}
	})
	return client, c, ended
}

// dial is serve with a client of go-amqp.
func dial(t *testing.T, cfg amqp10.Config, h amqp10.Handler, o *amqp.ConnOptions) (*amqp.Conn, *amqp10.Conn, chan error) {
	t.Helper()
	nc, c, ended := serve(t, cfg, h)
	client, err := amqp.NewConn(deadline(t), nc, o)
	if err != nil {
		t.Fatal(err)
	}
	return client, c, ended
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func begin(t *testing.T, c *amqp.Conn) *amqp.Session {
	t.Helper()
	s, err := c.NewSession(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, s *amqp.Session, bodies ...[]byte) {
	t.Helper()
	sender, err := s.NewSender(deadline(t), "q", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		if err := sender.Send(deadline(t), amqp.NewMessage(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, r *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := r.Receive(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newReceiver(t *testing.T, s *amqp.Session, o *amqp.ReceiverOptions) *amqp.Receiver {
	t.Helper()
	r, err := s.NewReceiver(deadline(t), "q", o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
