package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
)

func TestRun_RefusesMissingQueues(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  core.Config
		there   []string
		missing []string
	}{
		{"none: all of them exist", core.Config{}, []string{"billing"}, nil},
		{"an error queue of its own", errorQueue("failed"), []string{"billing"}, []string{"failed"}},
		{"the audit queue", core.Config{AuditQueue: "audit"}, []string{"billing"}, []string{"audit"}},
		{"the input queue", core.Config{}, nil, []string{"billing"}},
		{"all of them, told together", core.Config{AuditQueue: "audit", Recoverability: errorQueue("failed").Recoverability}, nil, []string{"billing", "failed", "audit"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				test.config.Provision = core.ProvisionNever
				ep := b.endpoint("billing", test.config)
				b.provision(test.there...)
				if test.missing == nil {
					b.run(ep)
					return
				}
				err := b.launch(ep).wait()
				if !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), `core: run endpoint "billing": check: `) {
					b.Errorf("Run: %v", err)
				}
				for _, queue := range test.missing {
					if !strings.Contains(err.Error(), `"`+queue+`"`) {
						b.Errorf("%q is not named: %v", queue, err)
					}
				}
				equal(b, "receivers opened", b.broker.opened.len(), 0)
				b.provision(test.missing...)
				b.run(ep) // once they are there
			})
		})
	}
}

func errorQueue(name string) core.Config {
	return core.Config{Recoverability: core.Recoverability{ErrorQueue: name}}
}

func (b *bed) provision(queues ...string) {
	b.Helper()
	if err := b.broker.Provision(b.Context(), core.Topology{Queues: queues}); err != nil {
		b.Fatal(err)
	}
}

func TestRun_DoesNotCheckCustomErrorQueues(t *testing.T) {
	bubble(t, func(b *bed) {
		config := core.Config{Provision: core.ProvisionNever}
		config.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action {
			return core.MoveToError("custom")
		}
		b.run(b.endpoint("orders", config))
		if slices.Contains(b.broker.Queues(), "custom") {
			b.Error("it was created")
		}
	})
}
