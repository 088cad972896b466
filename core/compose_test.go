package core

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

func composerOf(t *testing.T, caps Capabilities) *composer {
	t.Helper()
	if caps.Transactions == nil {
		caps.Transactions = []TransactionMode{TransactionReceiveOnly}
	}
	ep, err := New("billing", &namedTransport{caps: caps}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := *ep.sender.composer
	c.machine, c.replyTo = "host-7", "billing@here"
	return &c
}

func allCapabilities() Capabilities {
	return Capabilities{Abilities: Abilities{DelayedDelivery: true, PublishSubscribe: true, TimeToBeReceived: true}}
}

func fixedID() string { return "new-id" }

func TestCompose_Headers(t *testing.T) {
	handled := causation{id: "m1", conversationID: "conversation", correlationID: "correlation"}
	standard := map[string]string{
		headers.MessageID: "new-id", headers.MessageTypes: "order", headers.ContentType: "application/json", headers.MessageIntent: "Send",
		headers.ConversationID: "new-id", headers.CorrelationID: "new-id", headers.ReplyToAddress: "billing@here",
		headers.OriginatingEndpoint: "billing", headers.OriginatingMachine: "host-7", headers.TimeSent: "2000-01-01 00:00:00:000000 Z",
	}
	for _, test := range []struct {
		name   string
		intent string
		opts   SendOptions
		from   causation
		want   map[string]string // beside the standard ones; "-" is none
	}{
		{"a message that begins a conversation", headers.IntentSend, SendOptions{}, causation{}, nil},
		{"empty options", headers.IntentSend, SendOptions{}, causation{}, nil},
		{"an event", headers.IntentPublish, SendOptions{}, causation{}, map[string]string{headers.MessageIntent: "Publish"}},
		{"one sent while handling another", headers.IntentSend, SendOptions{}, handled, map[string]string{
			headers.ConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"a reply", headers.IntentReply, SendOptions{}, handled, map[string]string{
			headers.MessageIntent: "Reply", headers.ConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"one sent while handling a foreign message", headers.IntentSend, SendOptions{}, causation{id: "m1"}, map[string]string{
			headers.ConversationID: "m1", headers.CorrelationID: "m1", headers.RelatedTo: "m1",
		}},
		{"an id", headers.IntentSend, SendOptions{ID: "own"}, causation{}, map[string]string{
			headers.MessageID: "own", headers.ConversationID: "own", headers.CorrelationID: "own",
		}},
		{"a correlation id", headers.IntentSend, SendOptions{CorrelationID: "own"}, handled, map[string]string{
			headers.ConversationID: "conversation", headers.CorrelationID: "own", headers.RelatedTo: "m1",
		}},
		{"a conversation id", headers.IntentSend, SendOptions{ConversationID: "own"}, handled, map[string]string{
			headers.ConversationID: "own", headers.PreviousConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"the same conversation id", headers.IntentSend, SendOptions{ConversationID: "conversation"}, handled, map[string]string{
			headers.ConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"a new conversation", headers.IntentSend, SendOptions{NewConversation: true}, handled, map[string]string{
			headers.ConversationID: "new-id", headers.PreviousConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"a new conversation with an id", headers.IntentSend, SendOptions{NewConversation: true, ConversationID: "own"}, handled, map[string]string{
			headers.ConversationID: "own", headers.PreviousConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"a conversation id among the headers", headers.IntentSend, SendOptions{Headers: map[string]string{headers.ConversationID: "own"}}, handled, map[string]string{
			headers.ConversationID: "own", headers.PreviousConversationID: "conversation", headers.CorrelationID: "correlation", headers.RelatedTo: "m1",
		}},
		{"a new conversation where there was none", headers.IntentSend, SendOptions{NewConversation: true}, causation{}, nil},
		{"a new conversation after a foreign message", headers.IntentSend, SendOptions{NewConversation: true}, causation{id: "m1"}, map[string]string{
			headers.ConversationID: "new-id", headers.CorrelationID: "m1", headers.RelatedTo: "m1",
		}},
		{"a time to be received", headers.IntentSend, SendOptions{TimeToBeReceived: 26*time.Hour + 90*time.Second + time.Millisecond}, causation{}, map[string]string{
			headers.TimeToBeReceived: "1.02:01:30.0010000",
		}},
		{"a due time", headers.IntentSend, SendOptions{DeliverAt: time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)}, causation{}, map[string]string{
			headers.DeliverAt: "2000-01-02 00:00:00:000000 Z",
		}},
		{"a due time in the past", headers.IntentSend, SendOptions{DeliverAt: time.Date(1999, 1, 2, 0, 0, 0, 0, time.UTC)}, causation{}, nil},
		{"a reply address", headers.IntentSend, SendOptions{ReplyTo: "elsewhere"}, causation{}, map[string]string{headers.ReplyToAddress: "elsewhere"}},
		{"a reply address as the transport writes it", headers.IntentPublish, SendOptions{ReplyTo: "ElseWhere"}, causation{}, map[string]string{
			headers.MessageIntent: "Publish", headers.ReplyToAddress: "elsewhere",
		}},
		{"further headers", headers.IntentSend, SendOptions{Headers: map[string]string{"b": "2", "a": "1", "empty": ""}}, causation{}, map[string]string{"b": "2", "a": "1", "empty": ""}},
		{"new standard headers", headers.IntentSend, SendOptions{Headers: map[string]string{headers.RelatedTo: "r", headers.TimeSent: "then"}}, causation{}, map[string]string{
			headers.RelatedTo: "r", headers.TimeSent: "then",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins in 2000
				queue := "shipping"
				if test.intent == headers.IntentPublish {
					queue = ""
				}
				out, err := composerOf(t, allCapabilities()).compose(test.intent, queue, draft("order", map[string]int{"n": 1}, test.opts), test.from, fixedID)
				if err != nil {
					t.Fatal(err)
				}
				want := maps.Clone(standard)
				maps.Copy(want, test.want)
				if got := out.Headers.Map(); !maps.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				if out.ID != want[headers.MessageID] || string(out.Body) != `{"n":1}` || out.Queue != queue || (out.Topic == "order") != (queue == "") {
					t.Errorf("%+v", out)
				}
				if out.Headers.Len() != len(want) {
					t.Error("a header comes twice")
				}
				kept := out.Headers
				out.Headers.Set("a", "changed")
				if kept.Get("a") == "changed" {
					t.Error("copies share earlier headers")
				}
			})
		})
	}
	t.Run("a send-only endpoint has no address for replies", func(t *testing.T) {
		c := composerOf(t, allCapabilities())
		c.replyTo = ""
		out, err := c.compose(headers.IntentSend, "shipping", draft("order", 1, SendOptions{}), causation{}, fixedID)
		if _, ok := out.Headers.Lookup(headers.ReplyToAddress); ok || err != nil {
			t.Errorf("%v, %v", out.Headers.Map(), err)
		}
	})
}

func TestCompose_Options(t *testing.T) {
	properties := map[string]string{"p": "1"}
	extra := map[string]string{"h": "1"}
	out, err := composerOf(t, allCapabilities()).compose(headers.IntentSend, "shipping", draft("order", []byte("raw"), SendOptions{
		Delay: time.Minute, TimeToBeReceived: time.Hour, GroupKey: "g", Properties: properties, Headers: extra, ContentType: "text/plain",
	}), causation{}, fixedID)
	if err != nil {
		t.Fatal(err)
	}
	properties["p"], extra["h"] = "changed", "changed"
	if out.Delay != time.Minute || out.TimeToBeReceived != time.Hour || out.GroupKey != "g" {
		t.Errorf("%+v", out)
	}
	if out.Properties["p"] != "1" || out.Headers.Get("h") != "1" {
		t.Error("the caller's maps are not copied")
	}
	if got := out.Headers.Get(headers.ContentType); got != "text/plain" {
		t.Errorf("content type %q", got)
	}
	t.Run("further headers come in the order of their keys", func(t *testing.T) {
		out, err := composerOf(t, allCapabilities()).compose(headers.IntentSend, "shipping", draft("order", 1, SendOptions{
			Headers: map[string]string{"d": "", "b": "", "e": "", "a": "", "c": "", headers.TimeSent: "x"},
		}), causation{}, fixedID)
		keys := keysOf(out.Headers)
		if err != nil || !slices.Equal(keys[len(keys)-5:], []string{"a", "b", "c", "d", "e"}) {
			t.Errorf("%v, %v", keys, err)
		}
	})
}

// draft returns a message that is to be sent.
func draft(messageType string, body any, o SendOptions) *Draft {
	return &Draft{messageType: messageType, body: body, options: &o}
}

func TestCompose_Refuses(t *testing.T) {
	short := allCapabilities()
	short.MaxDelay = time.Minute
	for _, test := range []struct {
		name        string
		caps        Capabilities
		intent      string
		queue       string
		messageType string
		body        any
		opts        SendOptions
		says        string
		unsupported bool
	}{
		{name: "no message type", messageType: "-", says: "the message type has no name"},
		{name: "a message type with ';'", messageType: "a;b", says: `"a;b" cannot be a message type`},
		{name: "a message type with ','", messageType: "a,b", says: "cannot be a message type"},
		{name: "a message type that is not UTF-8", messageType: "\xff", says: "cannot be a message type"},
		{name: "no queue", queue: "-", says: "no destination queue"},
		{name: "a nil pointer", body: (*string)(nil), says: "the body is nil"},
		{name: "a nil map", body: map[string]int(nil), says: "the body is nil"},
		{name: "a nil slice", body: []string(nil), says: "the body is nil"},
		{name: "the header of the id", opts: SendOptions{Headers: map[string]string{headers.MessageID: "x"}}, says: "use SendOptions.ID"},
		{name: "the header of the type", opts: SendOptions{Headers: map[string]string{headers.MessageTypes: "other"}}, says: `header NServiceBus.EnclosedMessageTypes ("other") cannot be set by SendOptions.Headers; send a draft of that message type`},
		{name: "the header of the type of an event", intent: headers.IntentPublish, queue: "-", opts: SendOptions{Headers: map[string]string{headers.MessageTypes: "other"}}, says: "send a draft of that message type"},
		{name: "the header of the type of a reply", intent: headers.IntentReply, opts: SendOptions{Headers: map[string]string{headers.MessageTypes: ""}}, says: "send a draft of that message type"},
		{name: "the header of the intent", opts: SendOptions{Headers: map[string]string{headers.MessageIntent: headers.IntentPublish}}, says: "call Send, Publish or Reply"},
		{name: "the header of the content type", opts: SendOptions{Headers: map[string]string{headers.ContentType: "text/xml"}}, says: "use SendOptions.ContentType"},
		{name: "the header of the due time", opts: SendOptions{Headers: map[string]string{headers.DeliverAt: "x"}}, says: "use SendOptions.Delay or SendOptions.DeliverAt"},
		{name: "the header of the time to be received", opts: SendOptions{Headers: map[string]string{headers.TimeToBeReceived: "00:00:01"}}, says: "use SendOptions.TimeToBeReceived"},
		{name: "a reply address that is none", opts: SendOptions{ReplyTo: "a#b"}, says: `SendOptions.ReplyTo "a#b" cannot be a queue's name: '#' is not allowed`},
		{name: "a content type of a body that a codec encodes", opts: SendOptions{ContentType: "text/plain"}, says: `SendOptions.ContentType is "text/plain"`},
		{name: "a body that cannot be encoded", body: make(chan int), says: `encode "order" from chan int`},
		{name: "a negative delay", opts: SendOptions{Delay: -1}, says: "delay -1ns is negative"},
		{name: "a negative time to be received", opts: SendOptions{TimeToBeReceived: -1}, says: "time to be received -1ns is negative"},
		{name: "a delay without delayed delivery", caps: Capabilities{Abilities: Abilities{TimeToBeReceived: true}}, opts: SendOptions{Delay: 1}, says: "DelayedDelivery", unsupported: true},
		{name: "a delay that is too long", caps: short, opts: SendOptions{Delay: time.Minute + 1}, says: "MaxDelay 1m0s", unsupported: true},
		{name: "a due time and a delay", opts: SendOptions{Delay: 1, DeliverAt: time.Unix(0, 0)}, says: "both Delay (1ns) and DeliverAt (1970"},
		{name: "a due time without delayed delivery", caps: Capabilities{Abilities: Abilities{TimeToBeReceived: true}}, opts: SendOptions{DeliverAt: time.Unix(0, 0)}, says: "DelayedDelivery", unsupported: true},
		{name: "a due time that is too late", caps: short, opts: SendOptions{DeliverAt: time.Now().Add(time.Hour)}, says: "MaxDelay 1m0s", unsupported: true},
		{name: "a time to be received that cannot be", caps: Capabilities{Abilities: Abilities{DelayedDelivery: true}}, opts: SendOptions{TimeToBeReceived: 1}, says: "TimeToBeReceived", unsupported: true},
		{name: "an event that cannot be published", caps: Capabilities{Abilities: Abilities{DelayedDelivery: true}}, intent: headers.IntentPublish, queue: "-", says: "PublishSubscribe", unsupported: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.caps.Transactions == nil && !test.unsupported {
				test.caps = allCapabilities()
			}
			pick := func(value, standard string) string {
				if value == "" {
					return standard
				}
				return strings.TrimPrefix(value, "-")
			}
			if test.body == nil {
				test.body = 1
			}
			_, err := composerOf(t, test.caps).compose(pick(test.intent, headers.IntentSend), pick(test.queue, "shipping"), draft(pick(test.messageType, "order"), test.body, test.opts), causation{}, fixedID)
			if err == nil || !strings.Contains(err.Error(), test.says) || errors.Is(err, errors.ErrUnsupported) != test.unsupported {
				t.Errorf("%v, want it to say %q", err, test.says)
			}
		})
	}
	t.Run("options twice, the first of which would be lost", func(t *testing.T) {
		d := NewMessageType[int]("order").Of(1).With(SendOptions{ID: "7"}).With(SendOptions{Delay: 1})
		if _, err := composerOf(t, allCapabilities()).compose(headers.IntentSend, "shipping", &d, causation{}, fixedID); !errors.Is(err, errTwoWith) {
			t.Error(err)
		}
	})
	t.Run("but not the largest possible value", func(t *testing.T) {
		if _, err := composerOf(t, short).compose(headers.IntentSend, "shipping", draft("order", 1, SendOptions{Delay: time.Minute, ContentType: "application/json"}), causation{}, fixedID); err != nil {
			t.Error(err)
		}
	})
}

// Rule R24.
func TestFailedCopy_KeepsRoomForFailureHeaders(t *testing.T) {
	compose := func(limit, body int) (Outgoing, error) {
		caps := allCapabilities()
		caps.MaxMessageBytes = limit
		return composerOf(t, caps).compose(headers.IntentSend, "shipping", draft("order", make([]byte, body), SendOptions{}), causation{}, fixedID)
	}
	out, err := compose(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	headers := out.Headers.Bytes()
	for _, test := range []struct {
		name         string
		limit, space int
	}{
		{"8 KiB of a large message", 256 << 10, 248 << 10},
		{"8 KiB of a small one", 20 << 10, 12 << 10},
		{"half of a very small one", 10 << 10, 5 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := compose(test.limit, test.space-headers); err != nil {
				t.Errorf("a message of %d bytes: %v", test.space, err)
			}
			_, err := compose(test.limit, test.space-headers+1)
			large, ok := errors.AsType[*TooLargeError](err)
			if !ok || !errors.Is(err, ErrTooLarge) || large.Max != test.space || large.Size != test.space+1 || large.Limit != "MaxMessageBytes" {
				t.Errorf("one of a byte more: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "bytes are kept free for failure headers") {
				t.Errorf("%v", err)
			}
		})
	}
}
