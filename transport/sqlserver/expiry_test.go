package sqlserver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A database deletes no table by itself, and nothing is created that would stay for ever.
func TestQueueExpiry_IsRefused(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	topology := core.Topology{InputQueue: "orders-a", Queues: []string{"orders-a", "error"}, QueueExpiry: time.Hour}
	for operation, err := range map[string]error{"Provision": transport.Provision(t.Context(), topology), "Check": transport.Check(t.Context(), topology)} {
		if err == nil || !strings.Contains(err.Error(), `Config.QueueExpiry of the endpoint is 1h0m0s, but a database deletes no table by itself; remove it, and drop the table of "orders-a"`) ||
			errors.Is(err, errors.ErrUnsupported) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: %v", operation, err)
		}
	}
	if err := transport.Check(t.Context(), core.Topology{Queues: []string{"error"}}); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Check of a queue that was not created: %v", err)
	}
}
