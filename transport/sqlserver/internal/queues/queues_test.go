package queues_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/leaks"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

func newCache() *queues.Cache {
	return queues.NewCache(postgres.Dialect{}, dialect.Location{Schema: "public"})
}

func get(t *testing.T, cache *queues.Cache, name string) *queues.Queue {
	t.Helper()
	q, err := cache.Get(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return q
}

func TestCache_NameAndAddressAreOneQueue(t *testing.T) {
	t.Parallel()
	cache := newCache()
	q := get(t, cache, "orders")
	for _, name := range []string{"orders", `"orders"`, `"public"."orders"`} {
		if get(t, cache, name) != q {
			t.Errorf("%s is another queue than orders", name)
		}
	}
	if get(t, cache, `"sales"."orders"`) == q {
		t.Error("the queues of one name in two schemas are one")
	}
}

func TestCache_IllegalNameIsPermanent(t *testing.T) {
	t.Parallel()
	if q, err := newCache().Get(`"half`); err == nil || !transport.IsPermanent(err) {
		t.Errorf("Get returned %v, %v; want a permanent error", q, err)
	}
}

// Reply addresses come from outside, so their number has no limit.
func TestCache_IsEmptiedWhenFull(t *testing.T) {
	t.Parallel()
	cache := newCache()
	first := get(t, cache, "first")
	for i := range 5_100 { // each has two entries, its name and its address
		get(t, cache, fmt.Sprint(i))
	}
	second := get(t, cache, "first")
	if second == first {
		t.Error("the cache still has its first queue after 10,000 entries")
	}
	if second.Table != first.Table || second.Channel != first.Channel {
		t.Errorf("the queue %v on %s became %v on %s", first.Table, first.Channel, second.Table, second.Channel)
	}
}

func TestQueue_RemembersItsKind(t *testing.T) {
	t.Parallel()
	cache := newCache()
	if kind := get(t, cache, "orders").Kind(); kind != queues.UnknownKind {
		t.Errorf("a queue that was not examined has the kind %d", kind)
	}
	get(t, cache, "orders").SetKind(queues.NServiceBus)
	if kind := get(t, cache, `"public"."orders"`).Kind(); kind != queues.NServiceBus {
		t.Errorf("the queue has the kind %d, want NServiceBus's", kind)
	}
}

// Older versions, and the trigger in the database, compute the same name.
func TestChannelOf_IsStable(t *testing.T) {
	t.Parallel()
	const address, want = `"public"."orders"`, "reprise_b1ff54debf26646d492130de"
	if got := queues.ChannelOf(address); got != want {
		t.Errorf("the channel of %s is %s, want %s", address, got, want)
	}
}

func TestAppendMissing_ComparesAddresses(t *testing.T) {
	t.Parallel()
	cache, emptied := newCache(), newCache() // as if it had been emptied
	orders, billing := get(t, cache, "orders"), get(t, cache, "billing")
	list := queues.AppendMissing([]*queues.Queue{orders}, billing, get(t, emptied, `"public"."orders"`), billing)
	if len(list) != 2 || list[0] != orders || list[1] != billing {
		t.Errorf("the list is %v, want orders and billing", list)
	}
}

// Addresses are parts of the headers of messages, which may have any size.
func TestCache_KeepsNoHeaders(t *testing.T) {
	cache := newCache()
	const n = 100
	growth := leaks.HeapGrowth(func() {
		for i := range n {
			name := fmt.Sprintf("reply-%d", i)
			headers := name + strings.Repeat("x", 1<<20)
			get(t, cache, headers[:len(name)])
		}
	})
	if growth > 8<<20 {
		t.Errorf("%d names keep %d MiB", n, growth>>20)
	}
	get(t, cache, "reply-0")
}
