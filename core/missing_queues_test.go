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
		{"a separate error queue", errorQueue("failed"), []string{"billing"}, []string{"failed"}},
		{"the audit queue", core.Config{AuditQueue: "audit"}, []string{"billing"}, []string{"audit"}},
		{"the input queue", core.Config{}, nil, []string{"billing"}},
		{"all of them, told together", core.Config{AuditQueue: "audit", Recoverability: errorQueue("failed").Recoverability}, nil, []string{"billing", "failed", "audit"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				test.config.Provision = core.ProvisionNever
				ep := fx.newEndpoint("billing", test.config)
				fx.provision(test.there...)
				if test.missing == nil {
					fx.run(ep)
					return
				}
				err := fx.start(ep).wait()
				if !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), `core: run endpoint "billing": check: `) {
					fx.Errorf("Run: %v", err)
				}
				for _, queue := range test.missing {
					if !strings.Contains(err.Error(), `"`+queue+`"`) {
						fx.Errorf("%q is not named: %v", queue, err)
					}
				}
				equal(fx, "receivers opened", fx.broker.opened.len(), 0)
				fx.provision(test.missing...)
				fx.run(ep) // once they are there
			})
		})
	}
}

func errorQueue(name string) core.Config {
	return core.Config{Recoverability: core.Recoverability{ErrorQueue: name}}
}

func (fx *fixture) provision(queues ...string) {
	fx.Helper()
	if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: queues}); err != nil {
		fx.Fatal(err)
	}
}

func TestRun_DoesNotCheckCustomErrorQueues(t *testing.T) {
	bubble(t, func(fx *fixture) {
		config := core.Config{Provision: core.ProvisionNever}
		config.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return core.MoveToError("custom"), nil
		}
		fx.run(fx.newEndpoint("orders", config))
		if slices.Contains(fx.queues(), "custom") {
			fx.Error("it was created")
		}
	})
}
