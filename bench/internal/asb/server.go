package asb

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

// Servers has the servers of Service Bus that all contenders use, in turn. Each is started when a scenario first needs it.
type Servers struct {
	running map[time.Duration]*runningServer // by the delay of their answers
}

// ensureRunning returns the server that delays its answers by latency.
func (s *Servers) ensureRunning(ctx context.Context, latency time.Duration) (*runningServer, error) {
	if server := s.running[latency]; server != nil {
		return server, nil
	}
	server, err := newRunningServer(ctx, latency)
	if err != nil {
		return nil, err
	}
	if s.running == nil {
		s.running = make(map[time.Duration]*runningServer)
	}
	s.running[latency] = server
	return server, nil
}

// Description describes the servers; it is "" if no scenario needed one.
func (s *Servers) Description() string {
	if s.running == nil {
		return ""
	}
	return serverDescription
}

// Close stops all servers that were started.
func (s *Servers) Close() error {
	var errs []error
	for _, server := range s.running {
		errs = append(errs, server.close())
	}
	return errors.Join(errs...)
}

// runningServer is a running server.
type runningServer struct {
	connectionString string
	admin            string // address
	stop             func() error
	samples          int // number of samples so far
}

const serverDescription = "Azure Service Bus: the stand-in of internal/testserver/asb/sbserver, a process on the same machine that keeps messages in memory"

// networkDelay stands for the network and the service.
const networkDelay = 5 * time.Millisecond

// newRunningServer starts a server that delays its answers by latency.
func newRunningServer(ctx context.Context, latency time.Duration) (*runningServer, error) {
	s := &runningServer{}
	var err error
	if s.connectionString, s.admin, s.stop, err = startProcess(ctx, latency); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *runningServer) close() error { return s.stop() }

// sampleQueues are the queues of one sample.
type sampleQueues struct {
	server *runningServer
	prefix string
	admin  *admin.Client
}

func (s *runningServer) newQueues() (*sampleQueues, error) {
	client, err := admin.NewClientFromConnectionString(s.connectionString, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{PerCallPolicies: []policy.Policy{toHost(s.admin)}},
	})
	if err != nil {
		return nil, err
	}
	s.samples++
	return &sampleQueues{s, fmt.Sprintf("sample%d-", s.samples), client}, nil
}

// toHost is the policy that sends requests to a host without TLS.
type toHost string

// Do implements policy.Policy.
func (h toHost) Do(r *policy.Request) (*http.Response, error) {
	r.Raw().URL.Scheme, r.Raw().URL.Host = "http", string(h)
	return r.Next()
}

// depths returns the number of messages of each queue of the sample, locked and scheduled ones included.
func (q *sampleQueues) depths(ctx context.Context) (map[string]int, error) {
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

// Waiting counts the messages in the queues.
func (q *sampleQueues) Waiting(ctx context.Context) (sum int, err error) {
	depths, err := q.depths(ctx)
	for _, n := range depths {
		sum += n
	}
	return sum, err
}

// FinishSends need not wait: a message is in the queue once its send was answered.
func (q *sampleQueues) FinishSends(context.Context) error { return nil }

// drop deletes the queues.
func (q *sampleQueues) drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	depths, err := q.depths(ctx)
	errs := []error{err}
	for name := range depths {
		_, err := q.admin.DeleteQueue(ctx, name, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
