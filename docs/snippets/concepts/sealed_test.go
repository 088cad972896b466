package concepts_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: sealed
// seal is a SendMiddleware: it encrypts the body of each message that the application sends.
func seal(key cipher.AEAD) core.SendMiddleware {
	return func(next core.SendFunc) core.SendFunc {
		return func(ctx context.Context, out *core.Outgoing) error {
			out.Body = key.Seal(nil, nil, out.Body, []byte(out.ID))
			out.Headers.Set("Sealed", "yes")
			return next(ctx, out)
		}
	}
}

// unseal is the middleware of the receiving side.
func unseal(key cipher.AEAD) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if m.Headers.Get("Sealed") == "yes" {
				body, err := key.Open(nil, nil, m.RawBody(), []byte(m.ID))
				if err != nil {
					return core.GiveUp(err) // another attempt has the same body
				}
				m.SetBody(body)
			}
			return next(ctx, m)
		}
	}
}

// end

func TestSealedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block, err := aes.NewCipher(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		key, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			t.Fatal(err)
		}
		transport := inmemory.Open()
		ep, err := core.New("import", transport, core.Config{
			SendMiddleware: []core.SendMiddleware{seal(key)}, Middleware: []core.Middleware{unseal(key)},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		core.Handle(ep, placed.MessageType, func(_ context.Context, m *core.Message, body OrderPlaced) error {
			got = body.ID
			return m.Forward("error")
		})
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(t.Context()) }()
		<-ep.Ready()
		if err := ep.Send(t.Context(), "import", placed.MessageType.Of(OrderPlaced{ID: "42"})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got != "42" {
			t.Errorf("the handler got %q", got)
		}
		wire, err := transport.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
		if err != nil || len(wire.Messages) != 1 || bytes.Contains(wire.Messages[0].Body, []byte("42")) {
			t.Errorf("on the wire is %v, %v", wire, err)
		}
		if err := errors.Join(ep.Shutdown(t.Context()), <-ended); err != nil {
			t.Error(err)
		}
	})
}
