package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestNew_SaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	near, far := inmemory.Open(), inmemory.Open()
	noEvents, err := inmemory.New(able(func(c *core.Capabilities) { c.PublishSubscribe = false }))
	if err != nil {
		t.Fatal(err)
	}
	events := bridge.Side{Transport: near, Topics: []string{"a"}}
	tests := map[string]struct {
		name   string
		config bridge.Config
		want   []string
	}{
		"nothing is set": {"", bridge.Config{}, []string{
			`the name "" cannot be that of a bridge`, "Near.Transport is nil", "Far.Transport is nil", "neither Near nor Far has Queues or Topics",
		}},
		"a comma in the name": {"a,b", bridge.Config{Near: events, Far: bridge.Side{Transport: far}}, []string{`the name "a,b" cannot be`}},
		"times": {"b", bridge.Config{Near: events, Far: bridge.Side{Transport: far}, SendTimeout: -1, GiveUpAfter: -1}, []string{
			"SendTimeout is -1ns", "GiveUpAfter is -1ns",
		}},
		"one transport": {"b", bridge.Config{Near: events, Far: bridge.Side{Transport: near}}, []string{"are the same"}},
		"a nil pointer": {"b", bridge.Config{Near: events, Far: bridge.Side{Transport: (*inmemory.Transport)(nil)}}, []string{"Far.Transport is nil"}},
		"settings of endpoints": {"b", bridge.Config{Near: events, Far: bridge.Side{Transport: far}, Endpoint: core.Config{
			InputQueue: "x", QueueExpiry: time.Hour, SendOnly: true, Transactions: core.TransactionNone, Concurrency: -1,
			MessageType: func(*core.Incoming) string { return "" },
		}}, []string{
			"Endpoint.InputQueue is set", "Endpoint.QueueExpiry is set", "Endpoint.SendOnly is set", "Endpoint.MessageType is set",
			"Endpoint.Transactions is None", "Concurrency is -1",
		}},
		"names": {"b", bridge.Config{
			Near: bridge.Side{Transport: near, Queues: []string{"q", "", "b", "same"}, Topics: []string{"", "t", "t"}},
			Far:  bridge.Side{Transport: far, Queues: []string{"r", "r", "same"}},
		}, []string{
			"Near.Queues[1] is empty", `Near.Queues lists "b", which is the bridge's own queue`, "Near.Topics[0] is empty", `Near.Topics lists "t" twice`,
			`Far.Queues lists "r" twice`, `the queue "same" is listed for Near and for Far`,
		}},
		"no events on the side that publishes": {"b", bridge.Config{Near: bridge.Side{Transport: noEvents, Topics: []string{"a"}}, Far: bridge.Side{Transport: far}}, []string{
			`HandleEvent "a": the transport has no events`,
		}},
		"no events on the other side": {"b", bridge.Config{Near: events, Far: bridge.Side{Transport: noEvents}}, []string{
			"Near.Topics are listed, but the transport of Far has no events",
		}},
		"names that one side cannot have": {"b", bridge.Config{
			Near: bridge.Side{Transport: near, Topics: []string{"a"}},
			Far:  bridge.Side{Transport: picky{transport.Wrapper{Transport: far}}, Queues: []string{"a b"}},
		}, []string{
			`the queue "a b" is not possible on both sides: no spaces`, `the topic "a" of Near is not possible on the transport of Far: no such topic`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bridge.New(tt.name, tt.config)
			text := fmt.Sprint(err)
			if err == nil || !strings.HasPrefix(text, fmt.Sprintf("bridge: new bridge %q: ", tt.name)) {
				t.Fatalf("the error is %v", err)
			}
			if lines := strings.Count(text, "\n") + 1; lines != len(tt.want) {
				t.Errorf("%d errors, want %d", lines, len(tt.want))
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// picky has few names.
type picky struct{ transport.Wrapper }

func (p picky) Address(queue string) (string, error) {
	if strings.Contains(queue, " ") {
		return "", fmt.Errorf("no spaces")
	}
	return p.Wrapper.Address(queue)
}

func (picky) CheckTopic(string) error { return fmt.Errorf("no such topic") }

// Provision creates the queues that the bridge receives from, and none of the other side's.
func TestProvision(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Queues: []string{"shop"}, Topics: []string{orderPlaced}}, bridge.Side{Queues: []string{"billing"}})
		b.noError(b.bridge("b", c).Provision(b.Context()))
		if got := fmt.Sprint(b.near.names(), b.far.names()); got != "[b billing error] [error shop]" {
			b.Errorf("queues: %s", got)
		}
	})
}

// Run ends with its context, and tells what ended it.
func TestRun(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{}))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		b.noError(carrier.Run(ctx))
		c := b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{})
		c.Endpoint.Provision = core.ProvisionNever
		b.noError(carrier.Run(ctx))
		missing := b.bridge("another", c)
		if err := missing.Run(context.Background()); err == nil || !strings.Contains(err.Error(), `queue "another": queue does not exist`) {
			b.Errorf("without its queue: %v", err)
		}
	})
}

// An endpoint beside the bridge would take messages from it that it should carry.
func TestRunAll_RefusesAnEndpointOnAQueueOfTheBridge(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		billing := b.endpoint("billing", b.near, core.Config{})
		core.Handle(billing, writeType, func(context.Context, *core.Message, []byte) error { return nil })
		err := core.RunAll(b.Context(), append(carrier.Endpoints(), billing)...)
		if err == nil || !strings.Contains(err.Error(), "receive from one queue, billing,") {
			b.Errorf("RunAll returned %v", err)
		}
	})
}
