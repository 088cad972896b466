package amqp10

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// messages have a value in each section and field.
var messages = []Message{
	{},
	{
		Header:              &MessageHeader{Durable: true, Priority: 9, TTL: math.MaxUint32 * time.Millisecond, FirstAcquirer: true, DeliveryCount: 3},
		DeliveryAnnotations: Annotations{"lock": UUID{1}},
		Annotations:         Annotations{"time": time.UnixMilli(5).UTC(), "list": List{"a", nil}},
		Properties: &MessageProperties{
			MessageID: "id", UserID: []byte("u"), To: new("to"), Subject: new("subject"), ReplyTo: new("reply"), CorrelationID: UUID{2},
			ContentType: new("text/plain"), ContentEncoding: new("gzip"), AbsoluteExpiryTime: new(time.UnixMilli(7).UTC()),
			CreationTime: new(time.UnixMilli(6).UTC()), GroupID: new("group"), GroupSequence: new(uint32(8)), ReplyToGroupID: new("other"),
		},
		ApplicationProperties: map[string]any{"symbol": Symbol("s"), "char": Char('c'), "decimal": Decimal64{1}, "none": nil, "é": int8(-1)},
		Data:                  [][]byte{[]byte("a"), {}, []byte(strings.Repeat("b", 300))},
		Footer:                Annotations{"hash": []byte{1}},
	},
	{Header: &MessageHeader{Priority: 4}, Properties: &MessageProperties{}},
	{Header: &MessageHeader{}, DeliveryAnnotations: Annotations{}, Annotations: Annotations{}, ApplicationProperties: map[string]any{}, Footer: Annotations{}},
	{Properties: &MessageProperties{MessageID: uint64(7), CorrelationID: []byte("c"), To: new(""), GroupID: new("")}},
	{Sequence: []List{{"a", int64(1)}, {}}},
	{Value: Null{}},
	{Value: Map{{"b", true}, {Symbol("a"), Described{uint64(1), Array{int32(1)}}}}},
	{ApplicationProperties: map[string]any{"long": strings.Repeat("x", 70000)}, Value: "text"},
}

func TestMessage_EncodedAndDecoded(t *testing.T) {
	t.Parallel()
	for i := range messages {
		b, err := AppendMessage([]byte("before"), &messages[i])
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.TrimPrefix(b, []byte("before"))
		got, err := DecodeMessage(b)
		if err != nil || !reflect.DeepEqual(got, &messages[i]) {
			t.Errorf("%+v was decoded as %+v, %v", messages[i], got, err)
		}
	}
}

// Sections as other peers may write them.
func TestDecodeMessage_Sections(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sections []any
		want     Message
	}{
		"header without fields":     {[]any{Described{uint64(codeHeader), List{}}}, Message{Header: &MessageHeader{Priority: 4}}},
		"header with nulls":         {[]any{Described{uint64(codeHeader), List{nil, nil, nil, nil, nil}}}, Message{Header: &MessageHeader{Priority: 4}}},
		"header with a field more":  {[]any{Described{uint64(codeHeader), List{true, uint8(4), nil, nil, uint32(1), "x"}}}, Message{Header: &MessageHeader{Durable: true, Priority: 4, DeliveryCount: 1}}},
		"symbolic descriptors":      {[]any{Described{Symbol("amqp:data:binary"), []byte("a")}, Described{Symbol("amqp:footer:map"), Map{}}}, Message{Data: [][]byte{[]byte("a")}, Footer: Annotations{}}},
		"body of null":              {[]any{Described{Symbol("amqp:amqp-value:*"), nil}}, Message{Value: Null{}}},
		"string for an annotation":  {[]any{Described{uint64(codeMessageAnnotations), Map{{"k", true}}}}, Message{Annotations: Annotations{"k": true}}},
		"symbol for a property":     {[]any{Described{uint64(codeApplicationProperties), Map{{Symbol("k"), true}}}}, Message{ApplicationProperties: map[string]any{"k": true}}},
		"content type is a string":  {[]any{Described{uint64(codeProperties), List{nil, nil, nil, nil, nil, nil, "t"}}}, Message{Properties: &MessageProperties{ContentType: new("t")}}},
		"address is a symbol":       {[]any{Described{uint64(codeProperties), List{nil, nil, Symbol("t")}}}, Message{Properties: &MessageProperties{To: new("t")}}},
		"sections in another order": {[]any{Described{uint64(codeData), []byte("a")}, Described{uint64(codeHeader), List{}}}, Message{Header: &MessageHeader{Priority: 4}, Data: [][]byte{[]byte("a")}}},
	} {
		var b []byte
		for _, section := range tt.sections {
			b = append(b, mustAppend(t, section)...)
		}
		if got, err := DecodeMessage(b); err != nil || !reflect.DeepEqual(got, &tt.want) {
			t.Errorf("%s: decoded %+v, %v", name, got, err)
		}
	}
}

