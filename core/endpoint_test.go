package core_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core"
)

func TestNew_LogsWarningsOfTheTransport(t *testing.T) {
	t.Parallel()
	transport := newChoosy(t)
	transport.warnings = []string{"turn it on", "turn it off"}
	b := &bed{T: t, logs: &logBook{}}
	for range 2 {
		if _, err := core.New("orders", transport, core.Config{Logger: slog.New(logHandler{book: b.logs})}); err != nil {
			t.Fatal(err)
		}
	}
	equal(b, "warnings", len(b.logs.about("should be configured differently")), 2)
}

// warner finds something out when it subscribes.
type warner struct{ *choosy }

func (w warner) Subscribe(ctx context.Context, queue string, topics ...string) error {
	w.warnings = append(w.warnings, "subscribe "+queue)
	return w.choosy.Subscribe(ctx, queue, topics...)
}

func TestRun_LogsWarningsOfTheTransport(t *testing.T) {
	t.Parallel()
	b := &bed{T: t, logs: &logBook{}}
	ep, err := core.New("orders", warner{newChoosy(t)}, core.Config{Logger: slog.New(logHandler{book: b.logs})})
	if err != nil {
		t.Fatal(err)
	}
	core.HandleEvent(ep, "placed", func(context.Context, *core.TypedMessage[string]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	<-ep.Ready()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	equal(b, "warnings", len(b.logs.about("should be configured differently")), 1)
}

// fmt prints nothing of an endpoint's transport.
func TestEndpoint_String(t *testing.T) {
	t.Parallel()
	ep, err := core.New("orders", newChoosy(t), core.Config{Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got, want := fmt.Sprintf(verb, ep), `endpoint "orders" (one)`; got != want {
			t.Errorf("%s is %s, want %s", verb, got, want)
		}
	}
	if got := (*core.Endpoint)(nil).String(); got != "<nil>" {
		t.Errorf("nil is %s", got)
	}
}
