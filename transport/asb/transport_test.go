package asb_test

import (
	"testing"

	"github.com/reprise-go/reprise/transport/asb"
)

// openUnreached opens a transport that contacts no service.
func openUnreached(t *testing.T, cfg asb.Config) *asb.Transport {
	t.Helper()
	if cfg.ConnectionString == "" {
		cfg.ConnectionString = anyInstance
	}
	transport, err := asb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(t.Context()) })
	return transport
}

func TestAddress_HasNoPrefix(t *testing.T) {
	transport := openUnreached(t, asb.Config{QueuePrefix: "test/"})
	if got, err := transport.Address("Sales.Orders"); got != "sales.orders" || err != nil {
		t.Errorf("the address of Sales.Orders is %q, %v", got, err)
	}
	if got, err := transport.Address("two words"); got != "" || err == nil {
		t.Errorf("the address of a name that Service Bus does not allow is %q, %v", got, err)
	}
}

func TestKeepsGroups_QueuesInAnyCase(t *testing.T) {
	transport := openUnreached(t, asb.Config{SessionQueues: []string{"Orders"}})
	for queue, want := range map[string]bool{"orders": true, "ORDERS": true, "other": false, "": false} {
		if got := transport.KeepsGroups(queue); got != want {
			t.Errorf("KeepsGroups(%q) is %v", queue, got)
		}
	}
}
