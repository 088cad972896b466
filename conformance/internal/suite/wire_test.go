package suite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// wire is a small transport to the in-memory broker of another process: as much
// as the workers of child processes need.

// wireVariable has the address at which the parent serves its broker.
const wireVariable = "REPRISE_CONFORMANCE_WIRE"

// WireMessage is a message on the wire, in either direction. It is exported for
// the sake of net/rpc.
type WireMessage struct {
	ID, NativeID, Queue string
	Headers             map[string]string
	Body                []byte
	GroupKey            string
	Properties          map[string]string
	Delay               time.Duration
	DeliveryCount       int
	Redelivered         bool
	Number              int // of the delivery
}

func toWire(out []core.Outgoing) (list []WireMessage) {
	for _, o := range out {
		list = append(list, WireMessage{ID: o.ID, Queue: o.Queue, Headers: o.Headers.Map(), Body: o.Body, Delay: o.Delay, GroupKey: o.GroupKey, Properties: o.Properties})
	}
	return list
}

func fromWire(list []WireMessage) (out []core.Outgoing) {
	for _, m := range list {
		out = append(out, core.Outgoing{ID: m.ID, Queue: m.Queue, Headers: core.HeadersFromMap(m.Headers), Body: m.Body, Delay: m.Delay, GroupKey: m.GroupKey, Properties: m.Properties})
	}
	return out
}

