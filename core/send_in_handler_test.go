package core_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

func TestSendInHandler_WarnsOnce(t *testing.T) {
	bubble(t, func(fx *fixture) {
		const text = "with a handler's context"
		var ep *core.Endpoint
		other := fx.newEndpoint("other", core.Config{SendOnly: true})
		var send func(ctx context.Context, m *core.Message) error
		ep, _ = fx.runOrders(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message) error { return send(ctx, m) })
		fx.provision("billing")
		for i, c := range []struct {
			name string
			send func(ctx context.Context, m *core.Message) error
			want int
		}{
			{"Message.Send", func(_ context.Context, m *core.Message) error { return m.Send("billing", billType.Of("x")) }, 0},
			{"Message.SendNow", func(ctx context.Context, m *core.Message) error { return m.SendNow(ctx, "billing", billType.Of("x")) }, 0},
			{"another endpoint's Send", func(ctx context.Context, _ *core.Message) error { return other.Send(ctx, "billing", billType.Of("x")) }, 0},
			{"Send with another context", func(context.Context, *core.Message) error {
				return ep.Send(context.Background(), "billing", billType.Of("x"))
			}, 0},
			{"Send", func(ctx context.Context, _ *core.Message) error { return ep.Send(ctx, "billing", billType.Of("x")) }, 1},
			{"Publish, later", func(ctx context.Context, _ *core.Message) error { return ep.Publish(ctx, billedEvent.Of("x")) }, 1},
		} {
			send = c.send
			fx.enqueue(string(rune('a' + i)))
			synctest.Wait()
			equal(fx, "warnings after "+c.name, len(fx.logs.find(text)), c.want)
		}
		if line := fx.logs.find(text)[0]; line.level != slog.LevelWarn || line.attrs["message_type"] != "order" || line.attrs["sent_type"] != "bill" {
			fx.Errorf("the warning is %+v", line)
		}
		fx.wantDepth("error", 0)
	})
}
