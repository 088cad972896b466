package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// asbSystem has the servers of Service Bus that all contenders use, in turn. Each is started when a scenario first needs it.
type asbSystem struct {
	running map[time.Duration]*asbServer // by the delay of their answers
}

// server returns the server that delays its answers by away.
func (s *asbSystem) server(ctx context.Context, away time.Duration) (*asbServer, error) {
	if server := s.running[away]; server != nil {
		return server, nil
	}
	server, err := newASBServer(ctx, away)
	if err != nil {
		return nil, err
	}
	if s.running == nil {
		s.running = make(map[time.Duration]*asbServer)
	}
	s.running[away] = server
	return server, nil
}

// description describes the servers; it is "" if no scenario needed one.
func (s *asbSystem) description() string {
	if s.running == nil {
		return ""
	}
	return asbDescription
}

// close stops all servers that were started.
func (s *asbSystem) close() error {
	var errs []error
	for _, server := range s.running {
		errs = append(errs, server.close())
	}
	return errors.Join(errs...)
}

// asbServer is a running server.
type asbServer struct {
	connectionString string
	admin            string // address
	stop             func() error
	samples          int // number of samples so far
}

const asbDescription = "Azure Service Bus: the stand-in of transport/asb/internal/sbserver, a process on the same machine that keeps messages in memory"

// asbAway stands for the network and the service.
const asbAway = 5 * time.Millisecond

// newASBServer starts a server that delays its answers by away.
func newASBServer(ctx context.Context, away time.Duration) (*asbServer, error) {
	s := &asbServer{}
	var err error
	if s.connectionString, s.admin, s.stop, err = startASB(ctx, away); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *asbServer) close() error { return s.stop() }

// asbQueues are the queues of one sample.
type asbQueues struct {
	server *asbServer
	prefix string
	admin  *admin.Client
}

func (s *asbServer) newQueues() (*asbQueues, error) {
	client, err := admin.NewClientFromConnectionString(s.connectionString, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{PerCallPolicies: []policy.Policy{toHost(s.admin)}},
	})
	if err != nil {
		return nil, err
	}
	s.samples++
	return &asbQueues{s, fmt.Sprintf("sample%d-", s.samples), client}, nil
}

// toHost is the policy that sends requests to a host without TLS.
type toHost string

// Do implements policy.Policy.
func (h toHost) Do(r *policy.Request) (*http.Response, error) {
	r.Raw().URL.Scheme, r.Raw().URL.Host = "http", string(h)
	return r.Next()
}

// depths returns the number of messages of each queue of the sample, locked and scheduled ones included.
func (q *asbQueues) depths(ctx context.Context) (map[string]int, error) {
	depths := map[string]int{}
	for pages := q.admin.NewListQueuesRuntimePropertiesPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range page.QueueRuntimeProperties {
			if strings.HasPrefix(p.QueueName, q.prefix) {
				depths[p.QueueName] = int(p.TotalMessageCount)
			}
		}
	}
	return depths, nil
}

// waiting counts the messages in the queues.
func (q *asbQueues) waiting(ctx context.Context) (sum int, err error) {
	depths, err := q.depths(ctx)
	for _, n := range depths {
		sum += n
	}
	return sum, err
}

// rest need not wait: a message is in the queue once its send was answered.
func (q *asbQueues) rest(context.Context) error { return nil }

// drop deletes the queues.
func (q *asbQueues) drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	depths, err := q.depths(ctx)
	errs := []error{err}
	for name := range depths {
		_, err := q.admin.DeleteQueue(ctx, name, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
