package cloudevents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/middleware/cloudevents"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const (
	traceParent    = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	structuredType = "application/cloudevents+json"
)

func newEvents(t *testing.T, c cloudevents.Config) *cloudevents.Events {
	t.Helper()
	c.Source = "/shop/orders"
	events, err := cloudevents.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// configuration is that of an endpoint with events, without retries.
func configuration(events *cloudevents.Events) core.Config {
	return core.Config{
		MessageType: events.MessageType, MessageID: events.MessageID,
		Middleware: []core.Middleware{events}, SendMiddleware: []core.SendMiddleware{events.Send},
		Logger:         slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	}
}

// fixture is an endpoint "orders" on an in-memory transport, in a bubble.
type fixture struct {
	*testing.T
	transport *inmemory.Transport
	ep        *core.Endpoint
}

// bubble runs an endpoint while body runs.
func bubble(t *testing.T, c core.Config, register func(ep *core.Endpoint), body func(fx *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"answers"}}); err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("orders", transport, c)
		if err != nil {
			t.Fatal(err)
		}
		register(ep)
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(t.Context()) }()
		<-ep.Ready()
		body(&fixture{t, transport, ep})
		if err := errors.Join(ep.Shutdown(t.Context()), <-ended, transport.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// enqueue sends a message to the endpoint, as another program does.
func (fx *fixture) enqueue(h map[string]string, body string) {
	fx.Helper()
	out := core.Outgoing{ID: "foreign", Queue: "orders", Headers: core.HeadersFromMap(h), Body: []byte(body)}
	if err := fx.transport.Send(fx.Context(), out); err != nil {
		fx.Fatal(err)
	}
	synctest.Wait()
}

// only returns the only message in a queue.
func (fx *fixture) only(queue string) core.Incoming {
	fx.Helper()
	page, err := fx.transport.Browse(fx.Context(), queues.Request{Queue: queue, Limit: 2})
	if err != nil || len(page.Messages) != 1 {
		fx.Fatalf("%d messages are in %q, %v; want 1", len(page.Messages), queue, err)
	}
	return page.Messages[0].Incoming
}

// received has the parts of an event that handlers and observers get.
type received struct {
	Type, ID, ContentType, Body, Time, TraceParent, Observed string
	Attributes                                               map[string]string
}

func readGolden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var attributes = []string{"specversion", "id", "source", "type", "subject", "datacontenttype", "comexampleextension1", "comexampleothervalue", "unsetextension"}

// receive returns the event that a message is for its handler.
func receive(t *testing.T, h map[string]string, body string) (got *received) {
	t.Helper()
	c := configuration(newEvents(t, cloudevents.Config{}))
	observed := ""
	c.Observers = []core.Observer{{HandleStart: func(ctx context.Context, e core.Handling) context.Context {
		observed = e.Message.Type
		return ctx
	}}}
	bubble(t, c, func(ep *core.Endpoint) {
		core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
			got = &received{
				Type: m.Type, ID: m.ID, ContentType: m.Headers.Get(headers.ContentType), Body: string(m.RawBody()), Observed: observed,
				Time: m.Headers.Get(headers.TimeSent), TraceParent: m.Headers.Get("traceparent"), Attributes: map[string]string{},
			}
			for _, name := range attributes {
				if value := cloudevents.Attribute(m, name); value != "" {
					got.Attributes[name] = value
				}
			}
			return nil
		})
	}, func(fx *fixture) { fx.enqueue(h, body) })
	if got == nil {
		t.Fatal("no handler was called")
	}
	return got
}

