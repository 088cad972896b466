package message

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// copyOf returns the copy of a received message that the engine sends, with changed headers.
func copyOf(t *testing.T, f *Format, d *amqp.Delivery, change func(h *core.Headers)) (amqp.Publishing, error) {
	t.Helper()
	var in core.Incoming
	f.Incoming(d, "orders", &in)
	h := in.Headers
	if change != nil {
		change(&h)
	}
	return f.Publishing(&core.Outgoing{ID: in.ID, Queue: "error", Headers: h, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: core.ReasonMoveToError}, "c2")
}

func TestCopy_PropertyFollowsAHeaderThatChanged(t *testing.T) {
	t.Parallel()
	all := amqp.Delivery{Type: "A", ContentType: "application/json", CorrelationId: "c", ReplyTo: "r"}
	typed := amqp.Table{headers.MessageTypes: "A, Assembly; B"}
	for name, c := range map[string]struct {
		sent   amqp.Delivery
		config Config
		change func(h *core.Headers)
		want   amqp.Publishing
	}{
		"nothing is set":     {sent: amqp.Delivery{}, want: amqp.Publishing{}},
		"nothing is changed": {sent: all, want: amqp.Publishing{Type: "A", ContentType: "application/json", CorrelationId: "c", ReplyTo: "r"}},
		"all are changed": {
			sent: all,
			change: func(h *core.Headers) {
				for key, value := range map[string]string{headers.MessageTypes: "B, C", headers.ContentType: "b", headers.CorrelationID: "c2", headers.ReplyToAddress: "r2"} {
					h.Set(key, value)
				}
			},
			want: amqp.Publishing{Type: "B", ContentType: "b", CorrelationId: "c2", ReplyTo: "r2"},
		},
		"all are left out": {
			sent:   all,
			change: func(h *core.Headers) { *h = core.Headers{} },
		},
		"the header differs from the property": {
			sent: amqp.Delivery{Type: "its own", Headers: typed},
			want: amqp.Publishing{Type: "its own"},
		},
		"a header without a property": {
			sent: amqp.Delivery{Headers: typed},
			want: amqp.Publishing{},
		},
		"the application knows the type": {
			sent:   amqp.Delivery{},
			config: Config{MessageType: func(string, *amqp.Delivery) string { return "known" }},
		},
		"no address of this connection": {sent: amqp.Delivery{ReplyTo: names.DirectReplies}},
		"no lifetime, and stored": {
			sent: amqp.Delivery{Expiration: "1000", DeliveryMode: amqp.Transient},
			want: amqp.Publishing{DeliveryMode: amqp.Persistent},
		},
		"the others": {
			sent: amqp.Delivery{ContentEncoding: "gzip", AppId: "shop", Priority: 7, Timestamp: time.Unix(1, 0), UserId: "me"},
			want: amqp.Publishing{ContentEncoding: "gzip", AppId: "shop", Priority: 7, Timestamp: time.Unix(1, 0), UserId: "me"},
		},
		"of another user": {sent: amqp.Delivery{UserId: "you"}},
	} {
		f := NewFormat(c.config)
		f.SetUser("me")
		sent := c.sent
		got, err := copyOf(t, f, &sent, c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.Headers, got.MessageId, c.want.DeliveryMode = nil, "", amqp.Persistent
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCopy_HeaderKeepsItsTypeWhileItsTextIsTheSame(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	sent := amqp.Delivery{Headers: amqp.Table{
		"int": int64(7), "nil": nil, "table": amqp.Table{"a": true}, "changed": int64(7), "removed": true, "CC": []any{"a", "b"}, "Reprise.Header.CC": int32(1),
		"not UTF-8": []any{"\xff"}, "x-death": []any{}, "text": "t",
	}}
	for round := range 3 { // from the second on, it is a message of ours
		p, err := copyOf(t, f, &sent, func(h *core.Headers) {
			h.Set("changed", "8")
			h.Del("removed")
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for key, value := range p.Headers {
			got[key] = fmt.Sprintf("%T %v", value, value)
		}
		delete(got, "Reprise.CopyID")
		delete(got, "Reprise.MessageID")
		want := map[string]string{
			"int": "int64 7", "nil": "<nil> <nil>", "table": "amqp091.Table map[a:true]", "changed": "string 8", "Reprise.Header.CC": "[]interface {} [a b]",
			"Reprise.Header.Reprise.Header.CC": "int32 1", "not UTF-8": "string \uFFFD", "text": "string t",
		}
		if !maps.Equal(got, want) {
			t.Errorf("copy %d has the headers %v, want %v", round+1, got, want)
		}
		sent = *delivered(&p, "")
		sent.Headers["Reprise.CopyID"] = "c2@orders"
	}
}

// A list takes more bytes than its text.
func TestCopy_SizeIsThatOfTheTypes(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	table := amqp.Table{}
	for i := range 4 {
		list := make([]any, 8000)
		for i := range list {
			list[i] = ""
		}
		table[fmt.Sprint(i)] = list
	}
	if _, err := copyOf(t, f, &amqp.Delivery{Headers: table}, nil); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("160 KB in lists of empty texts: %v", err)
	}
	delete(table, "3")
	if _, err := copyOf(t, f, &amqp.Delivery{Headers: table}, nil); err != nil {
		t.Errorf("120 KB in lists of empty texts: %v", err)
	}
}
