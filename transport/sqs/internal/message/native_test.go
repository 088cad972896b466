package message

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

type attributeMap = map[string]types.MessageAttributeValue

func typed(kind, value string) types.MessageAttributeValue {
	v := types.MessageAttributeValue{DataType: &kind}
	if isBinary(kind) {
		v.BinaryValue = []byte(value)
	} else {
		v.StringValue = &value
	}
	return v
}

// show returns attributes in a form that can be compared.
func show(attrs attributeMap) map[string]string {
	shown := map[string]string{}
	for name, v := range attrs {
		shown[name] = fmt.Sprintf("%s %q %q", value(v.DataType), value(v.StringValue), v.BinaryValue)
	}
	return shown
}

// copyOf returns a copy of a received message as it is received, after a change of its headers.
func copyOf(t *testing.T, c *Codec, in *Received, later int, edit func(h *core.Headers)) *types.Message {
	t.Helper()
	out := core.Outgoing{ID: in.ID, Queue: "error", Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: core.ReasonMoveToError}
	out.Headers.Set("NServiceBus.FailedQ", "billing")
	edit(&out.Headers)
	m, err := c.Encode(t.Context(), &out, 1<<20, 100, later)
	if err != nil {
		t.Fatal(err)
	}
	return asReceived(m)
}

func TestEncode_CopyKeepsTheSendersAttributes(t *testing.T) {
	t.Parallel()
	sent := attributeMap{
		"n": typed("Number", "1e3"), "bytes": typed("Binary.gzip", "\xff\x00"), "label": typed("String.url", "x"), "text": typed("String", "é"),
		attrType: typed("String", "Interop.Order"), "Reprise.Failures": typed("String", "1"),
	}
	kept := maps.Clone(sent)
	delete(kept, "Reprise.Failures")
	without := func(attrs attributeMap, names ...string) attributeMap {
		attrs = maps.Clone(attrs)
		for _, name := range names {
			delete(attrs, name)
		}
		return attrs
	}
	envelope := `{"Type":"Notification","TopicArn":"arn","Message":"hello","MessageAttributes":{"n":{"Type":"Number","Value":"-1.5"},"bytes":{"Type":"Binary","Value":"/wA="},` +
		`"list":{"Type":"String.Array","Value":"[1]"},"a..b":{"Type":"String","Value":"x"},"AWS.x":{"Type":"String","Value":"x"},"unknown":{"Type":"List","Value":"x"},` +
		`"nan":{"Type":"Number","Value":"NaN"},"control":{"Type":"String","Value":"\u0000"},"none":{"Type":"String","Value":""}}}`
	ten := attributeMap{}
	for i := range 10 {
		ten[fmt.Sprint("a", i)] = typed("String", "x")
	}
	ten["z"] = typed("Binary", "\xff")
	delete(ten, "a9")
	nothing := func(*core.Headers) {}
	for name, c := range map[string]struct {
		body  string
		sent  attributeMap
		later int
		edit  func(h *core.Headers)
		text  string // of the copy; "": another one
		want  attributeMap
	}{
		"foreign text":        {"hello", sent, 0, nothing, "hello", kept},
		"foreign JSON":        {`{"Body":1}`, sent, 0, nothing, `{"Body":1}`, kept},
		"edited headers":      {"hello", sent, 0, func(h *core.Headers) { h.Set("text", "e"); h.Del("bytes"); h.Set(headers.MessageTypes, "Other") }, "hello", without(kept, "text", "bytes", attrType)},
		"envelope":            {envelope, nil, 0, nothing, "hello", attributeMap{"n": typed("Number", "-1.5"), "bytes": typed("Binary", "\xff\x00"), "list": typed("String.Array", "[1]")}},
		"text for empty body": {"empty message", sent, 0, nothing, "", without(kept, attrType)},
		"wrapper":             {wrapper, attributeMap{attrMessageID: typed("String", "m-1"), "a": typed("Number", "1")}, 0, nothing, "", attributeMap{"a": typed("Number", "1")}},
		"too many":            {"hello", ten, 2, nothing, "hello", without(ten, "a5", "a6", "a7", "a8")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codec := &Codec{}
			m := &types.Message{Body: &c.body, MessageId: aws.String("native"), MessageAttributes: c.sent, Attributes: map[string]string{"AWSTraceHeader": "Root=1"}}
			first := codec.Read("billing", m)
			edited := first.Headers
			c.edit(&edited)
			for round := range 3 { // a delayed retry, the error queue, a return
				before := codec.Read("billing", m)
				m = copyOf(t, codec, before, c.later, c.edit)
				got := maps.Clone(m.MessageAttributes)
				if len(got)+c.later > MaxAttributes {
					t.Errorf("round %d: the copy has %d attributes", round, len(got))
				}
				for _, name := range []string{attrMessageID, attrHeaders, attrBody} {
					delete(got, name)
				}
				if !maps.Equal(show(got), show(c.want)) {
					t.Errorf("round %d: the copy has the attributes %q, want %q", round, show(got), show(c.want))
				}
				if m.Attributes["AWSTraceHeader"] != "Root=1" || c.text != "" && *m.Body != c.text {
					t.Errorf("round %d: the copy has the text %q and the trace %q", round, *m.Body, m.Attributes["AWSTraceHeader"])
				}
				in := codec.Read("error", m)
				in.Headers.Del("NServiceBus.FailedQ")
				if in.Malformed != nil || string(in.Body) != string(first.Body) || !maps.Equal(in.Headers.Map(), edited.Map()) {
					t.Errorf("round %d: the copy is read as %q with %q, want %q with %q", round, in.Body, in.Headers.Map(), first.Body, edited.Map())
				}
			}
		})
	}
}

const wrapper = `{"Headers":{"NServiceBus.MessageId":"m-1","a":"1"},"Body":"aGVsbG8="}`

// Attributes that do not fit into the bytes of a message are headers alone.
func TestEncode_CopyHasRoomForSomeAttributes(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 900<<10)
	in := (&Codec{}).Read("billing", &types.Message{Body: &body, MessageAttributes: attributeMap{
		"large": typed("Binary", strings.Repeat("\xff", 40<<10)), "small": typed("Number", "1"),
	}})
	m := copyOf(t, &Codec{}, in, 0, func(*core.Headers) {})
	if _, has := m.MessageAttributes["large"]; has || value(m.MessageAttributes["small"].DataType) != "Number" || *m.Body != body {
		t.Errorf("the copy has the attributes %q and %d bytes", show(m.MessageAttributes)["small"], len(*m.Body))
	}
}
