package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

func TestMessage_WithoutAnEndpoint(t *testing.T) {
	in := core.NewMessage("body", core.MessageConfig{Type: "order", Incoming: core.Incoming{ID: "m1", Body: []byte("raw")}})
	if in.Attempt != 1 || in.Type != "order" || in.ID != "m1" || in.Body != "body" || string(in.RawBody()) != "raw" {
		t.Errorf("%+v", in)
	}
	if in := core.NewMessage(0, core.MessageConfig{Incoming: core.Incoming{DeliveryCount: 3}}); in.Attempt != 3 {
		t.Errorf("attempt %d", in.Attempt)
	}
	err := in.Send("shipping", "ship", 7, core.SendOptions{ReplyTo: "answers"})
	if sent := messagekit.Collected(in.Message); err != nil || len(sent) != 1 || sent[0].Headers.Get(headers.ReplyToAddress) != "answers" {
		t.Errorf("sent %v, %v", sent, err)
	}
	if err := in.SendNow(t.Context(), "shipping", "ship", 7); err != nil {
		t.Errorf("SendNow to nobody: %v", err)
	}
	t.Run("what is sent now goes to whoever asks for it", func(t *testing.T) {
		var to []string
		in := core.NewMessage("body", core.MessageConfig{SendNow: func(_ context.Context, out ...core.Outgoing) error {
			to = append(to, out[0].Queue)
			return errBoom
		}})
		if err := in.SendNow(t.Context(), "shipping", "ship", 7); !errors.Is(err, errBoom) || len(to) != 1 {
			t.Errorf("%v, to %v", err, to)
		}
	})
	t.Run("a codec that New refuses panics and says why", func(t *testing.T) {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "core: NewMessage: ") || !strings.Contains(text, "content type") {
				t.Errorf("panicked with %q", text)
			}
		}()
		core.NewMessage("body", core.MessageConfig{Codec: namelessCodec{}})
	})
}

// namelessCodec has no content type.
type namelessCodec struct{}

func (namelessCodec) ContentType() string              { return "" }
func (namelessCodec) Encode(any) ([]byte, error)       { return nil, nil }
func (namelessCodec) Decode(string, []byte, any) error { return nil }

func TestMessage_InAContext(t *testing.T) {
	if m, ok := core.MessageFromContext(t.Context()); m != nil || ok {
		t.Errorf("found %v", m)
	}
	outer := core.NewMessage("a", core.MessageConfig{}).Message
	inner := core.NewMessage("b", core.MessageConfig{}).Message
	type key struct{}
	ctx := core.ContextWithMessage(context.WithValue(t.Context(), key{}, "value"), outer)
	if m, ok := core.MessageFromContext(ctx); m != outer || !ok || ctx.Value(key{}) != "value" {
		t.Errorf("found %v, %v", m, ok)
	}
	if m, ok := core.MessageFromContext(core.ContextWithMessage(ctx, inner)); m != inner || !ok {
		t.Errorf("found %v, %v; want the innermost", m, ok)
	}
	t.Run("of handlers", func(t *testing.T) {
		bubble(t, func(fx *fixture) {
			fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
				if from, ok := core.MessageFromContext(ctx); from != m || !ok {
					fx.Errorf("found %v", from)
				}
				if from, _ := core.MessageFromContext(core.ContextWithMessage(ctx, outer)); from != outer {
					fx.Errorf("found %v in place of the handler's own choice", from)
				}
				return nil
			})
			fx.enqueue("m1")
			fx.wantDepth("orders", 0)
		})
	})
}
