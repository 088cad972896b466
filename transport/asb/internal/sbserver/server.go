//go:build darwin || linux

// Package sbserver is a stand-in for Azure Service Bus that works with the vendor's SDKs,
// for tests: it runs in the test process on a separate port of 127.0.0.1, and a test may
// kill and restart it, move its clock and make it fail.
//
// Package broker has the entities, package amqp10 the protocol and package admin the administration
// API; this package joins them: tokens ($cbs), links of entities, and requests on $management.
//
// A client reaches it without TLS by the connection string that [Server.ConnectionString]
// returns. As a separate process, with a journal that outlives it:
//
//	go run ./transport/asb/internal/sbserver/cmd -addr 127.0.0.1:5800 -dir journal
package sbserver

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/transport/asb/internal/amqp10"
	"github.com/reprise-go/reprise/transport/asb/internal/sbserver/broker"
	"github.com/reprise-go/reprise/transport/asb/internal/sbserver/clock"
)

// Config configures a server. The zero value is usable.
type Config struct {
	// Addr is the address to listen on. The default is a port of 127.0.0.1 that is reserved for
	// the server until Close.
	Addr string

	// AdminAddr is the address of the administration API, without TLS. Its default is
	// chosen like that of Addr.
	AdminAddr string

	// Broker configures the entities. With a directory they survive the process.
	Broker broker.Config

	// KeyName and Key sign tokens of the type servicebus.windows.net:sastoken. If Key is set,
	// tokens with another signature are refused. The default of KeyName is
	// RootManageSharedAccessKey.
	KeyName, Key string

	// TokenLifetime makes tokens expire this long after they were put, if that is before
	// their own expiry. By default there is no such limit.
	TokenLifetime time.Duration

	// AcceptTimeout is how long a receiver waits for the next session if it does not
	// specify a time. The default is a minute, as documented for the SDKs.
	AcceptTimeout time.Duration

	// Latency delays everything that the server sends, to simulate a network. By default
	// there is no delay.
	Latency time.Duration

	// AMQP configures the connections. The defaults are those of the service: frames of 64 KiB, 5000
	// sessions, and 4 minutes of silence (trace in azure-sdk-for-java#31966).
	AMQP amqp10.Config
}

// Server is a stand-in for a namespace of Azure Service Bus. Its methods may be called
// concurrently.
type Server struct {
	cfg    Config
	ports  []*loopback.Port // reserved for the server
	faults faults
	counts counts

	changing sync.Mutex // held while the server starts or ends

	mu              sync.Mutex
	addr, adminAddr string
	broker          *broker.Broker
	refuse          func(audience, token string) error
	running         *listening // nil: the server is not running
}

// listening is one run of the server.
type listening struct {
	listener       net.Listener
	administration *administration
	closing        chan struct{} // is closed when the run ends
	tasks          sync.WaitGroup

	mu      sync.Mutex
	ended   bool
	clients map[*client]struct{}
}

// Start starts a server, which accepts connections when it returns. The caller must call
// Close.
func Start(cfg Config) (*Server, error) {
	if cfg.KeyName == "" {
		cfg.KeyName = "RootManageSharedAccessKey"
	}
	if cfg.AcceptTimeout == 0 {
		cfg.AcceptTimeout = time.Minute
	}
	if cfg.AMQP.ContainerID == "" {
		cfg.AMQP.ContainerID = "sbserver"
	}
	s := &Server{cfg: cfg, addr: cfg.Addr, adminAddr: cfg.AdminAddr}
	for _, addr := range []*string{&s.addr, &s.adminAddr} {
		if *addr != "" {
			continue
		}
		port, err := loopback.Reserve()
		if err != nil {
			s.release()
			return nil, fmt.Errorf("sbserver: start: %w", err)
		}
		s.ports = append(s.ports, port)
		*addr = port.Addr()
	}
	if err := s.open(); err != nil {
		s.release()
		return nil, fmt.Errorf("sbserver: start: %w", err)
	}
	if err := s.listen(); err != nil {
		_ = s.broker.Close() // its journal has nothing yet
		s.release()
		return nil, fmt.Errorf("sbserver: start: %w", err)
	}
	return s, nil
}

func (s *Server) open() error {
	b, err := broker.New(s.cfg.Broker)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.broker = b
	s.mu.Unlock()
	return nil
}

func (s *Server) release() {
	for _, p := range s.ports {
		_ = p.Release() // it belongs to this process, which then has one port less
	}
}

