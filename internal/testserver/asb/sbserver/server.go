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
//	go run ./internal/testserver/asb/sbserver/cmd -addr 127.0.0.1:5800 -dir journal
package sbserver

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/loopback"
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
