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
// This package has the server with its faults; the services are in internal/queues and internal/topics, and the parts of the
// protocols that both share in internal/api.
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
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
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
	clock    *clock.Clock
	port     *loopback.Port // nil: Config.Addr is used
	guard    guard
	faults   faults
	requests requests

	changing sync.Mutex // held while the server starts or ends

	mu      sync.Mutex
	cfg     Config
	service *service
	running *listening // nil: the server does not run
	err     error      // why a request could not be answered
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
func (s *Server) QueueARN(name string) string { return s.current().queues.QueueARN(name) }

// TopicARN returns the ARN of a topic with this name.
func (s *Server) TopicARN(name string) string { return s.current().topics.TopicARN(name) }

// Now returns the time on the server's clock.
func (s *Server) Now() time.Time { return s.clock.Now().Time() }

// Advance moves the server's clock forward. All events that become due by then have happened
// when it returns, in the order of their times: delays and visibility timeouts end, messages
// expire, tasks move messages, and long polls get messages or end.
func (s *Server) Advance(d time.Duration) {
	if d < 0 {
		panic("sqs: Advance: the clock cannot go back")
	}
	queues := s.current().queues
	queues.Advance(d)
	if err := queues.Flush(); err != nil {
		s.failed(err)
	}
}

// current returns the state of the last run.
func (s *Server) current() *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service
}

// set changes a switch of later runs, and returns the state of this run, whose switch the caller changes.
func (s *Server) set(configure func(*Config)) *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	configure(&s.cfg)
	return s.service
}

// SubscribeQueue subscribes a queue to a topic, raw, and has the queue's policy allow the
// topic. It reports whether both exist.
func (s *Server) SubscribeQueue(topicName, queueName string) bool {
	st := s.current()
	if !st.topics.SubscribeQueue(topicName, queueName) {
		return false
	}
	if err := st.queues.Flush(); err != nil {
		s.failed(err)
	}
	return true
}

// failed keeps the first error because of which a request was not answered, for Stop.
func (s *Server) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !errors.Is(err, context.Canceled) {
		s.err = err
	}
}
