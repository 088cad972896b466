package concepts_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: startup
// described is the middleware again, which tells the endpoint's start what it does.
func described(next core.HandlerFunc) core.HandlerFunc {
	core.StartUpOf(next).Describe(core.Step{Kind: "retry", Name: "again", Tries: 3})
	return again(next)
}

// end

func TestDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		ep, err := core.New("orders", inmemory.Open(), core.Config{
			Middleware: []core.Middleware{described},
			Logger:     slog.New(slog.NewTextHandler(&lines, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, "orders.place", func(context.Context, *core.TypedMessage[string]) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ep.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(lines.String(), " tries=72 ") {
			t.Errorf("logged %s", lines.String())
		}
	})
}
