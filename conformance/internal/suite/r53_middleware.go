package suite

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

var middlewareCases = []testCase{
	{rule: "R53", title: "middleware can fail a message because of its headers", run: func(t *caseT) {
		transport := t.open()
		var seen counter
		s := t.service(transport, func(c *core.Config) {
			t.enableRetries(c)
			c.Middleware = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					seen.add("before")
					switch m.Headers.Get("Véto-By") {
					case "discard ✓":
						return core.Discard(errors.New("the case wants it"))
					case "":
						return next(ctx, m)
					default:
						return core.GiveUp(errors.New("vetoed"))
					}
				}
			})}
		})
		s.handle("job", func(context.Context, *core.Message) error {
			seen.add("handled")
			return nil
		})
		dropped, vetoed := t.command(s.queue, "job", "dropped"), t.command(s.queue, "job", "vetoed")
		dropped.Headers.Set("Véto-By", "discard ✓")
		vetoed.Headers.Set("Véto-By", "somebody")
		s.run()
		t.send(transport, dropped, vetoed, t.command(s.queue, "job", "good"))
		t.awaitCount("messages that middleware sees", 3, func() int { return seen.get("before") })
		t.wantFailedHeaders(s.wantOneMoved(), "vetoed")
		if n := seen.get("handled"); n < 1 || n > 1 && !t.caps.MayDuplicate {
			t.fail("the one message on which middleware has no verdict is handled", "%d handled", n)
		}
	}},
}
