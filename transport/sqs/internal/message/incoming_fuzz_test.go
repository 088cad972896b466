package message

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
)

// FuzzRead reads any message that the service may deliver, and sends a copy of it on, as
// the engine does for a delayed retry or the error queue.
func FuzzRead(f *testing.F) {
	for text := range wrappers {
		f.Add(text, "Reprise.Wait", "1000", attrMessageID, []byte("m-1"), "customer-7", "2", false)
	}
	packedText := packed(headersOf("a", "1", "\x00", "\u2028")).Get(headerPacked)
	for _, seed := range []struct{ text, name, value, otherName, other string }{
		{"hello", "Reprise.Deliveries", "20", "color", "red"},
		{"empty message", attrHeaders, `{"a":"1","Reprise.GroupKey":"g"}`, attrBody, bodyEmpty},
		{"!!", attrHeaders, `{"":"no key"}`, attrBody, bodyBase64},
		{"text", attrHeaders, `{"Reprise.Escaped.SQS.":"x","Reprise.Escaped.":"y"}`, attrBodyKey, "other/key"},
		{"text", attrHeaders, `{"` + headerPacked + `":"` + packedText + `"}`, attrType, "order"},
		{"text", attrHeaders, `{"` + headerPacked + `":"AQ=="}`, AttrDelay, "9223372036854775807"},
		{"text", attrHeaders, `{"` + headerTimeToBeReceived + `":"00:00:10","NServiceBus.MessageId":"\u0000"}`, AttrLives, "-1"},
		{"text", attrType, "order\xff", "Reprise.Enqueued", "9223372036854775807"},
		{`{"Type":"Notification","TopicArn":"arn","Message":"inner","MessageAttributes":{"a":{"Type":"String","Value":"1"},"":{"Type":"Binary","Value":"//8="}}}`, "b", "2", "c", "\xff"},
		{wrapperText, "Reprise.Body", "x", "Reprise.Body", "\xff" + wrapperText},
		{wrapperText, attrHeaders, "{}", "b", "c"},
		{envelopeText, attrHeaders, "{}", "Reprise.Body", "x"},
		{`{"Type":"Notification","TopicArn":"x","Message":"\u0001xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`, "", "", "", ""},
		{`{"Type":"Notification","TopicArn":"arn","Message":"{\"Headers\":{\"NServiceBus.MessageId\":\"m\"},\"Body\":\"aGVsbG8=\"}"}`, "", "", "", ""},
		{"empty message", "n", "1", "bytes", "\xff\x00"},
		{`{"Type":"Notification","TopicArn":"arn","Subject":"s","Timestamp":"t","Message":"m"}`, attrHeaders, `{"a":"1"}`, "", ""},
	} {
		f.Add(seed.text, seed.name, seed.value, seed.otherName, []byte(seed.other), Ungrouped+"1", "-1", true)
	}
	f.Fuzz(func(t *testing.T, text, name, value, otherName string, other []byte, group, count string, raw bool) {
		for _, s := range []*string{&text, &name, &value, &otherName, &group} {
			*s = strings.ToValidUTF8(*s, "?") // as the service has all but binary values
		}
		id, kind, binary := "native", "String", "Binary"
		m := &types.Message{
			Body: &text, MessageId: &id,
			Attributes: map[string]string{
				string(types.MessageSystemAttributeNameApproximateReceiveCount): count,
				string(types.MessageSystemAttributeNameSentTimestamp):           value,
				string(types.MessageSystemAttributeNameMessageGroupId):          group,
			},
			MessageAttributes: map[string]types.MessageAttributeValue{name: {DataType: &kind, StringValue: &value}, otherName: {DataType: &binary, BinaryValue: other}},
		}
		c := &Codec{Raw: raw}
		r := c.Read("billing", m)
		checkReceived(t, r)
		if r.ID == "" || r.NativeID != id || r.DeliveryCount < 1 || r.ReceiveCount < 1 || r.Redelivered != (r.DeliveryCount > 1) {
			t.Errorf("ID %q, NativeID %q, delivery count %d, receive count %d, redelivered %t", r.ID, r.NativeID, r.DeliveryCount, r.ReceiveCount, r.Redelivered)
		}
		if r.Wait < 0 || r.TTL < 0 {
			t.Errorf("a duration is negative: %v, %v", r.Wait, r.TTL)
		}
		// A byte that is not UTF-8 becomes a character of three bytes.
		input := len(text) + len(name) + len(value) + len(otherName) + len(other) + len(group)
		if size := r.Headers.Bytes() + len(r.GroupKey) + len(r.Body); size > 4*input+100 {
			t.Errorf("%d bytes are read as %d", input, size)
		}
		if r.BodyKey != "" {
			return // the copy has the stored body
		}
		checkCopy(t, c, r)
		checkBodyAlone(t, c, r, m)
	})
}

