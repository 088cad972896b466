package concepts_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: foreign
func newImport(t core.Transport, archive func(messageType string, body []byte) error, charge func(ctx context.Context, id string) error) (*core.Endpoint, error) {
	ep, err := core.New("import", t, core.Config{
		// The other system has the type in the header event-type.
		MessageType: func(in *core.Incoming) string { return in.Headers.Get("event-type") },
	})
	if err != nil {
		return nil, err
	}
	core.Handle(ep, placedType, func(ctx context.Context, _ *core.Message, body OrderPlaced) error {
		return charge(ctx, body.ID)
	})
	// All other types.
	core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
		return archive(m.Type, m.RawBody())
	})
	return ep, nil
}

// end

func TestForeignMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		charged, archived := "", ""
		archive := func(messageType string, body []byte) error {
			archived = messageType + string(body)
			return nil
		}
		ep, err := newImport(transport, archive, func(_ context.Context, id string) error {
			charged = id
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(t.Context()) }()
		<-ep.Ready()
		for messageType, body := range map[string]string{"com.example.order.placed": `{"ID":"42"}`, "com.example.other": "?"} {
			out := core.Outgoing{ID: messageType, Queue: "import", Body: []byte(body), Headers: core.HeadersFromMap(map[string]string{"event-type": messageType})}
			if err := transport.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if charged != "42" || archived != "com.example.other?" {
			t.Errorf("charged %q, archived %q", charged, archived)
		}
		if err := errors.Join(ep.Shutdown(t.Context()), <-ended); err != nil {
			t.Error(err)
		}
	})
}
