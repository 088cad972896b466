package messagekit_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// An inbox that calls each function: its first message fails after the handler has run,
// and the second one stands for its redelivery.
func TestMessagekit_FunctionsReachTheMessage(t *testing.T) {
	broker := inmemory.Open()
	defer func() { _ = broker.Close(context.Background()) }()
	errCrash := errors.New("the process ends after the transaction")
	var stored []core.Outgoing
	runs, sent := 0, 0
	inbox := core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if id, known := messagekit.SentID(m); id != m.ID || !known {
				t.Errorf("SentID: %q, %v", id, known)
			}
			if copied := messagekit.Copy(m); string(copied.Body) != "body" || copied.Queue != "" || copied.Reason != core.ReasonForward {
				t.Errorf("Copy: %+v", copied)
			}
			if stored == nil {
				err := next(ctx, m)
				stored = messagekit.Collected(m)
				return errors.Join(err, errCrash)
			}
			if err := messagekit.Resend(m, stored...); err != nil {
				return err
			}
			messagekit.MarkDuplicate(m)
			return messagekit.Commit(m, messagekit.Collected(m), func() { sent++ })
		}
	})
	var duplicates []bool
	ep, err := core.New("shop", broker, core.Config{
		Logger:     slog.New(slog.DiscardHandler),
		Middleware: []core.Middleware{inbox},
		Observers:  []core.Observer{{HandleEnd: func(_ context.Context, e core.Handling) { duplicates = append(duplicates, e.Duplicate) }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
		runs++
		return m.Forward("shop")
	})
	if err := ep.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ep.Invoke(t.Context(), core.NewMessageType[[]byte]("order").Of([]byte("body"))); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if err := ep.Invoke(t.Context(), core.NewMessageType[[]byte]("order").Of([]byte("body"))); err != nil {
		t.Fatal(err)
	}
	if len(stored) != 1 || runs != 1 || sent != 1 || !slices.Equal(duplicates, []bool{false, true}) {
		t.Errorf("%d messages collected, %d runs of the handler, %d calls of sent, duplicates %v", len(stored), runs, sent, duplicates)
	}
}
