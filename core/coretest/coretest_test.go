package coretest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestMessage_IsAFirstAttemptByDefault(t *testing.T) {
	before := time.Now()
	in, body, _ := coretest.Message(placedType, OrderPlaced{ID: "42", Total: 7})
	if body != (OrderPlaced{ID: "42", Total: 7}) {
		t.Errorf("Body is %+v", body)
	}
	if in.ID != coretest.ID || in.Type != "orders.placed" || in.Attempt != 1 || in.DelayedRetries != 0 || in.LastError != "" {
		t.Errorf("message is %q %q, attempt %d, delayed retries %d, last error %q", in.ID, in.Type, in.Attempt, in.DelayedRetries, in.LastError)
	}
	if in.EnqueuedAt.Before(before) {
		t.Errorf("EnqueuedAt is %v, before the call at %v", in.EnqueuedAt, before)
	}
	for key, want := range map[string]string{
		headers.MessageID:      coretest.ID,
		headers.MessageTypes:   "orders.placed",
		headers.ContentType:    "application/json",
		headers.ReplyToAddress: coretest.ReplyTo,
		headers.Retries:        "",
	} {
		if got := in.Headers.Get(key); got != want {
			t.Errorf("header %s is %q, want %q", key, got, want)
		}
	}
	if got, want := string(in.RawBody()), `{"ID":"42","Total":7}`; got != want {
		t.Errorf("RawBody is %s, want %s", got, want)
	}
}

func TestMessage_Options(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	in, _, rec := coretest.Message(placedType, OrderPlaced{}, coretest.Options{
		ID: "m-1", Attempt: 3, DelayedRetries: 2, Deferrals: 4, LastError: "timeout", GroupKey: "customer 7", Properties: map[string]string{"label": "x"}, EnqueuedAt: at, ReplyTo: "web", Endpoint: "billing",
		Headers: map[string]string{"tenant": "acme", headers.ConversationID: "c-1"},
	})
	if in.ID != "m-1" || in.Attempt != 3 || in.DelayedRetries != 2 || in.Deferrals != 4 || in.LastError != "timeout" || !in.EnqueuedAt.Equal(at) {
		t.Errorf("message is %q, attempt %d, delayed retries %d, deferrals %d, last error %q, of %v", in.ID, in.Attempt, in.DelayedRetries, in.Deferrals, in.LastError, in.EnqueuedAt)
	}
	if got := in.GroupKey(); got != "customer 7" {
		t.Errorf("group key is %q", got)
	}
	if in.Properties()["label"] = "changed"; in.Properties()["label"] != "x" {
		t.Errorf("properties are %v", in.Properties())
	}
	if got := in.Headers.Get("tenant"); got != "acme" {
		t.Errorf("header tenant is %q", got)
	}
	if err := in.Reply(acceptedType.Of(nil)); err != nil {
		t.Fatal(err)
	}
	reply := rec.Sent()[0]
	if reply.Queue != "web" || reply.Intent != headers.IntentReply {
		t.Errorf("reply is %q to %q", reply.Intent, reply.Queue)
	}
	for key, want := range map[string]string{
		headers.ConversationID:      "c-1",
		headers.RelatedTo:           "m-1",
		headers.OriginatingEndpoint: "billing",
	} {
		if got := reply.Headers.Get(key); got != want {
			t.Errorf("reply's header %s is %q, want %q", key, got, want)
		}
	}
}

func TestMessage_BodyGoesThroughTheCodec(t *testing.T) {
	type body struct {
		Public string
		secret string
	}
	_, content, _ := coretest.Message(core.NewMessageType[body]("t"), body{Public: "a", secret: "b"})
	if content != (body{Public: "a"}) {
		t.Errorf("Body is %+v; the unexported field does not survive a queue", content)
	}
}

func TestMessage_RawBodyIsACopy(t *testing.T) {
	raw := []byte("raw")
	in, body, _ := coretest.Message(tType, raw)
	raw[0] = 'X'
	body[1] = 'X'
	if string(body) != "rXw" || string(in.RawBody()) != "raw" {
		t.Errorf("Body is %s and RawBody %s", body, in.RawBody())
	}
	if got := in.Headers.Get(headers.ContentType); got != "application/octet-stream" {
		t.Errorf("content type is %q", got)
	}
}

