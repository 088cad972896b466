package content

import (
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

func TestNew_ReadsTheMessage(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := New(&amqp10.Message{
		Header:      &amqp10.MessageHeader{TTL: time.Minute},
		Properties:  &amqp10.MessageProperties{MessageID: uint64(7), GroupID: new("")},
		Annotations: amqp10.Annotations{AnnotationScheduledEnqueueTime: due, AnnotationPartitionKey: "p"},
	}, 100)
	if c.ID != "7" || !c.HasID || c.Session != "" || !c.InSession || c.Partition != "p" || c.TTL != time.Minute || c.Scheduled != clock.At(due) || c.Size != 100 {
		t.Errorf("%+v", c)
	}
	if c := New(&amqp10.Message{}, 1); c.HasID || c.InSession || c.TTL != 0 || c.Scheduled != 0 {
		t.Errorf("an empty message: %+v", c)
	}
}

func TestNew_LongTimeToLive(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	for name, tt := range map[string]struct {
		header, want time.Duration
	}{
		"without header": {0, year},
		"cut off":        {MaxHeaderTTL, year},
		"shorter header": {time.Hour, time.Hour},
	} {
		m := &amqp10.Message{Properties: &amqp10.MessageProperties{CreationTime: &created, AbsoluteExpiryTime: new(created.Add(year))}}
		if tt.header != 0 {
			m.Header = &amqp10.MessageHeader{TTL: tt.header}
		}
		if got := New(m, 1).TTL; got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestWithReason_ChangesACopy(t *testing.T) {
	t.Parallel()
	c := New(&amqp10.Message{ApplicationProperties: map[string]any{"a": "b"}}, 100)
	c.Encoded = []byte("as it was sent")
	changed := c.WithReason("r", "")
	p := changed.AMQP.ApplicationProperties
	if len(p) != 2 || p["a"] != any("b") || p["DeadLetterReason"] != any("r") || changed.Encoded != nil {
		t.Errorf("%+v with %v", changed, p)
	}
	if len(c.AMQP.ApplicationProperties) != 1 || c.WithReason("", "") != c {
		t.Error("the original has changed")
	}
	if got := string(c.Encode()); got != "as it was sent" {
		t.Errorf("it is encoded as %q", got)
	}
	if read, err := amqp10.DecodeMessage(changed.Encode()); err != nil || read.ApplicationProperties["DeadLetterReason"] != any("r") {
		t.Errorf("the copy is encoded as %+v, %v", read, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	properties := func(n, size int) *amqp10.Message {
		m := &amqp10.Message{ApplicationProperties: map[string]any{}}
		for i := range n {
			m.ApplicationProperties[string(rune('a'+i))] = strings.Repeat("x", size)
		}
		return m
	}
	id := func(n int) *amqp10.Message {
		return &amqp10.Message{Properties: &amqp10.MessageProperties{MessageID: strings.Repeat("é", n)}}
	}
	for name, tt := range map[string]struct {
		message *amqp10.Message
		want    amqp10.Symbol // "" if it is accepted
	}{
		"no properties":        {&amqp10.Message{}, ""},
		"a large property":     {properties(1, 32<<10-1), ""},
		"a property too large": {properties(1, 32<<10), condition.InternalError},
		"together too large":   {properties(3, 30<<10), condition.MessageSize},
		"a long id":            {id(128), ""},
		"an id too long":       {id(129), condition.ArgumentRange},
	} {
		got := amqp10.Symbol("")
		if err := Check(New(tt.message, 1)); err != nil {
			got = condition.Of(err)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