func (s *Server) listen() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	run := &listening{listener: l, closing: make(chan struct{}), clients: map[*client]struct{}{}}
	if err := s.administer(run); err != nil {
		return errors.Join(err, l.Close())
	}
	s.mu.Lock()
	s.running = run
	s.addr = l.Addr().String() // of an Addr with the port 0
	s.mu.Unlock()
	run.tasks.Go(func() { s.accept(run) })
	return nil
}

// accept serves connections until the listener is closed.
func (s *Server) accept(run *listening) {
	for {
		nc, err := run.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // perhaps there are no free file descriptors
			continue
		}
		if s.faults.take(OpConnect, "") != nil {
			s.counts.add(OpConnect, "")
			_ = nc.Close() // that is the fault
			continue
		}
		s.serve(run, nc)
	}
}

// ServeConn serves a connection that did not come through the listener, such as one end
// of a net.Pipe. It returns at once. If the server is not running, it closes the
// connection.
func (s *Server) ServeConn(nc net.Conn) {
	s.mu.Lock()
	run := s.running
	s.mu.Unlock()
	if run == nil {
		_ = nc.Close() // the server reads nothing more
		return
	}
	s.serve(run, nc)
}

func (s *Server) serve(run *listening, nc net.Conn) {
	if s.cfg.Latency > 0 {
		nc = delayed(nc, s.cfg.Latency)
	}
	c := newClient(s, run, nc)
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.ended {
		_ = nc.Close() // the server reads nothing more
		return
	}
	s.counts.add(OpConnect, "")
	run.clients[c] = struct{}{}
	run.tasks.Go(func() {
		_ = c.conn.Serve() // the client gets the reason
		c.close()
		run.mu.Lock()
		delete(run.clients, c)
		run.mu.Unlock()
	})
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// ConnectionString returns the connection string of the namespace, for clients without TLS.
func (s *Server) ConnectionString() string {
	key := s.cfg.Key
	if key == "" {
		key = "any"
	}
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true", s.Addr(), s.cfg.KeyName, key)
}

// clock returns the clock of the entities.
func (s *Server) clock() clock.Clock {
	if s.cfg.Broker.Clock == nil {
		return clock.System{}
	}
	return s.cfg.Broker.Clock
}

// Broker returns the entities of the server. After Restart with a journal they are in
// another Broker.
func (s *Server) Broker() *broker.Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broker
}

// Close closes all connections in an orderly way, and ends the server permanently. When
// it returns, none of the server's goroutines is running.
func (s *Server) Close() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stop(func(c *client) {
		c.conn.Close(amqp10.Errorf(amqp10.ErrConnectionForced, "the server is shutting down"))
	})
	s.faults.clear()
	s.release()
	return s.Broker().Close()
}

// Kill ends the server in the same way as the death of its process: all connections are
// cut, and waiting replies are lost. With a journal the entities in memory are discarded;
// without one they are kept until Restart. It does nothing if the server is not running.
func (s *Server) Kill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.stop(func(c *client) { c.conn.Cut() }) || s.cfg.Broker.Dir == "" {
		return nil
	}
	return s.Broker().Close()
}

// Restart starts the server after Kill, on the same address and with the same entities.
func (s *Server) Restart() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	running := s.running != nil
	s.mu.Unlock()
	if running {
		return errors.New("sbserver: restart: the server runs; to fix: call Kill before")
	}
	if s.cfg.Broker.Dir != "" {
		if err := s.open(); err != nil {
			return fmt.Errorf("sbserver: restart: %w", err)
		}
	}
	if err := s.listen(); err != nil {
		return fmt.Errorf("sbserver: restart: %w", err)
	}
	return nil
}

// stop ends the run and its connections, and reports whether there was one.
func (s *Server) stop(end func(*client)) bool {
	s.mu.Lock()
	run := s.running
	s.running = nil
	s.mu.Unlock()
	if run == nil {
		return false
	}
	_ = run.listener.Close() // in any case it accepts no further connections
	close(run.closing)
	_ = run.administration.server.Close() // the same
	run.mu.Lock()
	run.ended = true
	clients := run.clientsLocked()
	run.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range clients {
		ending.Go(func() { end(c) })
	}
	ending.Wait()
	run.tasks.Wait()
	return true
}

func (run *listening) clientsLocked() []*client {
	clients := make([]*client, 0, len(run.clients))
	for c := range run.clients {
		clients = append(clients, c)
	}
	return clients
}

// clients returns the connected clients.
func (s *Server) clients() []*client {
	s.mu.Lock()
	run := s.running
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.clientsLocked()
}
