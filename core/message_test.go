package core_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
)

func TestMessage_InAContext(t *testing.T) {
	if m, ok := core.MessageFromContext(t.Context()); m != nil || ok {
		t.Errorf("found %v", m)
	}
	outer, inner := &core.Message{ID: "a"}, &core.Message{ID: "b"}
	type key struct{}
	ctx := coretest.Context(context.WithValue(t.Context(), key{}, "value"), outer)
	if m, ok := core.MessageFromContext(ctx); m != outer || !ok || ctx.Value(key{}) != "value" {
		t.Errorf("found %v, %v", m, ok)
	}
	if m, ok := core.MessageFromContext(coretest.Context(ctx, inner)); m != inner || !ok {
		t.Errorf("found %v, %v; want the innermost", m, ok)
	}
	t.Run("of handlers", func(t *testing.T) {
		bubble(t, func(fx *fixture) {
			fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
				if from, ok := core.MessageFromContext(ctx); from != m || !ok {
					fx.Errorf("found %v", from)
				}
				if from, _ := core.MessageFromContext(coretest.Context(ctx, outer)); from != outer {
					fx.Errorf("found %v in place of the handler's own choice", from)
				}
				return nil
			})
			fx.enqueue("m1")
			fx.wantDepth("orders", 0)
		})
	})
}