// isRefused reports whether the service refuses a text.
func isRefused(text string) bool {
	return text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !isCharacter(r) })
}

// checkBodyAlone fails if the body of a message that the service has accepted may be too large for it.
func checkBodyAlone(t *testing.T, c *Codec, r *Received, m *types.Message) {
	t.Helper()
	size := len(*m.Body)
	for name, v := range m.MessageAttributes {
		if name == "" || v.StringValue != nil && isRefused(*v.StringValue) || v.StringValue == nil && len(v.BinaryValue) == 0 {
			return
		}
		size += len(name) + len("String") + len(value(v.StringValue)) + len(v.BinaryValue)
	}
	if isRefused(*m.Body) || len(r.Body) == 0 {
		return
	}
	out := core.Outgoing{ID: r.ID, Queue: "error", Body: r.Body, Reason: core.ReasonMoveToError}
	encoded, err := c.Encode(t.Context(), &out, size, 0, 0)
	if err != nil {
		t.Fatalf("%q with %v, of %d bytes: %v", *m.Body, Attributes(m), size, err)
	}
	if reread := c.Read("error", asReceived(encoded)); !bytes.Equal(reread.Body, r.Body) || encoded.Bytes() > size || isRefused(encoded.Text) {
		t.Errorf("the body %q of %d bytes is written as %+v and read as %q", r.Body, size, encoded, reread.Body)
	}
}

// checkCopy fails if the service would refuse a copy of a received message, or if the copy
// is received as another one.
func checkCopy(t *testing.T, c *Codec, r *Received) {
	t.Helper()
	out := core.Outgoing{ID: r.ID, Queue: "error", Headers: r.Headers, Body: r.Body, GroupKey: r.GroupKey, Properties: r.Properties, Native: r.Native, Reason: core.ReasonMoveToError}
	encoded, err := c.Encode(t.Context(), &out, 1<<20, 0, 0)
	if err != nil {
		if !errors.Is(err, core.ErrTooLarge) {
			t.Error(err)
		}
		return
	}
	copied := asReceived(encoded)
	var names []string
	for _, a := range encoded.Attrs {
		names = append(names, a.Name)
		if !a.IsBinary() && isRefused(a.Value) && !isRefused(value(r.Native.(*types.Message).MessageAttributes[a.Name].StringValue)) {
			t.Errorf("the service refuses the attribute %s: %q", a.Name, a.Value)
		}
	}
	if slices.Sort(names); len(names) > MaxAttributes || len(slices.Compact(names)) != len(encoded.Attrs) {
		t.Errorf("the copy has the attributes %q", names)
	}
	if isRefused(encoded.Text) {
		t.Errorf("the service refuses the text %q", encoded.Text)
	}
	if group := GroupID(r.GroupKey); len(group) > 128 || strings.ContainsFunc(group, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("the service refuses the group %q", group)
	}
	reread := c.Read("error", copied)
	if reread.Malformed != nil || !maps.Equal(reread.Headers.Map(), r.Headers.Map()) || !bytes.Equal(reread.Body, r.Body) || reread.GroupKey != r.GroupKey || !maps.Equal(reread.Properties, r.Properties) {
		t.Errorf("a copy of %+v with %q is written as %+v and read as %+v with %q", r.Incoming, r.Headers.Map(), encoded, reread.Incoming, reread.Headers.Map())
	}
}

// checkReceived fails for a field that no handler may see.
func checkReceived(t *testing.T, r *Received) {
	t.Helper()
	for key, value := range r.Headers.All() {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Errorf("no header may be %q: %q", key, value)
		}
	}
	for name, value := range r.Properties {
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			t.Errorf("no property may be %q: %q", name, value)
		}
	}
	if !utf8.ValidString(r.GroupKey) {
		t.Errorf("no group key may be %q", r.GroupKey)
	}
}

// FuzzUnpacked reads any text as packed headers, and packs them reread.
func FuzzUnpacked(f *testing.F) {
	for _, h := range []core.Headers{{}, headersOf("a", "1", "b", ""), headersOf("\x00", strings.Repeat("x", 200))} {
		f.Add([]byte(packed(h).Get(headerPacked)))
	}
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'a'})))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := unpacked(string(text))
		checkReceived(t, &Received{Incoming: core.Incoming{Headers: h}})
		if h.Bytes() > len(text) {
			t.Errorf("%d bytes are read as %d", len(text), h.Bytes())
		}
		if reread, err2 := unpacked(packed(h).Get(headerPacked)); err2 != nil || !maps.Equal(reread.Map(), h.Map()) {
			t.Errorf("%q, %v is packed and read as %q, %v", h.Map(), err, reread.Map(), err2)
		}
	})
}

func headersOf(pairs ...string) (h core.Headers) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}
