package sqlserver_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Their table of subscriptions, as in nservicebus_statements_test.go.
const (
	theirSubscriptions = `create table if not exists %[1]s (
	QueueAddress varchar(200) not null,
	Endpoint varchar(200) not null,
	Topic varchar(200) not null,
	primary key (Endpoint, Topic)
) with (fillfactor = 100)`
	theirSubscribe = `insert into %[1]s (QueueAddress, Topic, Endpoint) values ($1, $2, $3)
on conflict (Endpoint, Topic) do update set QueueAddress = $1`
	theirUnsubscribe = `delete from %[1]s where Endpoint = $1 and Topic = $2`
	// A topic and those of what it derives from.
	theirSubscribers = `select distinct QueueAddress from %[1]s where Topic in ($1, $2)`
)

// uncached looks at the table of subscriptions at every publish.
var uncached = sqlserver.Config{SubscriptionCache: -1}

// publication is a message for those who subscribed to a topic.
func publication(id, topic string) core.Outgoing {
	out := letter(id, "")
	out.Topic = topic
	return out
}

func TestNServiceBus_SharedSubscriptions(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.table("SubscriptionRouting")
	db.exec(t, on(table, theirSubscriptions))
	theirs := db.theirTable(t, "Sales.Web")
	transport := db.open(t, uncached)
	provision(t, transport, "Shipping")
	const topic, base = "Sales.OrderPlaced", "Sales.IOrderEvent"

	// Their row makes a publish reach their endpoint.
	db.exec(t, on(table, theirSubscribe), theirs, topic, "Sales.Web")
	send(t, transport, publication("1", topic))
	if row, ok := db.receiveAsThey(t, theirs); !ok || row.headers[headers.MessageID] != "1" || string(row.body) != "1" {
		t.Errorf("they received %+v, %v", row, ok)
	}

	// Our subscription makes their events reach us: once, with any number of topics.
	if err := transport.Subscribe(t.Context(), "Shipping", topic, base); err != nil {
		t.Fatal(err)
	}
	if err := transport.Subscribe(t.Context(), "Shipping", topic); err != nil {
		t.Errorf("again: %v", err)
	}
	got := db.column(t, on(table, theirSubscribers), topic, base)
	slices.Sort(got)
	want := []string{theirs, db.table("Shipping")}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("they publish to %q, want %q", got, want)
	}
	for _, address := range got {
		if schema, queue := theirAddress(address); schema != db.schema || queue != "Sales.Web" && queue != "Shipping" {
			t.Errorf("they read the address %s as %q and %q", address, schema, queue)
		}
	}
	send(t, transport, publication("2", topic))
	r := openReceiver(t, transport, "Shipping", core.TransactionNone)
	if id := receive(t, r).Incoming().ID; id != "2" {
		t.Errorf("received %s", id)
	}
	if row, ok := db.receiveAsThey(t, theirs); !ok || row.headers[headers.MessageID] != "2" {
		t.Errorf("they received %+v, %v", row, ok)
	}

	// Either ends the other's: an endpoint has one name in both worlds.
	db.exec(t, on(table, theirUnsubscribe), "Shipping", topic)
	if err := transport.Unsubscribe(t.Context(), "Sales.Web", topic); err != nil {
		t.Fatal(err)
	}
	if left := db.column(t, `select endpoint || ' ' || topic from `+table); !slices.Equal(left, []string{"Shipping " + base}) {
		t.Errorf("subscriptions left: %q", left)
	}
}

// TestNServiceBus_EndpointMovesWithItsSubscriptions: what it subscribed to as an
// endpoint of NServiceBus's is the same row, and not one beside it.
// As they do, what is published reaches those who subscribed to a base type, a queue once.
func TestNServiceBus_SubscribersToBaseTypes(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.table("SubscriptionRouting")
	db.exec(t, on(table, theirSubscriptions))
	const topic, base, event = "Sales.OrderPlaced", "Sales.OrderChanged", "Sales.IOrderEvent"
	both, one := db.theirTable(t, "Sales.Both"), db.theirTable(t, "Sales.One")
	db.exec(t, on(table, theirSubscribe), both, topic, "Sales.Both")
	db.exec(t, on(table, theirSubscribe), both, event, "Sales.Both")
	db.exec(t, on(table, theirSubscribe), one, event, "Sales.One")
	transport := db.open(t, uncached)
	derived, other := publication("1", topic), publication("2", topic)
	derived.BaseTopics = []string{base, event}
	send(t, transport, derived, other)
	for address, want := range map[string][]string{both: {"1", "2"}, one: {"1"}} {
		var got []string
		for {
			row, ok := db.receiveAsThey(t, address)
			if !ok {
				break
			}
			got = append(got, row.headers[headers.MessageID])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", address, got, want)
		}
	}
}

func TestNServiceBus_EndpointMovesWithItsSubscriptions(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.table("SubscriptionRouting")
	db.exec(t, on(table, theirSubscriptions))
	db.exec(t, on(table, theirSubscribe), `"elsewhere"."Shipping"`, "Sales.OrderPlaced", "Shipping")
	transport := db.open(t, uncached)
	provision(t, transport, "Shipping")
	if err := transport.Subscribe(t.Context(), "Shipping", "Sales.OrderPlaced"); err != nil {
		t.Fatal(err)
	}
	got := db.column(t, `select endpoint || ' ' || topic || ' ' || queueaddress from `+table)
	if want := []string{"Shipping Sales.OrderPlaced " + db.table("Shipping")}; !slices.Equal(got, want) {
		t.Errorf("subscriptions %q, want %q", got, want)
	}
}