func TestReceive_GoldenEvents(t *testing.T) {
	example := func(id, contentType string) map[string]string {
		a := map[string]string{
			"specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "id": id,
			"comexampleextension1": "value", "comexampleothervalue": "5",
		}
		if contentType != "" {
			a["datacontenttype"] = contentType
		}
		return a
	}
	inHeaders := func(prefix string, more map[string]string) map[string]string {
		h := maps.Clone(more)
		for name, value := range example("C234-1234-1234", "") {
			h[prefix+name] = value
		}
		if _, ok := h[prefix+"time"]; !ok {
			h[prefix+"time"] = "2018-04-05T17:31:00Z"
		}
		return h
	}
	const (
		someTime = "2018-04-05 17:31:00:000000 Z"
		data     = `{ "appinfoA" : "abc" }`
	)
	brighter, err := json.Marshal(map[string]string{
		"id": "C234-1234-1234", "datacontenttype": "application/json", "dataschema": "", "specversion": "1.0",
		"type": "com.example.someevent", "source": "/mycontext", "time": "2018-04-05T17:31:00Z", "comexampleextension1": "value", "comexampleothervalue": "5",
	})
	if err != nil {
		t.Fatal(err)
	}
	structured := map[string]string{headers.ContentType: structuredType + "; charset=UTF-8"}
	for _, test := range []struct {
		name, body string
		headers    map[string]string
		want       received
	}{
		{"binary data", readGolden(t, "spec-binary"), structured, received{
			ID: "/mycontext#A234-1234-1234", ContentType: "application/vnd.apache.thrift.binary", Body: "\x00\x01\x02\xff", Time: someTime,
			Attributes: example("A234-1234-1234", "application/vnd.apache.thrift.binary"),
		}},
		{"XML", readGolden(t, "spec-xml"), structured, received{
			ID: "/mycontext#B234-1234-1234", ContentType: "application/xml", Body: `<much wow="xml"/>`, Time: someTime,
			Attributes: example("B234-1234-1234", "application/xml"),
		}},
		{"JSON", readGolden(t, "spec-json"), structured, received{
			ID: "/mycontext#C234-1234-1234", ContentType: "application/json", Body: "{\n        \"appinfoA\" : \"abc\",\n        \"appinfoB\" : 123,\n        \"appinfoC\" : true\n    }", Time: someTime,
			Attributes: example("C234-1234-1234", "application/json"),
		}},
		{"a JSON string", readGolden(t, "spec-string"), structured, received{
			ID: "/mycontext#D234-1234-1234", ContentType: "application/json", Body: `"I'm just a string"`, Time: someTime,
			Attributes: example("D234-1234-1234", ""),
		}},
		{"binary mode on AMQP, as of NServiceBus", data, inHeaders("cloudEvents:", map[string]string{headers.ContentType: "application/json; charset=utf-8"}), received{
			ID: "/mycontext#C234-1234-1234", ContentType: "application/json; charset=utf-8", Body: data, Time: someTime, Attributes: example("C234-1234-1234", ""),
		}},
		{"binary mode on AMQP without colons, as of Brighter", data, inHeaders("cloudEvents_", map[string]string{headers.ContentType: "application/json", headers.MessageTypes: "MT_EVENT"}), received{
			ID: "/mycontext#C234-1234-1234", ContentType: "application/json", Body: data, Time: someTime, Attributes: example("C234-1234-1234", ""),
		}},
		{"binary mode on RabbitMQ with a time of AMQP", data, inHeaders("CLOUDEVENTS:", map[string]string{"CLOUDEVENTS:time": someTime}), received{
			ID: "/mycontext#C234-1234-1234", Body: data, Time: someTime, Attributes: example("C234-1234-1234", ""),
		}},
		{"binary mode on SQS, as of NServiceBus", data, inHeaders("ce-", map[string]string{"content-type": "application/json"}), received{
			ID: "/mycontext#C234-1234-1234", ContentType: "application/json", Body: data, Time: someTime, Attributes: example("C234-1234-1234", ""),
		}},
		{"binary mode on SQS, as of Brighter", data, map[string]string{"cloudeventheaders": string(brighter), "message-type": "MT_EVENT"}, received{
			ID: "/mycontext#C234-1234-1234", ContentType: "application/json", Body: data, Time: someTime, Attributes: example("C234-1234-1234", "application/json"),
		}},
		{"a body alone, as of EventBridge", readGolden(t, "eventbridge"), nil, received{
			Type: "Object Created", ID: "arn:aws:events:eu-west-1:123456789012:event-bus/shop#17793124-05d4-b198-2fde-7ededc63b103", ContentType: "application/json",
			Body: `{"bucket":{"name":"invoices"},"object":{"key":"7.pdf","size":5}}`, Time: "2021-11-12 00:00:00:000000 Z",
			Attributes: map[string]string{"specversion": "1.0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "source": "arn:aws:events:eu-west-1:123456789012:event-bus/shop", "type": "Object Created", "subject": "aws.s3"},
		}},
		{"a body alone, as of Event Grid", readGolden(t, "eventgrid"), map[string]string{headers.ContentType: "application/json"}, received{
			Type: "Microsoft.Storage.BlobCreated", ID: "/subscriptions/0/resourceGroups/shop/providers/Microsoft.Storage/storageAccounts/invoices#9aeb0fdf-c01e-0131-0922-9eb54906e209", ContentType: "application/json",
			Body: "{\n        \"api\": \"PutBlockList\",\n        \"contentType\": \"application/pdf\",\n        \"contentLength\": 30699\n    }", Time: "2019-11-18 15:13:39:458925 Z", TraceParent: traceParent,
			Attributes: map[string]string{
				"specversion": "1.0", "id": "9aeb0fdf-c01e-0131-0922-9eb54906e209", "type": "Microsoft.Storage.BlobCreated",
				"source":  "/subscriptions/0/resourceGroups/shop/providers/Microsoft.Storage/storageAccounts/invoices",
				"subject": "blobServices/default/containers/invoices/blobs/7.pdf",
			},
		}},
		{"a byte order mark", "\ufeff" + readGolden(t, "spec-string"), structured, received{
			ID: "/mycontext#D234-1234-1234", ContentType: "application/json", Body: `"I'm just a string"`, Time: someTime, Attributes: example("D234-1234-1234", ""),
		}},
		{"no data", `{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"1","tags":["a"]}`, structured, received{
			ID: "/mycontext#1", ContentType: "application/json", Attributes: map[string]string{"specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "id": "1"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Type == "" {
				test.want.Type = "com.example.someevent"
			}
			test.want.Observed = test.want.Type
			got := receive(t, test.headers, test.body)
			if !maps.Equal(got.Attributes, test.want.Attributes) {
				t.Errorf("the attributes are %v, want %v", got.Attributes, test.want.Attributes)
			}
			got.Attributes, test.want.Attributes = nil, nil
			if fmt.Sprintf("%q", *got) != fmt.Sprintf("%q", test.want) {
				t.Errorf("got  %q\nwant %q", *got, test.want)
			}
		})
	}
}

func TestReceive_OtherMessagesAreUnchanged(t *testing.T) {
	for name, test := range map[string]struct {
		headers map[string]string
		body    string
	}{
		"a message of an endpoint":                {map[string]string{headers.MessageTypes: "order", headers.ContentType: "application/json"}, readGolden(t, "spec-json")},
		"JSON that is no event":                   {map[string]string{"type": "order"}, `{"specversion":"1.0","id":1}`},
		"a text about events":                     {nil, `about "specversion"`},
		"some attributes":                         {map[string]string{"cloudEvents:id": "1", "ce-type": "x"}, "{}"},
		"a large header of another program":       {map[string]string{"ce-blob": strings.Repeat("x", 10_000)}, "{}"},
		"a header of Brighter that is no JSON":    {map[string]string{"cloudeventheaders": "{"}, "{}"},
		"many attributes in a header of Brighter": {map[string]string{"cloudeventheaders": `{"id":"` + strings.Repeat("x", 9000) + `"}`}, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(newEvents(t, cloudevents.Config{}))
			messageType := c.MessageType
			c.MessageType = func(in *core.Incoming) string {
				if found := messageType(in); found != "" {
					t.Errorf("the type is %q", found)
				}
				return "order"
			}
			handled := false
			bubble(t, c, func(ep *core.Endpoint) {
				core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
					handled = m.ID == "foreign" && string(m.RawBody()) == test.body && m.Headers.Get(headers.ContentType) == test.headers[headers.ContentType]
					return nil
				})
			}, func(fx *fixture) { fx.enqueue(test.headers, test.body) })
			if !handled {
				t.Error("it was not handled as it was sent")
			}
		})
	}
}