func TestSent_RecordsCollectedSends(t *testing.T) {
	in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{})
	if len(rec.Sent()) != 0 {
		t.Errorf("Sent is %v before anything was sent", rec.Sent())
	}
	steps := []error{
		in.Send("shipping", shipType.Of(Ship{OrderID: "1"}).With(core.SendOptions{Delay: time.Hour, Headers: map[string]string{"tenant": "acme"}})),
		in.Publish(shippedEvent.Of(Ship{OrderID: "2"}).With(core.SendOptions{TimeToBeReceived: time.Minute})),
		in.Reply(acceptedType.Of([]byte("ok"))),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	sent := rec.Sent()
	if len(sent) != 3 {
		t.Fatalf("Sent is %v", sent)
	}
	if s := sent[0]; s.Intent != headers.IntentSend || s.Queue != "shipping" || s.Type != "orders.ship" || s.Delay != time.Hour || s.Headers.Get("tenant") != "acme" {
		t.Errorf("the command is %+v", s)
	}
	if s := sent[1]; s.Intent != headers.IntentPublish || s.Queue != "" || s.Type != "orders.shipped" || s.Outgoing.TimeToBeReceived != time.Minute {
		t.Errorf("the event is %+v", s)
	}
	if s := sent[2]; s.Intent != headers.IntentReply || s.Queue != coretest.ReplyTo || string(coretest.Body[[]byte](s)) != "ok" {
		t.Errorf("the reply is %+v", s)
	}
	if got := coretest.Body[Ship](sent[0]); got.OrderID != "1" {
		t.Errorf("the command's body is %+v", got)
	}
	if len(rec.SentNow()) != 0 {
		t.Errorf("SentNow is %v", rec.SentNow())
	}
}

func TestSentNow_RecordsAcceptedSends(t *testing.T) {
	outage := errors.New("outage")
	in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{}, coretest.Options{
		SendNow: func(_ context.Context, r coretest.Record) error {
			if r.Queue == "down" {
				return outage
			}
			return nil
		},
	})
	if err := in.SendNow(t.Context(), "up", aType.Of("body")); err != nil {
		t.Error(err)
	}
	if err := in.SendNow(t.Context(), "down", bType.Of("body")); !errors.Is(err, outage) {
		t.Errorf("the error is %v, want %v", err, outage)
	}
	if err := in.PublishNow(t.Context(), cEvent.Of("body")); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(rec.SentNow()); got != `[Send a to up: "body" Publish c: "body"]` {
		t.Errorf("SentNow is %s", got)
	}
	if len(rec.Sent()) != 0 {
		t.Errorf("Sent is %v", rec.Sent())
	}
}

func TestOutgoing_IDsAreTheSameInEveryRun(t *testing.T) {
	ids := func() string {
		in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{})
		if err := in.Send("q", aEvent.MessageType.Of(nil)); err != nil {
			t.Fatal(err)
		}
		return rec.Sent()[0].Outgoing.ID
	}
	if first, second := ids(), ids(); first != second || first == "" {
		t.Errorf("ids are %q and %q", first, second)
	}
}

func TestTransport_MissingCapabilityIsRefused(t *testing.T) {
	able := *inmemory.LikeSQS().Capabilities
	able.MaxDelay = 15 * time.Minute
	in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{}, coretest.Options{Capabilities: &able})
	if err := in.Send("q", aEvent.MessageType.Of(nil).With(core.SendOptions{Delay: time.Hour})); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "15m0s") {
		t.Errorf("a delay of an hour: %v; want an unsupported one that names the limit", err)
	}
	if err := in.Send("q", aEvent.MessageType.Of(bytes.Repeat([]byte("x"), 1<<20))); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("a body of 1 MiB: %v; want ErrTooLarge", err)
	}
	in, _, _ = coretest.Message(tOrderPlacedType, OrderPlaced{}, coretest.Options{Capabilities: &core.Capabilities{}})
	if err := in.Publish(aEvent.Of(nil)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an event: %v; want ErrUnsupported", err)
	}
	if len(rec.Sent()) != 0 {
		t.Errorf("Sent is %v, but all was refused", rec.Sent())
	}
}

