//go:build darwin || linux

// Package sqs is a stand-in for Amazon SQS and SNS for tests, which the vendor's SDKs can
// use: it runs in the test process on its own port of 127.0.0.1, and a test may kill and
// restart it, move its clock and make it fail.
//
// It answers as Amazon documents and, where the documentation is silent, as others have
// recorded; a comment names a source other than the documentation. It was written from the
// outside, and was never compared with the service itself.
//
// It implements all operations of SQS in the JSON protocol; of SNS, in the query protocol,
// the operations on topics and on subscriptions of queues; of STS, GetCallerIdentity. It
// checks neither signatures nor a queue's policy, other than for deliveries of SNS.
// Throughput has no limit.
//
// To run it in a separate process, with a journal that outlives the process:
//
//	go run ./internal/testserver/cmd/testserver sqs -addr 127.0.0.1:4566 -file journal
//
// The counts of requests that [Server.Requests] returns are then at /-/requests, see
// [RequestsAt].
package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
)

// Config configures a server. The zero value is usable.
type Config struct {
	// Addr is the address to listen on; port 0 means any free port. The default is a port of
	// 127.0.0.1 that is reserved for the server until Stop.
	Addr string

	// File is the path of the journal, in which the server keeps its state over Kill, Restart
	// and the death of its process. It is created if it does not exist. By default no state
	// outlives Kill.
	File string

	// Region and Account are in all ARNs and URLs. The defaults are us-east-1 and
	// 123456789012.
	Region, Account string

	// AccessKey is the only access key with which requests may be signed. By default any key
	// is accepted.
	AccessKey string

	// MaxInFlight is the maximum number of messages of a queue in flight. The default is
	// 120,000.
	MaxInFlight int

	// CancelledPollsReceive keeps a ReceiveMessage waiting after its client has closed the
	// connection, so that it takes the next messages until their visibility timeout ends, as
	// the service may do: https://github.com/aws/aws-sdk-js/issues/2350,
	// https://github.com/aws/aws-sdk-java-v2/issues/1395.
	CancelledPollsReceive bool

	// MaxWait bounds the wait of a poll that asks for more: a receiver that waits for its
	// last poll when it closes then closes sooner. 0 means no bound, as in the service.
	MaxWait time.Duration

	// Now is the machine's clock. The default is time.Now. Timers always use the real clock.
	Now func() time.Time

	topicDelay, subscriptionDelay time.Duration
}

// Server is a stand-in for Amazon SQS and SNS. Its methods may be called concurrently.
type Server struct {
	clock    *clock
	port     *loopback.Port // nil: Config.Addr is used
	guard    guard
	faults   faults
	requests requests

	changing sync.Mutex // held while the server starts or ends

	mu      sync.Mutex
	cfg     Config
	store   *store
	running *listening // nil: the server does not run
	err     error      // why a request could not be answered
}

// listening is one run of the server.
type listening struct {
	http     *http.Server
	store    *store
	done     chan struct{} // closed when it accepts no more connections
	handlers sync.WaitGroup
}

// Start starts a server, which answers when Start returns. The caller must call Stop.
func Start(cfg Config) (*Server, error) {
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.Account == "" {
		cfg.Account = "123456789012"
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 120_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, clock: &clock{machine: cfg.Now}, guard: guard{accessKey: cfg.AccessKey}}
	if cfg.Addr == "" {
		port, err := loopback.Reserve()
		if err != nil {
			return nil, fmt.Errorf("sqs: start: %w", err)
		}
		s.port, s.cfg.Addr = port, port.Addr()
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("sqs: start: %w", err), s.Stop())
	}
	return s, nil
}