func TestReceive_InvalidEventsFailOnce(t *testing.T) {
	structured := map[string]string{headers.ContentType: structuredType}
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprint("ce-a", i)] = "x"
	}
	maps.Copy(many, map[string]string{"ce-id": "1", "ce-source": "/x", "ce-type": "x"})
	for _, test := range []struct {
		name, body, says string
		headers          map[string]string
	}{
		{"a batch", readGolden(t, "spec-batch"), `its content type is "application/cloudevents-batch+json"; single events in JSON are read, as application/cloudevents+json, and no batches`, map[string]string{headers.ContentType: "application/cloudevents-batch+json"}},
		{"another format", "x", `its content type is "application/cloudevents+avro"`, map[string]string{headers.ContentType: "application/cloudevents+avro"}},
		{"a batch as an event", readGolden(t, "spec-batch"), "cannot unmarshal array", structured},
		{"no JSON", "x", "invalid character 'x'", structured},
		{"no type", `{"specversion":"1.0","id":"1","source":"/x"}`, `it has no attribute "type"`, structured},
		{"another version", `{"specversion":"0.3","id":"1","source":"/x","type":"x"}`, `its specversion is "0.3"`, structured},
		{"another version in headers", "", `its specversion is "2.0"`, map[string]string{"ce-specversion": "2.0", "ce-id": "1", "ce-source": "/x", "ce-type": "x"}},
		{"both data", `{"specversion":"1.0","id":"1","source":"/x","type":"x","data":1,"data_base64":""}`, "both data and data_base64", structured},
		{"no base64", `{"specversion":"1.0","id":"1","source":"/x","type":"x","data_base64":"?"}`, "data_base64: illegal base64", structured},
		{"base64 of another type", `{"specversion":"1.0","id":"1","source":"/x","type":"x","data_base64":1}`, "data_base64: json", structured},
		{"text of another type", `{"specversion":"1.0","id":"1","source":"/x","type":"x","datacontenttype":"text/xml","data":{}}`, `data of the type "text/xml" is not a string`, structured},
		{"a long attribute", `{"specversion":"1.0","id":"1","source":"/x","type":"x","long":"` + strings.Repeat("x", 10_000) + `"}`, `the attribute "long" has a name of 4 bytes and a value of 10000`, structured},
		{"a long name", `{"specversion":"1.0","id":"1","source":"/x","type":"x","` + strings.Repeat("x", 10_000) + `":""}`, `has a name of 10000 bytes`, structured},
		{"many attributes", "", "it has more than 100 attributes", many},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, configuration(newEvents(t, cloudevents.Config{})), func(ep *core.Endpoint) {
				core.HandleDefault(ep, func(context.Context, *core.Message) error {
					t.Error("it was handled")
					return nil
				})
			}, func(fx *fixture) {
				fx.enqueue(test.headers, test.body)
				failed := fx.only("error")
				text := failed.Headers.Get(headers.ExceptionMessage)
				if !strings.Contains(text, test.says) || !strings.HasPrefix(text, "cloudevents: ") || len(text) > 500 {
					t.Errorf("the error is %q, want %q in it", text, test.says)
				}
				if reason := failed.Headers.Get(headers.FailureReason); reason != string(headers.FailureUndecodable) {
					t.Errorf("the reason is %s", reason)
				}
				if string(failed.Body) != test.body {
					t.Error("the body was changed")
				}
			})
		})
	}
}

