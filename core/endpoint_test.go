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
	transport := newTopicChecker(t)
	transport.warnings = []string{"turn it on", "turn it off"}
	fx := &fixture{T: t, logs: &logRecorder{}}
	for range 2 {
		if _, err := core.New("orders", transport, core.Config{Logger: slog.New(logHandler{recorder: fx.logs})}); err != nil {
			t.Fatal(err)
		}
	}
	equal(fx, "warnings", len(fx.logs.find("should be configured differently")), 2)
}

// subscribeWarner finds something out when it subscribes.
type subscribeWarner struct{ *topicChecker }

func (w subscribeWarner) Subscribe(ctx context.Context, queue string, topics ...string) error {
	w.warnings = append(w.warnings, "subscribe "+queue)
	return w.topicChecker.Subscribe(ctx, queue, topics...)
}

func TestRun_LogsWarningsOfTheTransport(t *testing.T) {
	t.Parallel()
	fx := &fixture{T: t, logs: &logRecorder{}}
	ep, err := core.New("orders", subscribeWarner{newTopicChecker(t)}, core.Config{Logger: slog.New(logHandler{recorder: fx.logs})})
	if err != nil {
		t.Fatal(err)
	}
	core.HandleEvent(ep, placedEvent, func(context.Context, *core.Message, string) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	<-ep.Ready()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	equal(fx, "warnings", len(fx.logs.find("should be configured differently")), 1)
}

// fmt prints nothing of an endpoint's transport.
func TestEndpoint_String(t *testing.T) {
	t.Parallel()
	ep, err := core.New("orders", newTopicChecker(t), core.Config{Instance: "one"})
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
