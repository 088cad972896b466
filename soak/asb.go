//go:build darwin || linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/asb"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/asb"
)

// asbSystem is the stand-in for Azure Service Bus behind two proxies.
type asbSystem struct {
	server   *testserver.Server
	messages *proxy.Proxy // of AMQP
	admin    *proxy.Proxy // of the administration API
	sessions bool
	closers  []func() error
}

const (
	asbKey  = "the-secret-key-of-the-soak"
	asbLock = 5 * time.Second // the shortest one that the service allows
)

func startASBPlain(ctx context.Context) (system, error) { return startASB(ctx, false) }

func startASBSessions(ctx context.Context) (system, error) { return startASB(ctx, true) }

func startASB(ctx context.Context, sessions bool) (_ system, err error) {
	s := &asbSystem{sessions: sessions}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.server, err = testserver.Start(ctx, testserver.Options{Key: asbKey, Durable: true}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.server.Stop)
	if s.messages, err = proxy.New(s.server.Addr()); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.messages.Close)
	if s.admin, err = proxy.New(s.server.AdminAddr()); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.admin.Close)
	return s, nil
}

func (s *asbSystem) version() string { return "a stand-in for Azure Service Bus" }

func (s *asbSystem) close() error { return closeAll(s.closers) }

func (s *asbSystem) serverLog() string { return s.server.Log() }

func (s *asbSystem) secrets() []string { return []string{asbKey} }

// asbAccess has the addresses of the server for a worker.
type asbAccess struct {
	ConnectionString, AdminEndpoint string
	Sessions                        bool
}

// open opens a transport.
func (a asbAccess) open() (core.Transport, error) {
	cfg := asb.Config{ConnectionString: a.ConnectionString, AdminEndpoint: a.AdminEndpoint, LockDuration: asbLock}
	if a.Sessions {
		cfg.SessionQueues = []string{"*" + orderedSuffix}
	}
	return asb.New(cfg)
}

func (s *asbSystem) access(addr, adminAddr string) asbAccess {
	return asbAccess{s.server.ConnectionString(addr), "http://" + adminAddr, s.sessions}
}

func (s *asbSystem) throughNetwork() asbAccess { return s.access(s.messages.Addr(), s.admin.Addr()) }

func (s *asbSystem) open() (core.Transport, error) {
	return s.access(s.server.Addr(), s.server.AdminAddr()).open()
}

func (s *asbSystem) openThrough() (core.Transport, error) {
	return s.throughNetwork().open()
}

func (s *asbSystem) prepare(context.Context, core.TransactionMode, *ledger) error { return nil }

func (s *asbSystem) startWorker(w workerOptions, log io.Writer) (worker, error) {
	return startProcess(systemASB, s.throughNetwork(), w, log)
}

// newASBJob opens the transport of a worker.
func newASBJob(o processOptions) (*job, error) {
	var access asbAccess
	if err := json.Unmarshal(o.Config, &access); err != nil {
		return nil, err
	}
	t, err := access.open()
	if err != nil {
		return nil, err
	}
	return &job{transport: t}, nil
}

// asbUnknownSends is the number of sends without an answer in one fault.
const asbUnknownSends = 50

// Operations of faults.
var (
	asbSettlements = []string{testserver.OpComplete, testserver.OpAbandon, testserver.OpDeadLetter}
	asbRequests    = append([]string{
		testserver.OpAttachSender, testserver.OpAttachReceiver, testserver.OpSend, testserver.OpPeek, testserver.OpRenewLock, testserver.OpRenewSession,
		testserver.OpAdministration,
	}, asbSettlements...)
)

func (s *asbSystem) faults() []fault {
	during := func(f testserver.Fault) func(context.Context, time.Duration) error {
		f.Times = -1
		return lasting(func(ctx context.Context) error { return s.server.Inject(ctx, f) }, func(ctx context.Context) error { return s.server.ClearFaults(ctx) })
	}
	at := func(strike func(context.Context) error) func(context.Context, time.Duration) error {
		return func(ctx context.Context, _ time.Duration) error { return strike(ctx) }
	}
	return append(networkFaults(s.server, s.messages, s.admin),
		fault{"every request is refused: the server is busy", during(testserver.Fault{Ops: asbRequests, Action: testserver.Refuse})},
		fault{"settlements are carried out, and their answers lost", during(testserver.Fault{Ops: asbSettlements, TakesEffect: true, Action: testserver.Silence})},
		// Not for a time: if only sends fail for longer than all retries take, healthy messages reach the error queue.
		fault{"messages are accepted, and the link that sent them is detached", at(func(ctx context.Context) error {
			return s.server.Inject(ctx, testserver.Fault{Ops: []string{testserver.OpSend}, Times: asbUnknownSends, TakesEffect: true, Action: testserver.Detach})
		})},
		fault{"all links are detached", at(func(ctx context.Context) error { return s.server.DetachLinks(ctx) })},
		fault{"the server closes all connections", at(func(ctx context.Context) error { return s.server.CloseConnections(ctx) })},
		fault{"all locks end", at(func(ctx context.Context) error { return s.server.ExpireLocks(ctx) })},
	)
}

// depths implements system.
func (s *asbSystem) depths(ctx context.Context) (map[string]int, error) {
	client, err := admin.NewClientFromConnectionString(s.server.ConnectionString(s.server.Addr()), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{PerCallPolicies: []policy.Policy{toHost(s.server.AdminAddr())}},
	})
	if err != nil {
		return nil, err
	}
	depths := map[string]int{}
	for pages := client.NewListQueuesRuntimePropertiesPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, q := range page.QueueRuntimeProperties {
			depths[q.QueueName] += int(q.TotalMessageCount)
		}
	}
	if len(depths) == 0 {
		return nil, errors.New("there is no queue")
	}
	return depths, nil
}

// toHost is the policy that sends requests to a host without TLS.
type toHost string

// Do implements policy.Policy.
func (h toHost) Do(r *policy.Request) (*http.Response, error) {
	r.Raw().URL.Scheme, r.Raw().URL.Host = "http", string(h)
	return r.Next()
}

// staleness implements system. The server counts the messages of all queues at one moment, and a scheduled message is in
// its queue.
func (s *asbSystem) staleness() time.Duration { return time.Second }

// rows implements system. No mode has rows.
func (s *asbSystem) rows(context.Context, *ledger) error { return nil }