type order struct{ ID string }

var (
	placed   = core.NewMessageType[order]("com.example.order.placed")
	rawOrder = core.NewMessageType[[]byte]("com.example.order.raw")
)

func TestSend(t *testing.T) {
	for _, structured := range []bool{false, true} {
		t.Run(fmt.Sprintf("structured %v", structured), func(t *testing.T) {
			c := configuration(newEvents(t, cloudevents.Config{Structured: structured}))
			var got order
			subject, traceState := "", ""
			bubble(t, c, func(ep *core.Endpoint) {
				core.Handle(ep, placed, func(_ context.Context, m *core.Message, body order) error {
					got, subject, traceState = body, cloudevents.Attribute(m, "subject"), cloudevents.Attribute(m, "tracestate")
					return nil
				})
			}, func(fx *fixture) {
				draft := placed.Of(order{"7"}).With(core.SendOptions{ID: "m1", Headers: map[string]string{"cloudEvents:subject": "7", "traceparent": traceParent, "tracestate": "a=b"}})
				if err := errors.Join(fx.ep.Send(t.Context(), "answers", draft), fx.ep.Send(t.Context(), "orders", draft)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				sent := fx.only("answers")
				want := map[string]string{
					"specversion": "1.0", "id": "m1", "source": "/shop/orders", "type": "com.example.order.placed", "subject": "7",
					"time": "2000-01-01T00:00:00Z", "traceparent": traceParent, "tracestate": "a=b",
				}
				have := map[string]string{}
				if structured {
					var members map[string]any
					if err := json.Unmarshal(sent.Body, &members); err != nil {
						t.Fatal(err)
					}
					want["datacontenttype"], want["data"] = "application/json", "map[ID:7]"
					for name, value := range members {
						have[name] = fmt.Sprint(value)
					}
				}
				for key, value := range sent.Headers.All() {
					if name, ok := strings.CutPrefix(key, "cloudEvents:"); ok {
						have[name] = value
					}
				}
				if !maps.Equal(have, want) {
					t.Errorf("got  %v\nwant %v", have, want)
				}
				wantType := map[bool]string{false: "application/json", true: structuredType}[structured]
				if contentType := sent.Headers.Get(headers.ContentType); contentType != wantType || sent.ID != "m1" {
					t.Errorf("the content type is %s, the id %s", contentType, sent.ID)
				}
			})
			if got.ID != "7" || subject != "7" || traceState != "a=b" {
				t.Errorf("it was received as %v, %q, %q", got, subject, traceState)
			}
		})
	}
}

func TestSend_Bodies(t *testing.T) {
	c := configuration(newEvents(t, cloudevents.Config{Structured: true}))
	var got []string
	bubble(t, c, func(ep *core.Endpoint) {
		core.Handle(ep, rawOrder, func(_ context.Context, m *core.Message, body []byte) error {
			got = append(got, fmt.Sprintf("%s %q", m.Headers.Get(headers.ContentType), body))
			return nil
		})
	}, func(fx *fixture) {
		for _, each := range []struct{ contentType, body string }{
			{"", "\x00\xff"}, {"text/xml", "<a/>"}, {"application/x+json", `{"a": "<&>"}`}, {"application/json", "no JSON"},
			{structuredType, `{"specversion":"1.0","id":"1","source":"/x","type":"com.example.order.raw","data":1}`}, {"", ""},
		} {
			if err := fx.ep.Send(t.Context(), "orders", rawOrder.Of([]byte(each.body)).With(core.SendOptions{ContentType: each.contentType})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
	want := []string{`application/octet-stream "\x00\xff"`, `text/xml "<a/>"`, `application/x+json "{\"a\":\"\\u003c\\u0026\\u003e\"}"`, `application/json "no JSON"`, `application/json "1"`, `application/octet-stream ""`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestSend_RefusesAttributes(t *testing.T) {
	bubble(t, configuration(newEvents(t, cloudevents.Config{})), func(*core.Endpoint) {}, func(fx *fixture) {
		for name, says := range map[string]string{
			"id": "the message's id and type are those of the event", "type": "id and type", "specversion": "id and type", "datacontenttype": "use SendOptions.ContentType",
			"data": "is no attribute", "": "is no attribute", "my-name": "small letters and digits", strings.Repeat("x", 65): "at most 64",
		} {
			err := fx.ep.Send(t.Context(), "answers", placed.Of(order{}).With(core.SendOptions{Headers: map[string]string{"cloudEvents:" + name: "x"}}))
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v, want %q in it", name, err, says)
			}
		}
	})
}

// A reply to an event is an event in the same mode, and a reply to another message is none.
func TestReply_KeepsTheForm(t *testing.T) {
	for _, structured := range []bool{false, true} {
		bubble(t, configuration(newEvents(t, cloudevents.Config{Structured: structured})), func(ep *core.Endpoint) {
			core.Handle(ep, placed, func(_ context.Context, m *core.Message, body order) error { return m.Reply(placed.Of(body)) })
		}, func(fx *fixture) {
			reply := func(more map[string]string, body string) core.Incoming {
				more[headers.ReplyToAddress] = "answers"
				fx.enqueue(more, body)
				defer func() {
					if err := fx.transport.Remove(t.Context(), []string{"answers"}, nil); err != nil {
						t.Fatal(err)
					}
					if err := fx.transport.Provision(t.Context(), core.Topology{Queues: []string{"answers"}}); err != nil {
						t.Fatal(err)
					}
				}()
				return fx.only("answers")
			}
			isBinary := func(m core.Incoming) bool { return m.Headers.Get("cloudEvents:source") == "/shop/orders" }
			isStructured := func(m core.Incoming) bool {
				return m.Headers.Get(headers.ContentType) == structuredType && strings.Contains(string(m.Body), `"source":"/shop/orders"`)
			}
			if m := reply(map[string]string{"cloudEvents:id": "1", "cloudEvents:source": "/x", "cloudEvents:type": "com.example.order.placed"}, `{"ID":"7"}`); !isBinary(m) || isStructured(m) {
				t.Errorf("to an event in binary mode: %v %s", m.Headers.Map(), m.Body)
			}
			if m := reply(map[string]string{headers.ContentType: structuredType}, `{"id":"1","source":"/x","type":"com.example.order.placed","data":{"ID":"7"}}`); isBinary(m) || !isStructured(m) {
				t.Errorf("to an event in structured mode: %v %s", m.Headers.Map(), m.Body)
			}
			if m := reply(map[string]string{headers.MessageTypes: "com.example.order.placed"}, `{"ID":"7"}`); isBinary(m) || isStructured(m) {
				t.Errorf("to a message: %v %s", m.Headers.Map(), m.Body)
			}
		})
	}
}

// An event in the error queue, and after its return, is the event as it was received.
func TestReturn_FromTheErrorQueue(t *testing.T) {
	for name, test := range map[string]struct {
		headers map[string]string
		body    string
	}{
		"binary":     {map[string]string{"ce-id": "1", "ce-source": "/x", "ce-type": "com.example.order.placed", "ce-comexample": "5"}, `{"ID":"7"}`},
		"structured": {map[string]string{headers.ContentType: structuredType}, `{"id":"1","source":"/x","type":"com.example.order.placed","data":{"ID":"7"}}`},
		"detected":   {nil, `{"specversion":"1.0","id":"1","source":"/x","type":"com.example.order.placed","data":{"ID":"7"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(newEvents(t, cloudevents.Config{}))
			c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}
			var ids []string
			fails := true
			bubble(t, c, func(ep *core.Endpoint) {
				core.Handle(ep, placed, func(_ context.Context, m *core.Message, body order) error {
					if body.ID != "7" || cloudevents.Attribute(m, "source") != "/x" {
						t.Errorf("got %v from %q", body, cloudevents.Attribute(m, "source"))
					}
					ids = append(ids, m.ID)
					if fails {
						return errors.New("no")
					}
					return nil
				})
			}, func(fx *fixture) {
				fx.enqueue(test.headers, test.body)
				time.Sleep(time.Minute)
				synctest.Wait()
				failed := fx.only("error")
				if string(failed.Body) != test.body {
					t.Errorf("the body is %s", failed.Body)
				}
				for key, value := range test.headers {
					if failed.Headers.Get(key) != value {
						t.Errorf("%s is %q, want %q", key, failed.Headers.Get(key), value)
					}
				}
				fails = false
				if err := fx.transport.Send(t.Context(), core.Outgoing{ID: failed.ID, Queue: "orders", Headers: failed.Headers, Body: failed.Body}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			})
			if fmt.Sprint(ids) != "[/x#1 /x#1 /x#1]" {
				t.Errorf("it was handled with the ids %v", ids)
			}
		})
	}
}

func TestMessageID_OfALongSourceIsAHash(t *testing.T) {
	events := newEvents(t, cloudevents.Config{})
	var in core.Incoming
	for name, value := range map[string]string{"id": "1", "source": strings.Repeat("x", 8000), "type": "x"} {
		in.Headers.Set("ce-"+name, value)
	}
	if id := events.MessageID(&in); len(id) != 64 {
		t.Errorf("the id is %s", id)
	}
	if id := events.MessageID(&core.Incoming{}); id != "" {
		t.Errorf("the id of another message is %s", id)
	}
}

// The header with the types of a message has its base types too.
func TestMessageType_KeepsBaseTypes(t *testing.T) {
	events := newEvents(t, cloudevents.Config{})
	for header, want := range map[string]string{"": "a.B", "a.B": "", "a.B;a.Base": "", "a.B, Assembly": "", "a.Bc": "a.B", "MT_EVENT": "a.B"} {
		in := core.Incoming{Headers: core.HeadersFromMap(map[string]string{"ce-id": "1", "ce-source": "/x", "ce-type": "a.B", headers.MessageTypes: header})}
		if got := events.MessageType(&in); got != want {
			t.Errorf("%q: the type is %q, want %q", header, got, want)
		}
	}
}

func TestMessageType_AllocatesNothingForOtherMessages(t *testing.T) {
	events := newEvents(t, cloudevents.Config{})
	in := core.Incoming{Headers: core.HeadersFromMap(map[string]string{
		headers.MessageID: "1", headers.MessageTypes: "order", headers.ContentType: "application/json", "customer": "7", "ce": "x",
	}), Body: []byte("{}")}
	if n := testing.AllocsPerRun(100, func() { events.MessageType(&in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNew_RefusesSources(t *testing.T) {
	for _, source := range []string{"", ":", strings.Repeat("x", 10_000)} {
		if _, err := cloudevents.New(cloudevents.Config{Source: source}); err == nil || !strings.Contains(err.Error(), "Config.Source") || len(err.Error()) > 200 {
			t.Errorf("%.10q: %v", source, err)
		}
	}
}

// FuzzReceive gives the package any body and headers.
func FuzzReceive(f *testing.F) {
	events, err := cloudevents.New(cloudevents.Config{Source: "/x"})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"spec-binary", "spec-xml", "spec-json", "spec-string", "spec-batch", "eventbridge", "eventgrid"} {
		text, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(structuredType, "cloudeventheaders", text)
		f.Add("", "ce-id", text)
		f.Add("application/json", string(text), []byte("cloudeventheaders"))
	}
	f.Fuzz(func(t *testing.T, contentType, key string, body []byte) {
		in := core.Incoming{Headers: core.HeadersFromMap(map[string]string{headers.ContentType: contentType, key: string(body), "ce-type": "x", "ce-source": "/x"}), Body: body}
		if id := events.MessageID(&in); len(id) > 200 {
			t.Errorf("the id has %d bytes", len(id))
		}
		if messageType := events.MessageType(&in); len(messageType) > 8<<10 {
			t.Errorf("the type has %d bytes", len(messageType))
		}
	})
}