// StartFor is Start for a test, and stops the server at its end.
func StartFor(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Addr returns the address of the server, such as "127.0.0.1:40000". It stays the same over
// restarts.
func (s *Server) Addr() string { return s.cfg.Addr }

// URL returns the endpoint for the SDK's option BaseEndpoint.
func (s *Server) URL() string { return "http://" + s.cfg.Addr }

// Region returns the region in all ARNs.
func (s *Server) Region() string { return s.cfg.Region }

// Account returns the account number.
func (s *Server) Account() string { return s.cfg.Account }

// QueueURL returns the URL of a queue with this name.
func (s *Server) QueueURL(name string) string { return s.URL() + "/" + s.cfg.Account + "/" + name }

// QueueARN returns the ARN of a queue with this name.
func (s *Server) QueueARN(name string) string { return s.current().queueARN(name) }

// TopicARN returns the ARN of a topic with this name.
func (s *Server) TopicARN(name string) string { return s.current().topicARN(name) }

// Now returns the time on the server's clock.
func (s *Server) Now() time.Time { return s.clock.now().time() }

// Advance moves the server's clock forward. All events that become due by then have happened
// when it returns, in the order of their times: delays and visibility timeouts end, messages
// expire, tasks move messages, and long polls get messages or end.
func (s *Server) Advance(d time.Duration) {
	if d < 0 {
		panic("sqs: Advance: the clock cannot go back")
	}
	st := s.current()
	st.advance(d)
	if err := st.flush(); err != nil {
		s.failed(err)
	}
}

// Kill ends the server at once with all connections, like the death of its process: changes
// that are not in the journal are lost. If the server does not run, Kill does nothing.
func (s *Server) Kill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	s.mu.Lock()
	run := s.running
	s.running = nil
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	run.store.kill()
	err := run.http.Close()
	<-run.done
	run.handlers.Wait()
	if run.store.log != nil {
		err = errors.Join(err, run.store.log.file.Close())
	}
	if err != nil {
		return fmt.Errorf("sqs: kill: %w", err)
	}
	return nil
}

// Restart starts the server again after Kill, at its address, with the state in the journal;
// without a journal it is empty. If the server runs, Restart kills it first. The clock keeps
// its distance from the machine's clock; faults, switches and counts of requests stay.
func (s *Server) Restart() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.kill(); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return fmt.Errorf("sqs: restart: %w", err)
	}
	return nil
}

// Stop ends the server for good, and returns the first error because of which a request was
// not answered. The journal stays. A second call does nothing.
func (s *Server) Stop() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	err := s.kill()
	if s.port != nil {
		err = errors.Join(err, s.port.Release())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(err, s.err)
	s.err = nil
	return err
}

// listen starts a run.
func (s *Server) listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := newStore(s.cfg, s.clock)
	if s.cfg.File != "" {
		if err := st.open(s.cfg.File); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		st.kill()
		if st.log != nil {
			err = errors.Join(err, st.log.file.Close())
		}
		return err
	}
	if strings.HasSuffix(s.cfg.Addr, ":0") {
		s.cfg.Addr = listener.Addr().String()
	}
	run := &listening{store: st, done: make(chan struct{})}
	run.http = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(run, w, r) }),
		ReadHeaderTimeout: time.Hour, // a test may keep a connection for any time
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	s.running, s.store = run, st
	go func() {
		defer close(run.done)
		_ = run.http.Serve(listener) // ends when the server is killed
	}()
	return nil
}

// serve answers a request to a run. A request that arrives after Kill gets no answer, nor
// does a request that was read before but not executed.
func (s *Server) serve(run *listening, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	alive := s.running == run
	if alive {
		run.handlers.Add(1)
	}
	s.mu.Unlock()
	if !alive {
		panic(http.ErrAbortHandler)
	}
	defer run.handlers.Done()
	s.ServeHTTP(w, r)
}

// current returns the store of the last run.
func (s *Server) current() *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store
}

// set changes a switch of this run and of later ones.
func (s *Server) set(configure func(*Config), apply func(*store)) {
	s.mu.Lock()
	configure(&s.cfg)
	st := s.store
	s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	apply(st)
}

// failed keeps the first error because of which a request was not answered, for Stop.
func (s *Server) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !errors.Is(err, context.Canceled) {
		s.err = err
	}
}