// TestNServiceBus_QueuesOfOneNameInTwoSchemas shows what the column Endpoint holds
// for a queue outside of the transport's own schema.
func TestNServiceBus_QueuesOfOneNameInTwoSchemas(t *testing.T) {
	t.Parallel()
	db, other := newSchema(t), newSchema(t)
	transport := db.open(t, uncached)
	provision(t, transport, "Shipping", other.table("Shipping"))
	for _, queue := range []string{"Shipping", other.table("Shipping")} {
		if err := transport.Subscribe(t.Context(), queue, "topic"); err != nil {
			t.Fatal(err)
		}
	}
	got := db.column(t, `select endpoint from `+db.table("SubscriptionRouting")+` order by length(endpoint)`)
	if want := []string{"Shipping", other.table("Shipping")}; !slices.Equal(got, want) {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	send(t, transport, publication("1", "topic"))
	for _, d := range []*testDatabase{db, other} {
		if n := d.count(t, d.table("Shipping")); n != "1" {
			t.Errorf("%s messages in %s, want 1", n, d.table("Shipping"))
		}
	}
}

// TestNServiceBus_LengthOfATopic: 200 characters, not bytes.
func TestNServiceBus_LengthOfATopic(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, uncached)
	provision(t, transport, "q")
	longest := strings.Repeat("\u00e9", 200)
	if err := transport.Subscribe(t.Context(), "q", longest); err != nil {
		t.Errorf("200 characters: %v", err)
	}
	send(t, transport, publication("1", longest))
	if n := db.count(t, db.table("q")); n != "1" {
		t.Errorf("%s messages, want 1", n)
	}
	for _, topic := range []string{longest + "x", "", "a\x00b", "\xff"} {
		if err := transport.Subscribe(t.Context(), "q", topic); err == nil {
			t.Errorf("Subscribe(%q) succeeded", topic)
		}
	}
	for topic, want := range map[string]string{longest + "x": "has 201 characters", "a\x00b": "contains a NUL", "\xff": "is not UTF-8"} {
		event := publication("2", topic)
		wantSendError(t, transport.Send(t.Context(), event), core.SendRefused, 1)
		for name, err := range map[string]error{
			"Send":       transport.Send(t.Context(), event),
			"Subscribe":  transport.Subscribe(t.Context(), "q", topic),
			"CheckTopic": transport.CheckTopic(topic),
		} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SQLSTATE") {
				t.Errorf("%s to %.20q = %v, want %q", name, topic, err, want)
			}
		}
	}
	if n := db.count(t, db.table("q")); n != "1" {
		t.Errorf("%s messages, want still 1", n)
	}
	if err := transport.Unsubscribe(t.Context(), "q", longest); err != nil {
		t.Error(err)
	}
}

// TestNServiceBus_AddressTooLongToSubscribe is refused with words that help.
func TestNServiceBus_AddressTooLongToSubscribe(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	quotes := strings.Repeat(`"`, 60)
	db.exec(t, `create schema `+pgx.Identifier{quotes}.Sanitize())
	transport := db.open(t, sqlserver.Config{Schema: quotes})
	provision(t, transport, "q"+quotes)
	err := transport.Subscribe(t.Context(), "q"+quotes, "topic")
	if err == nil || !strings.Contains(err.Error(), "has 246 characters, but the table of subscriptions holds 200") || strings.Contains(err.Error(), "SQLSTATE") {
		t.Errorf("Subscribe = %v, want an error about the address", err)
	}
}

// An error would make the sender repeat an event that can never arrive.
func TestNServiceBus_OnlyUnusableSubscriptionsAreNoError(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.table("SubscriptionRouting")
	db.exec(t, on(table, theirSubscriptions))
	transport := db.open(t, uncached)
	for name, address := range map[string]string{"gone": db.table("gone"), "half": `"half`} {
		db.exec(t, on(table, theirSubscribe), address, "topic of "+name, "x")
		if err := transport.Send(t.Context(), publication("1", "topic of "+name)); err != nil {
			t.Errorf("publish to %s = %v", address, err)
		}
	}
}

func TestNServiceBus_PublishWithDelayAndTimeToBeReceived(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.table("SubscriptionRouting")
	db.exec(t, on(table, theirSubscriptions))
	theirs := db.theirTable(t, "theirs")
	transport := db.open(t, uncached)
	provision(t, transport, "ours")
	db.exec(t, on(table, theirSubscribe), theirs, "topic", "theirs")
	if err := transport.Subscribe(t.Context(), "ours", "topic"); err != nil {
		t.Fatal(err)
	}
	out := publication("1", "topic")
	out.Delay, out.TimeToBeReceived = 300*time.Millisecond, time.Hour
	sent := time.Now()
	send(t, transport, out)
	if n := db.count(t, theirs); n != "0" && time.Since(sent) < out.Delay {
		t.Errorf("%s messages in their table at once", n)
	}
	row := db.awaitAsThey(t, theirs)
	if remaining := out.Delay - time.Since(sent); remaining > 0 {
		t.Errorf("they got it %v early", remaining)
	}
	if row.expired != 0 || row.headers[headers.MessageID] != "1" {
		t.Errorf("they got %+v", row)
	}
	complete(t, receive(t, openReceiver(t, transport, "ours", core.TransactionReceiveOnly)))
}
