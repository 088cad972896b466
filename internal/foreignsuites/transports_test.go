package foreignsuites

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	rabbitserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/inmemory"
	"github.com/reprise-go/reprise/transport/rabbitmq"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// settleTimeout bounds a settlement and the Close of a receiver.
const settleTimeout = 10 * time.Second

// transports opens a transport on an empty broker of a test.
var transports = map[string]func(t *testing.T) core.Transport{
	"in memory": func(t *testing.T) core.Transport {
		return closed(t, inmemory.Open(), nil)
	},
	"PostgreSQL": func(t *testing.T) core.Transport {
		opened, _ := openPostgres(t, postgres.Config{Settings: map[string]string{"synchronous_commit": "off"}})
		return opened
	},
	"RabbitMQ": func(t *testing.T) core.Transport {
		opened, _ := openRabbitMQ(t)
		return opened
	},
}

// server is a broker that a test restarts.
type server interface {
	Kill() error
	Restart() error
}

func openPostgres(t *testing.T, cfg postgres.Config) (core.Transport, server) {
	t.Helper()
	s := postgres.StartFor(t, cfg)
	opened, err := sqlserver.New(sqlserver.Config{
		URL:               s.PasswordURL(s.NewDatabase(t)),
		Lease:             5 * time.Second, // the time until a message is redelivered whose settlement failed
		SubscriptionCache: 50 * time.Millisecond,
	})
	return closed(t, opened, err), s
}

func openRabbitMQ(t *testing.T) (core.Transport, server) {
	t.Helper()
	s := rabbitserver.StartFor(t, rabbitserver.Config{})
	opened, err := rabbitmq.Open(s.PasswordURL(s.NewVHost(t)))
	return closed(t, opened, err), s
}

// closed closes a transport at the end of the test.
func closed(t *testing.T, opened core.Transport, err error) core.Transport {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// prepare creates a queue, subscribes it to topics, and waits until the subscriptions take
// effect.
func prepare(ctx context.Context, t core.Transport, queue string, topics ...string) error {
	if err := t.(core.Provisioner).Provision(ctx, core.Topology{Queues: []string{queue}}); err != nil {
		return err
	}
	if len(topics) == 0 {
		return nil
	}
	if err := t.(core.Subscriber).Subscribe(ctx, queue, topics...); err != nil {
		return err
	}
	select {
	case <-time.After(t.Capabilities().SubscriptionDelay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