func TestHandler_MistakesAreErrors(t *testing.T) {
	in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{}, coretest.Options{NoReplyTo: true})
	if err := in.Reply(aEvent.MessageType.Of(nil)); !errors.Is(err, core.ErrNoReplyAddress) {
		t.Errorf("Reply: %v; want ErrNoReplyAddress", err)
	}
	for name, err := range map[string]error{
		"no destination":     in.Send("", aEvent.MessageType.Of(nil)),
		"no type":            in.Send("q", messageType.Of(nil)),
		"cannot be encoded":  in.Send("q", aFuncType.Of(func() {})),
		"negative delay":     in.Send("q", aEvent.MessageType.Of(nil).With(core.SendOptions{Delay: -1})),
		"message id by hand": in.Send("q", aEvent.MessageType.Of(nil).With(core.SendOptions{Headers: map[string]string{headers.MessageID: "1"}})),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), coretest.ID) {
			t.Errorf("%s: the error does not name the message: %v", name, err)
		}
	}
	if len(rec.Sent()) != 0 {
		t.Errorf("Sent is %v", rec.Sent())
	}
}

// upper writes and reads JSON in capitals.
type upper struct{}

func (upper) ContentType() string          { return "text/x-upper" }
func (upper) Encode(v any) ([]byte, error) { b, err := json.Marshal(v); return bytes.ToUpper(b), err }
func (upper) Decode(_ string, body []byte, v any) error {
	return json.Unmarshal(bytes.ToUpper(body), v)
}

// nameless has no content type.
type nameless struct{ core.Codec }

func (nameless) ContentType() string { return "" }

func TestOptions_CodecIsUsed(t *testing.T) {
	in, body, rec := coretest.Message(tStringType, "a", coretest.Options{Codec: upper{}})
	if body != "A" || in.Headers.Get(headers.ContentType) != "text/x-upper" {
		t.Errorf("Body is %q of %q", body, in.Headers.Get(headers.ContentType))
	}
	if err := in.Send("q", bType.Of("b")); err != nil {
		t.Fatal(err)
	}
	if got := coretest.Body[string](rec.Sent()[0]); got != "B" {
		t.Errorf("sent body is %q", got)
	}
}

func TestMessage_MistakesOfTheTestPanic(t *testing.T) {
	in, _, rec := coretest.Message(tOrderPlacedType, OrderPlaced{})
	if err := errors.Join(in.Send("q", aType.Of("text")), in.Send("q", rawType.Of([]byte("text")))); err != nil {
		t.Fatal(err)
	}
	sent := rec.Sent()
	for _, c := range []struct {
		name, want string
		do         func()
	}{
		{"no type", `"" cannot be a message type`, func() { coretest.Message(messageIntType, 1) }},
		{"negative attempt", "Attempt is -1", func() { coretest.Message(tIntType, 1, coretest.Options{Attempt: -1}) }},
		{"two options", "merge them into one", func() { coretest.Message(tIntType, 1, coretest.Options{}, coretest.Options{}) }},
		{"contradicting reply address", "remove one of the two", func() { coretest.Message(tIntType, 1, coretest.Options{ReplyTo: "q", NoReplyTo: true}) }},
		{"codec without a content type", "content type", func() { coretest.Message(tIntType, 1, coretest.Options{Codec: nameless{core.JSON}}) }},
		{"body that cannot be encoded", "encode a func()", func() { coretest.Message(tFuncType, func() {}) }},
		{"body that cannot be decoded", "cannot be decoded from its own encoding", func() { _, _, _ = coretest.Message(tErrorType, errors.New("an interface")) }},
		{"wrong body expected", `the body of "a" cannot be decoded into a coretest_test.Ship`, func() { coretest.Body[Ship](sent[0]) }},
		{"raw body expected to be decodable", "use Body[[]byte]", func() { coretest.Body[Ship](sent[1]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "coretest: ") || !strings.Contains(got, c.want) {
					t.Errorf("panic is %s; want one that says %q", got, c.want)
				}
			}()
			c.do()
		})
	}
}
