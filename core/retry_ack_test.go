package core_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A message names any queue and any text. The endpoint sends neither with its own rights.
func TestRetryAck_OnlyToConfiguredQueues(t *testing.T) {
	tests := map[string]struct {
		config []string
		acks   []string // the queues that get an acknowledgement
	}{
		"default": {nil, []string{"Particular.ServiceControl", "reprise.outcomes"}},
		"listed":  {[]string{"tool"}, []string{"tool"}},
		"none":    {[]string{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				all := []string{"Particular.ServiceControl", "reprise.outcomes", "tool", "payments"}
				fx.provision(append(all, "audit")...)
				fx.runOrders(core.Config{RetryAckQueues: test.config, AuditQueue: "audit"}, func(context.Context, *core.Message) error { return nil })
				for _, queue := range all {
					fx.send(returnedByAnOperator("for "+queue, queue))
				}
				for _, queue := range all {
					want := 0
					if slices.Contains(test.acks, queue) {
						want = 1
					}
					fx.wantDepth(queue, want)
				}
				for _, audit := range fx.messages("audit") {
					want := ""
					if slices.Contains(test.acks, strings.TrimPrefix(audit.ID, "for ")) {
						want = "true"
					}
					equal(fx, headers.RetryAckSent+" of the message "+audit.ID, audit.Headers.Get(headers.RetryAckSent), want)
				}
				fx.wantDepth("audit", len(all))
				if lines := fx.logs.find("not in Config.RetryAckQueues"); len(lines) != len(all)-len(test.acks) {
					fx.Errorf("logged %+v", lines)
				}
			})
		})
	}
}

func TestRetryAck_LongUniqueID(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(context.Context, *core.Message) error { return nil })
		for id, length := range map[string]int{"longest": 255, "too long": 256, "text": 100_000} {
			m := returnedByAnOperator(id, "acks")
			m.Headers.Set(headers.RetryUniqueMessageID, strings.Repeat("x", length))
			fx.send(m)
		}
		equal(fx, "length", len(fx.onlyMessage("acks").Headers.Get(headers.RetryUniqueMessageID)), 255)
		fx.wantDepth("orders", 0)
		if lines := fx.logs.find("is too long"); len(lines) != 2 {
			fx.Errorf("logged %+v", lines)
		}
	})
}

// The names are compared as the transport's addresses.
func TestRetryAck_NamesOfTheConfiguration(t *testing.T) {
	newEndpoint := func(limit int, queues []string) (*core.Endpoint, error) {
		caps := inmemory.Everything()
		caps.MaxQueueName = limit
		transport, err := inmemory.New(inmemory.Config{Capabilities: &caps})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = transport.Close(context.Background()) })
		return core.New("orders", transport, core.Config{RetryAckQueues: queues})
	}
	for _, test := range []struct {
		limit        int
		queues, want []string
		wantErr      string
	}{
		{100, nil, []string{"Particular.ServiceControl", "reprise.outcomes"}, ""},
		{20, nil, []string{"reprise.outcomes"}, ""}, // the other default cannot be a queue there
		{100, []string{}, []string{}, ""},
		{100, []string{"a"}, []string{"a"}, ""},
		{20, []string{"a", strings.Repeat("b", 21)}, nil, "RetryAckQueues[1]"},
		{100, []string{""}, nil, `RetryAckQueues[0] is ""`},
		{100, []string{core.DeadLetterQueue}, nil, "RetryAckQueues[0]"},
	} {
		ep, err := newEndpoint(test.limit, test.queues)
		if test.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%q: error %v, want it to name %s", test.queues, err, test.wantErr)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		inForce := ep.Config().RetryAckQueues
		if !reflect.DeepEqual(inForce, test.want) {
			t.Errorf("%q: in force is %q, want %q", test.queues, inForce, test.want)
		}
		if _, err := newEndpoint(test.limit, inForce); err != nil {
			t.Error(err)
		}
	}
	if _, err := core.New("orders", inmemory.Open(), core.Config{SendOnly: true, RetryAckQueues: []string{}}); err == nil || !strings.Contains(err.Error(), "RetryAckQueues is set on a send-only endpoint") {
		t.Errorf("send-only: %v", err)
	}
}
