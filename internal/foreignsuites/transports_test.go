package foreignsuites

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	rabbitserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/inmemory"
	"github.com/reprise-go/reprise/transport/rabbitmq"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// transports opens a transport on an empty broker of a test.
var transports = map[string]func(t *testing.T) core.Transport{
	"in memory": func(t *testing.T) core.Transport {
		return closed(t, inmemory.Open(), nil)
	},
	"PostgreSQL": func(t *testing.T) core.Transport {
		s := postgres.StartFor(t, postgres.Config{Settings: map[string]string{"synchronous_commit": "off"}})
		opened, err := sqlserver.Open(s.PasswordURL(s.NewDatabase(t)))
		return closed(t, opened, err)
	},
	"RabbitMQ": func(t *testing.T) core.Transport {
		s := rabbitserver.StartFor(t, rabbitserver.Config{})
		opened, err := rabbitmq.Open(s.PasswordURL(s.NewVHost(t)))
		return closed(t, opened, err)
	},
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
