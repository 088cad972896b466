package message_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
)

// copyOf returns the copy of a received message that the engine sends, with changed headers.
func copyOf(t *testing.T, m *azservicebus.ReceivedMessage, sessions bool, change func(out *core.Outgoing)) *message.Outgoing {
	t.Helper()
	codec := &message.Codec{Clock: new(transport.ServiceClock)}
	r := read(codec, "orders", m)
	out := core.Outgoing{ID: r.ID, Queue: "error", Headers: r.Headers, Body: r.Body, GroupKey: r.GroupKey, Native: r.Native, Reason: core.ReasonMoveToError}
	if change != nil {
		change(&out)
	}
	copied, err := codec.Encode(&out, sessions)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// withProperties is a message with the properties that have a header too.
func withProperties(application map[string]any) *azservicebus.ReceivedMessage {
	return foreign(func(m *azservicebus.ReceivedMessage) {
		m.CorrelationID, m.ReplyTo, m.ContentType = new("c"), new("r"), new("t")
		p := m.RawAMQPMessage.Properties
		p.CorrelationID, p.ReplyTo, p.ContentType = "c", m.ReplyTo, m.ContentType
		m.ApplicationProperties, m.RawAMQPMessage.ApplicationProperties = application, application
	})
}

func TestCopy_PropertyFollowsAHeaderThatChanged(t *testing.T) {
	t.Parallel()
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	for name, c := range map[string]struct {
		received *azservicebus.ReceivedMessage
		change   func(out *core.Outgoing)
		want     string
	}{
		"nothing is changed": {withProperties(nil), nil, "c r t"},
		"all are changed": {withProperties(nil), func(out *core.Outgoing) {
			out.Headers.Set(headers.CorrelationID, "c2")
			out.Headers.Set(headers.ReplyToAddress, "r2")
			out.Headers.Set(headers.ContentType, "t2")
		}, "c2 r2 t2"},
		"all are left out":                       {withProperties(nil), func(out *core.Outgoing) { out.Headers = core.Headers{} }, "<nil> none none"},
		"no header was made of them":             {withProperties(map[string]any{headers.MessageID: "m"}), nil, "c r t"},
		"the header differs from the property":   {withProperties(map[string]any{headers.CorrelationID: "other", headers.ReplyToAddress: "other", headers.ContentType: "other"}), nil, "c r t"},
		"a header without a property":            {foreign(func(*azservicebus.ReceivedMessage) {}), func(out *core.Outgoing) { out.Headers.Set(headers.ReplyToAddress, "r") }, "<nil> none none"},
		"an id that is no text":                  {foreign(func(m *azservicebus.ReceivedMessage) { m.RawAMQPMessage.Properties.CorrelationID = uint64(7) }), nil, "7 none none"},
		"a message that is a copy of no message": {withProperties(nil), func(out *core.Outgoing) { out.Native = "of another adapter" }, "c r t"},
	} {
		m := copyOf(t, c.received, false, c.change)
		if got := fmt.Sprint(m.Properties.CorrelationID, " ", text(m.Properties.ReplyTo), " ", text(m.Properties.ContentType)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The service refuses a message whose partition key differs from its session, and its own
// annotations and lifetime belong to the delivery.
func TestCopy_HasThePartitionKeyOfItsSession(t *testing.T) {
	t.Parallel()
	received := foreign(func(m *azservicebus.ReceivedMessage) {
		expires := time.Now().Add(time.Hour)
		m.RawAMQPMessage.MessageAnnotations = map[any]any{"x-opt-partition-key": "p", "x-opt-enqueued-time": expires, "x-opt-scheduled-enqueue-time": expires}
		m.RawAMQPMessage.Header.TTL, m.RawAMQPMessage.Properties.AbsoluteExpiryTime = time.Hour, &expires
	})
	for name, c := range map[string]struct {
		sessions bool
		group    string
		want     string
	}{
		"no session":      {false, "", "map[x-opt-partition-key:p]"},
		"the same":        {true, "p", "map[x-opt-partition-key:p]"},
		"another session": {true, "g", "map[]"},
		"its own session": {true, "", "map[]"},
	} {
		m := copyOf(t, received, c.sessions, func(out *core.Outgoing) { out.GroupKey = c.group })
		if got := fmt.Sprint(m.MessageAnnotations); got != c.want {
			t.Errorf("%s: the annotations are %s, want %s", name, got, c.want)
		}
		if m.Header.TTL != 0 || m.Properties.AbsoluteExpiryTime != nil {
			t.Errorf("%s: the copy expires after %v, at %v", name, m.Header.TTL, m.Properties.AbsoluteExpiryTime)
		}
	}
}

func TestCopy_PropertyKeepsItsTypeWhileItsTextIsTheSame(t *testing.T) {
	t.Parallel()
	m := copyOf(t, withProperties(map[string]any{"int": int64(7), "changed": int64(7), "removed": true, "nil": nil, "Reprise.Released": int64(3)}), false, func(out *core.Outgoing) {
		out.Headers.Set("changed", "8")
		out.Headers.Del("removed")
	})
	got := fmt.Sprintf("%T %T %T %v", m.ApplicationProperties["int"], m.ApplicationProperties["changed"], m.ApplicationProperties["nil"], m.ApplicationProperties["changed"])
	_, removed := m.ApplicationProperties["removed"]
	_, own := m.ApplicationProperties["Reprise.Released"]
	if got != "int64 string <nil> 8" || removed || own {
		t.Errorf("%s; removed: %v, own: %v", got, removed, own)
	}
}
