//go:build darwin || linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// rabbitSystem is a RabbitMQ broker behind a proxy.
type rabbitSystem struct {
	server  *testserver.Server
	network *proxy.Proxy
	queues  rabbitmq.QueueType
	closers []func() error
}

const (
	rabbitVHost = "soak"
	// The client gives up connections with swallowed traffic after one and a half times
	// 4 s, which is within the longest faults.
	rabbitOptions = "?heartbeat=4"
)

func startRabbit3Quorum(ctx context.Context) (system, error) {
	return startRabbit(ctx, testserver.V3, rabbitmq.Quorum)
}

func startRabbit3Classic(ctx context.Context) (system, error) {
	return startRabbit(ctx, testserver.V3, rabbitmq.Classic)
}

func startRabbit4Quorum(ctx context.Context) (system, error) {
	return startRabbit(ctx, testserver.V4, rabbitmq.Quorum)
}

func startRabbit4Classic(ctx context.Context) (system, error) {
	return startRabbit(ctx, testserver.V4, rabbitmq.Classic)
}

func startRabbit(ctx context.Context, release testserver.Release, queues rabbitmq.QueueType) (_ system, err error) {
	s := &rabbitSystem{queues: queues}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.server, err = testserver.Start(testserver.Config{Release: release, OnDisk: true, AllProcessors: true}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.server.Stop)
	if s.network, err = proxy.New(s.server.Addr()); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.network.Close)
	return s, s.server.CreateVHost(ctx, rabbitVHost)
}

func (s *rabbitSystem) version() string {
	return "RabbitMQ " + s.server.Version()
}

func (s *rabbitSystem) close() error { return closeAll(s.closers) }

func (s *rabbitSystem) serverLog() string { return s.server.Log() }

func (s *rabbitSystem) secrets() []string { return []string{testserver.Password} }

// rabbitConfig is the part of rabbitmq.Config that is passed to a worker.
type rabbitConfig struct {
	URL       string
	QueueType rabbitmq.QueueType
}

func (c rabbitConfig) open() (core.Transport, error) {
	return rabbitmq.New(rabbitmq.Config{URLs: []string{c.URL}, QueueType: c.QueueType})
}

func (s *rabbitSystem) config() rabbitConfig {
	return rabbitConfig{s.server.PasswordURL(rabbitVHost) + rabbitOptions, s.queues}
}

func (s *rabbitSystem) configThrough() rabbitConfig {
	c := s.config()
	c.URL = testserver.Via(c.URL, s.network.Addr())
	return c
}

func (s *rabbitSystem) open() (core.Transport, error) { return s.config().open() }

func (s *rabbitSystem) openThrough() (core.Transport, error) {
	return s.configThrough().open()
}

func (s *rabbitSystem) prepare(context.Context, core.TransactionMode, *ledger) error { return nil }

func (s *rabbitSystem) startWorker(w workerOptions, log io.Writer) (worker, error) {
	return startProcess(systemRabbit, s.configThrough(), w, log)
}

// newRabbitJob opens the transport of a worker.
func newRabbitJob(o processOptions) (*job, error) {
	var c rabbitConfig
	if err := json.Unmarshal(o.Config, &c); err != nil {
		return nil, err
	}
	t, err := c.open()
	if err != nil {
		return nil, err
	}
	return &job{transport: t}, nil
}

// ctl returns a function that runs rabbitmqctl.
func (s *rabbitSystem) ctl(args ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.server.Ctl(ctx, args...)
		return err
	}
}

func (s *rabbitSystem) faults() []fault {
	return append(networkFaults(s.server, s.network),
		fault{"disk alarm", lasting(
			s.ctl("set_disk_free_limit", "100000GB"),
			s.ctl("set_disk_free_limit", "50MB"), // the default
		)},
		fault{"memory alarm", lasting(
			s.ctl("set_vm_memory_high_watermark", "0.00001"),
			s.ctl("set_vm_memory_high_watermark", "0.4"), // the default of 3.10
		)},
		fault{"close_all_connections", func(ctx context.Context, _ time.Duration) error {
			return s.ctl("close_all_connections", "--vhost", rabbitVHost, "soak")(ctx)
		}},
	)
}

// depths implements system. Delayed messages are also in queues of the broker.
func (s *rabbitSystem) depths(ctx context.Context) (map[string]int, error) {
	list, err := s.server.Ctl(ctx, "list_queues", "--vhost", rabbitVHost, "--no-table-headers", "name", "messages")
	if err != nil {
		return nil, err
	}
	depths := map[string]int{}
	for line := range strings.Lines(list) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("rabbitmqctl list_queues printed %q", line)
		}
		depths[name] = n
	}
	if len(depths) == 0 {
		return nil, fmt.Errorf("rabbitmqctl list_queues printed %q, which has no queue", list)
	}
	return depths, nil
}

// staleness implements system. A quorum queue publishes its depth every 5 s. Queues are
// queried one after the other, and between two queries a failed order may be delayed.
func (s *rabbitSystem) staleness() time.Duration {
	if s.queues == rabbitmq.Quorum {
		return 6 * time.Second
	}
	return longestDelay + time.Second
}

// rows implements system. No mode has rows.
func (s *rabbitSystem) rows(context.Context, *ledger) error { return nil }