// serveWire serves the broker to child processes until the test ends. With
// consumes, what is handed out is consumed before.
func serveWire(t *testing.T, broker *inmemory.Broker, consumes bool) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			transport, err := inmemory.New(inmemory.Config{Broker: broker})
			if err != nil {
				t.Error(err)
				return
			}
			s := &wireServer{transport: transport, consumes: consumes, held: map[int]core.Delivery{}}
			server := rpc.NewServer()
			if err := server.RegisterName("Wire", s); err != nil {
				t.Error(err)
				return
			}
			serving.Go(func() { server.ServeConn(&watchedConn{Conn: conn, ended: sync.OnceFunc(s.end)}) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// watchedConn tells when the client is gone.
type watchedConn struct {
	net.Conn
	ended func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}

// wireServer serves one connection.
type wireServer struct {
	transport *inmemory.Transport
	consumes  bool

	mu       sync.Mutex
	receiver core.Receiver
	held     map[int]core.Delivery
	last     int
}

// end is the loss of the connection: messages in flight are redelivered, and counted.
func (s *wireServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.held {
		_ = d.Abandon(ctxBackground, nil)
	}
	_ = s.transport.Close(ctxBackground)
}

func (s *wireServer) Send(messages []WireMessage, _ *struct{}) error {
	return s.transport.Send(ctxBackground, fromWire(messages)...)
}

func (s *wireServer) Open(cfg core.ReceiverConfig, _ *struct{}) error {
	r, err := s.transport.OpenReceiver(ctxBackground, cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiver = r
	return err
}

func (s *wireServer) Receive(_ struct{}, m *WireMessage) error {
	s.mu.Lock()
	r := s.receiver
	s.mu.Unlock()
	dst := make([]core.Delivery, 1)
	if _, err := r.Receive(ctxBackground, dst); err != nil {
		return err
	}
	in := dst[0].Incoming()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.held[s.last] = dst[0]
	if s.consumes {
		_ = dst[0].Complete(ctxBackground)
	}
	*m = WireMessage{
		ID: in.ID, NativeID: in.NativeID, Headers: in.Headers.Map(), Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties,
		DeliveryCount: in.DeliveryCount, Redelivered: in.Redelivered, Number: s.last,
	}
	return nil
}

// WireSettlement settles a delivery by the name of the method. See WireMessage.
type WireSettlement struct {
	Number int
	How    string
	Out    []WireMessage
}

func (s *wireServer) Settle(settlement WireSettlement, _ *struct{}) error {
	s.mu.Lock()
	d := s.held[settlement.Number]
	delete(s.held, settlement.Number)
	s.mu.Unlock()
	out := fromWire(settlement.Out)
	switch {
	case d == nil:
		return core.ErrSettled
	case s.consumes:
		return s.transport.Send(ctxBackground, out...)
	}
	switch settlement.How {
	case "Complete":
		return d.Complete(ctxBackground)
	case "Abandon":
		return d.Abandon(ctxBackground, nil)
	case "Release":
		return d.Release(ctxBackground)
	default:
		return d.CompleteWith(ctxBackground, out)
	}
}

// WireTake is a Take with its queue. See WireMessage.
type WireTake struct {
	Queue, Key string
	Out        []WireMessage
}

func (s *wireServer) Take(take WireTake, state *queues.TakeState) error {
	results, err := s.transport.Take(ctxBackground, take.Queue, []queues.Take{{Key: take.Key, Out: fromWire(take.Out)}})
	if err == nil {
		*state = results[0].State
	}
	return err
}

// wire is the client.
type wire struct {
	core.Transport // tells capabilities and addresses
	client         *rpc.Client
}

// openWire is the open of the package's TestMain.
func openWire(address string) (core.Transport, error) {
	if address == "" {
		return nil, errors.New(wireVariable + " is not set")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{inmemory.Open(), rpc.NewClient(conn)}, nil
}

// call waits for an answer for as long as ctx lasts. What was asked for may
// still happen.
func (w *wire) call(ctx context.Context, method string, args, answer any) error {
	call := w.client.Go("Wire."+method, args, answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Send(ctx context.Context, out ...core.Outgoing) error {
	if err := w.call(ctx, "Send", toWire(out), &struct{}{}); err != nil {
		return sendFailed(out, core.SendUnknown, err)
	}
	return nil
}

// Take implements queues.Taker, for one message.
func (w *wire) Take(ctx context.Context, queue string, takes []queues.Take) ([]queues.TakeResult, error) {
	results := make([]queues.TakeResult, 1)
	err := w.call(ctx, "Take", WireTake{queue, takes[0].Key, toWire(takes[0].Out)}, &results[0].State)
	return results, err
}

func (w *wire) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	cfg.ConnectionChanged, cfg.MessageUndeliverable = nil, nil
	if err := w.call(ctx, "Open", cfg, &struct{}{}); err != nil {
		return nil, fmt.Errorf("wire: open receiver: %w", err)
	}
	return &wireReceiver{wire: w, mode: cfg.Mode, closed: make(chan struct{}), arrived: make(chan WireMessage, 1)}, nil
}

func (w *wire) Close(context.Context) error {
	_ = w.client.Close() // it may have been closed before
	return nil
}

// wireReceiver has at most one call of Receive in progress, which continues when the
// context of the caller ends.
type wireReceiver struct {
	*wire
	mode    core.TransactionMode
	closed  chan struct{}
	once    sync.Once
	arrived chan WireMessage

	mu    sync.Mutex
	asked bool
}

func (r *wireReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	r.mu.Lock()
	if !r.asked {
		r.asked = true
		go func() {
			var m WireMessage
			if r.call(ctxBackground, "Receive", struct{}{}, &m) == nil {
				r.arrived <- m
			}
		}()
	}
	r.mu.Unlock()
	select {
	case m := <-r.arrived:
		r.mu.Lock()
		r.asked = false
		r.mu.Unlock()
		dst[0] = &wireDelivery{wire: r.wire, mode: r.mode, number: m.Number, in: core.Incoming{
			ID: m.ID, NativeID: m.NativeID, Headers: core.HeadersFromMap(m.Headers), Body: m.Body, GroupKey: m.GroupKey, Properties: m.Properties,
			DeliveryCount: m.DeliveryCount, Redelivered: m.Redelivered,
		}}
		return 1, nil
	case <-r.closed:
		return 0, core.ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *wireReceiver) SetMaxInFlight(int) {}

func (r *wireReceiver) Close(context.Context) error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

type wireDelivery struct {
	transport.UnsupportedDelivery
	wire   *wire
	mode   core.TransactionMode
	number int
	in     core.Incoming
}

func (d *wireDelivery) Incoming() *core.Incoming { return &d.in }

func (d *wireDelivery) settle(ctx context.Context, how string, out []core.Outgoing) error {
	return d.wire.call(ctx, "Settle", WireSettlement{d.number, how, toWire(out)}, &struct{}{})
}

func (d *wireDelivery) Complete(ctx context.Context) error { return d.settle(ctx, "Complete", nil) }
func (d *wireDelivery) Release(ctx context.Context) error  { return d.settle(ctx, "Release", nil) }

func (d *wireDelivery) Abandon(ctx context.Context, _ error) error {
	return d.settle(ctx, "Abandon", nil)
}

func (d *wireDelivery) Reset(ctx context.Context) error {
	if d.mode != core.TransactionSendsAtomicWithReceive {
		return d.UnsupportedDelivery.Reset(ctx)
	}
	return nil
}

func (d *wireDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	if d.mode != core.TransactionSendsAtomicWithReceive {
		return d.UnsupportedDelivery.CompleteWith(ctx, out)
	}
	return d.settle(ctx, "CompleteWith", out)
}

func (d *wireDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.CompleteWith(ctx, out)
}
