package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// topicChecker is a transport that does not have every topic, and warns of its
// configuration.
type topicChecker struct {
	core.Transport
	core.Subscriber
	core.Provisioner
	transport.Undescribed
	warnings []string
}

var errTopic = errors.New("a topic has no exclamation mark")

func (*topicChecker) CheckTopic(topic string) error {
	if strings.Contains(topic, "!") {
		return errTopic
	}
	return nil
}

func (c *topicChecker) Warnings() (texts []string) {
	texts, c.warnings = c.warnings, nil
	return texts
}

func newTopicChecker(t *testing.T) *topicChecker {
	t.Helper()
	memory, err := inmemory.New(inmemory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close(context.Background()) })
	return &topicChecker{Transport: memory, Subscriber: memory, Provisioner: memory}
}

// HandleEvent, Publish and the endpoint after SendMiddleware check topics before anything is
// sent. A message type that is no topic is not checked.
func TestTopics_AreCheckedBeforeSending(t *testing.T) {
	t.Parallel()
	transport := newTopicChecker(t)
	ep, err := core.New("orders", transport, core.Config{
		SendMiddleware: []core.SendMiddleware{func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				if out.Topic == "renamed" {
					out.Topic = "renamed!"
				}
				return next(ctx, out)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, *core.Message, []byte) error { return nil }
	core.HandleEvent(ep, placedByteType, handler)
	core.Handle(ep, placeType, handler)
	if err := ep.Err(); err != nil {
		t.Errorf("HandleEvent of a topic and Handle of a command: %v", err)
	}
	core.HandleEvent(ep, placedEvent2, handler)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"HandleEvent":           {ep.Err(), errTopic},
		"Publish":               {ep.Publish(t.Context(), placedEvent2.Of(nil)), errTopic},
		"Publish, good":         {ep.Publish(t.Context(), placedByteType.Of(nil)), nil},
		"Publish, then renamed": {ep.Publish(t.Context(), renamedEvent.Of(nil)), errTopic},
		"Send of a command":     {ep.Send(t.Context(), "nowhere", placeType.Of(nil)), core.ErrQueueNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s = %v, want %v", name, c.err, c.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // or it would run for ever where there is no error
	if err := ep.Run(ended); !errors.Is(err, errTopic) || !strings.Contains(err.Error(), `HandleEvent "placed!"`) {
		t.Errorf("Run = %v, want the error of HandleEvent", err)
	}
}