func TestDecodeMessage_SharesNoMemory(t *testing.T) {
	t.Parallel()
	b, err := AppendMessage(nil, &messages[1])
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeMessage(b)
	clear(b)
	if err != nil || !reflect.DeepEqual(got, &messages[1]) {
		t.Errorf("the message has changed with the bytes: %+v, %v", got, err)
	}
}

func TestDecodeMessage_RefusesHostileBytes(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"value without a descriptor":     "text",
		"section that is a performative": Described{uint64(codeOpen), List{"c"}},
		"unknown section":                Described{uint64(0x79), List{}},
		"header that is a map":           Described{uint64(codeHeader), Map{}},
		"priority that is a string":      Described{uint64(codeHeader), List{nil, "high"}},
		"properties that are a map":      Described{uint64(codeProperties), Map{}},
		"message id that is a list":      Described{uint64(codeProperties), List{List{}}},
		"subject that is a number":       Described{uint64(codeProperties), List{nil, nil, nil, uint32(1)}},
		"time that is a number":          Described{uint64(codeProperties), List{nil, nil, nil, nil, nil, nil, nil, nil, int64(1)}},
		"annotations that are a list":    Described{uint64(codeMessageAnnotations), List{}},
		"annotation with a number":       Described{uint64(codeMessageAnnotations), Map{{uint64(1), true}}},
		"property with a number":         Described{uint64(codeApplicationProperties), Map{{uint64(1), true}}},
		"data that is a string":          Described{uint64(codeData), "a"},
		"sequence that is a map":         Described{uint64(codeSequence), Map{}},
	} {
		if m, err := DecodeMessage(mustAppend(t, v)); err == nil {
			t.Errorf("%s: decoded %+v", name, m)
		}
	}
	for name, h := range map[string]string{
		"map of an odd number":          "005372c10404a3016b41",
		"map of more entries than fit":  "005374d00000000480000000",
		"map of fewer entries":          "005374c10800a1016b41",
		"map of a billion entries":      "005374d10000000540000000" + "40",
		"key without a value":           "005374c10402a1016b",
		"section that is only begun":    "005374",
		"described without a section":   "00",
		"properties with missing bytes": "005373c00302a104",
	} {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(name, err)
		}
		if m, err := DecodeMessage(b); err == nil {
			t.Errorf("%s: decoded %+v", name, m)
		}
	}
}

func TestAppendMessage_RefusesOtherTypes(t *testing.T) {
	t.Parallel()
	for _, m := range []Message{
		{Annotations: Annotations{"k": 1}}, {DeliveryAnnotations: Annotations{"k": 1}}, {ApplicationProperties: map[string]any{"k": 1}}, {Footer: Annotations{"k": 1}},
		{Properties: &MessageProperties{MessageID: 1}}, {Value: 1}, {Sequence: []List{{1}}},
	} {
		if b, err := AppendMessage(nil, &m); err == nil {
			t.Errorf("%+v was encoded as %x", m, b)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for i := range messages {
		b, err := AppendMessage(nil, &messages[i])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		first, err := AppendMessage(nil, m)
		if err != nil {
			t.Fatalf("%+v was decoded and cannot be encoded: %v", m, err)
		}
		m, err = DecodeMessage(first)
		if err != nil {
			t.Fatalf("%x cannot be decoded: %v", first, err)
		}
		second, err := AppendMessage(nil, m) // entries of maps are in any order
		if err != nil || len(first) != len(second) {
			t.Fatalf("%x was encoded as %x, %v", first, second, err)
		}
	})
}
