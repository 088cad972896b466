package sdkclient

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// section returns an encoded section.
func section(code byte, content ...byte) []byte { return append([]byte{0, 0x53, code}, content...) }

// text8 returns an encoded string.
func text8(s string) []byte { return append([]byte{codeText8, byte(len(s))}, s...) }

// of8 and of32 return an encoded list, map or array.
func of8(code byte, items ...[]byte) []byte {
	content := bytes.Join(items, nil)
	return append([]byte{code, byte(len(content) + 1), byte(len(items))}, content...)
}

func of32(code byte, items ...[]byte) []byte {
	content := bytes.Join(items, nil)
	b := binary.BigEndian.AppendUint32([]byte{code}, uint32(len(content)+4))
	return append(binary.BigEndian.AppendUint32(b, uint32(len(items))), content...)
}

// decode makes a message readable, and decodes it as go-amqp does. It fails the test if the SDK would not take it.
func decode(t *testing.T, encoded []byte) *amqp.Message {
	t.Helper()
	before := bytes.Clone(encoded)
	makeReadable(encoded)
	var m amqp.Message
	if err := m.UnmarshalBinary(encoded); err != nil {
		t.Fatalf("%x was made %x, which is not decoded: %v", before, encoded, err)
	}
	// These are the conversions of azservicebus v1.11.0, newReceivedMessage.
	for _, key := range []string{"DeadLetterReason", "DeadLetterErrorDescription"} {
		if v, has := m.ApplicationProperties[key]; has {
			_ = v.(string)
		}
	}
	for _, key := range []string{"x-opt-locked-until", "x-opt-enqueued-time", "x-opt-scheduled-enqueue-time"} {
		if v, has := m.Annotations[key]; has {
			_ = v.(time.Time)
		}
	}
	for _, key := range []string{"x-opt-sequence-number", "x-opt-enqueue-sequence-number"} {
		if v, has := m.Annotations[key]; has {
			_ = v.(int64)
		}
	}
	for _, key := range []string{"x-opt-partition-key", "x-opt-deadletter-source"} {
		if v, has := m.Annotations[key]; has && v != nil {
			_ = v.(string)
		}
	}
	return &m
}

var (
	smallLong = []byte{0x55, 5}
	yes       = []byte{0x41}
	data      = section(sectionData, codeBinary8, 4, 'b', 'o', 'd', 'y')
)

func TestRenamer_KeysOfAnotherTypeThanTheSDKReads(t *testing.T) {
	t.Parallel()
	wrong := map[string][]byte{"number": smallLong, "bool": yes, "null": {codeNull}, "list": of8(codeList8, yes), "map": of32(codeMap32, text8("k"), yes), "char": {0x73, 0, 0, 0, 'x'}}
	for name, value := range wrong {
		for _, key := range []string{"DeadLetterReason", "DeadLetterErrorDescription"} {
			m := decode(t, append(section(sectionAppProperties, of32(codeMap32, text8("other"), smallLong, text8(key), value)...), data...))
			if _, renamed := m.ApplicationProperties["d"+key[1:]]; !renamed || m.ApplicationProperties["other"] != int64(5) || string(m.GetData()) != "body" {
				t.Errorf("%s as a %s: %v, %q", key, name, m.ApplicationProperties, m.GetData())
			}
		}
		for _, key := range []string{
			"x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-locked-until", "x-opt-enqueued-time", "x-opt-scheduled-enqueue-time",
			"x-opt-partition-key", "x-opt-deadletter-source",
		} {
			encoded := text8(key)
			encoded[0] = codeSymbol8
			m := decode(t, append(section(sectionAnnotations, of32(codeMap32, encoded, value)...), data...))
			right := name == "null" && (key == "x-opt-partition-key" || key == "x-opt-deadletter-source") || name == "number" && key[len(key)-6:] == "number"
			if _, renamed := m.Annotations["X"+key[1:]]; renamed == right {
				t.Errorf("%s as a %s: %v", key, name, m.Annotations)
			}
		}
	}
}

// go-amqp panics at them in annotations and footers, and elsewhere closes the link, or panics at those that are described.
func TestRenamer_KeysThatGoAMQPCannotHash(t *testing.T) {
	t.Parallel()
	for name, key := range map[string][]byte{
		"a described list":      append(append([]byte{0}, text8("type")...), of8(codeList8, smallLong)...),
		"a list":                of8(codeList8, smallLong),
		"a long list":           of32(codeList32, smallLong),
		"an empty list":         {codeList0},
		"a map":                 of8(codeMap8, text8("k"), yes),
		"an array":              {0xe0, 4, 2, 0x50, 1, 2},
		"a binary":              {codeBinary8, 2, 0, 255},
		"a long binary":         {codeBinary32, 0, 0, 0, 1, 255},
		"a decimal":             append([]byte{0x94}, make([]byte, 16)...),
		"a described map":       append(append([]byte{0}, text8("type")...), of8(codeMap8, text8("k"), yes)...),
		"a described described": append(append([]byte{0}, text8("type")...), append(append([]byte{0}, text8("type")...), of8(codeList8)...)...),
	} {
		for _, code := range []byte{sectionDeliveryNotes, sectionAnnotations, sectionFooter} {
			m := decode(t, append(section(code, of32(codeMap32, key, yes, text8("x"), smallLong)...), data...))
			in := map[byte]map[any]any{sectionDeliveryNotes: m.DeliveryAnnotations, sectionAnnotations: m.Annotations, sectionFooter: m.Footer}[code]
			if len(in) != 2 || in["x"] != int64(5) || string(m.GetData()) != "body" {
				t.Errorf("%s in section %x: %v", name, code, in)
			}
		}
		m := decode(t, append(section(sectionAppProperties, of32(codeMap32, key, yes, text8("x"), smallLong)...), data...))
		if name != "an empty list" && (len(m.ApplicationProperties) != 2 || m.ApplicationProperties["x"] != int64(5)) {
			t.Errorf("%s as the key of a property: %v", name, m.ApplicationProperties)
		}
		m = decode(t, section(sectionValue, of32(codeMap32, key, yes)...))
		if m.Value == nil {
			t.Errorf("%s as a key in the body: %v", name, m.Value)
		}
	}
}

func TestRenamer_TypesThatGoAMQPDoesNotDecode(t *testing.T) {
	t.Parallel()
	for name, value := range map[string][]byte{
		"char":            {0x73, 0, 0, 0, 'x'},
		"decimal32":       {0x74, 1, 2, 3, 4},
		"decimal64":       append([]byte{0x84}, make([]byte, 8)...),
		"decimal128":      append([]byte{0x94}, make([]byte, 16)...),
		"array of arrays": {0xe0, 6, 1, 0xe0, 3, 1, 0x50, 1},
		"array of chars":  {0xe0, 6, 1, 0x73, 0, 0, 0, 'x'},
		"unknown":         {0x67, 1, 2},
		"described state": {0, 0x53, 0x24, codeList0},
		"described open":  {0, 0x53, 0x10, codeList0},
		"list too short":  {codeList8, 3, 9, 0x55, 5},
		"list too long":   {codeList8, 4, 1, 0x55, 5, 0x41},
		"odd map":         {codeMap8, 2, 1, 0x41},
	} {
		m := decode(t, append(section(sectionAppProperties, of32(codeMap32, text8("k"), value, text8("x"), smallLong)...), data...))
		if _, isBinary := m.ApplicationProperties["k"].([]byte); !isBinary || m.ApplicationProperties["x"] != int64(5) || string(m.GetData()) != "body" {
			t.Errorf("a property of the type %s: %v, %q", name, m.ApplicationProperties, m.GetData())
		}
		m = decode(t, append(section(sectionAppProperties, of32(codeMap32, text8("x"), smallLong)...), section(sectionValue, value...)...))
		if _, isList := m.Value.([]any); !isList || m.ApplicationProperties["x"] != int64(5) {
			t.Errorf("a body of the type %s: %T, %v", name, m.Value, m.ApplicationProperties)
		}
	}
}

// nested returns a value within lists and described values.
func nested(depth int, described bool) []byte {
	value := yes
	for range depth {
		if described {
			value = append([]byte{0, codeText8, 1, 't'}, value...)
		} else {
			value = of32(codeList32, value)
		}
	}
	return value
}

// go-amqp has no limit, and at 800,000 levels overflows its stack.
func TestRenamer_DepthIsLimited(t *testing.T) {
	t.Parallel()
	for _, described := range []bool{false, true} {
		for depth, keeps := range map[int]bool{1: true, maxDepth - 5: true, maxDepth + 1: false, 10_000: false} {
			value := nested(depth, described)
			encoded := append(section(sectionAppProperties, of32(codeMap32, text8("k"), value)...), data...)
			before := bytes.Clone(encoded)
			if m := decode(t, encoded); string(m.GetData()) != "body" {
				t.Errorf("depth %d: the body is %q", depth, m.GetData())
			}
			if bytes.Equal(before, encoded) != keeps {
				t.Errorf("depth %d, described %v: the message was changed: %v", depth, described, keeps)
			}
			decode(t, section(sectionValue, value...))
			decode(t, section(sectionSequence, of32(codeList32, value)...))
			decode(t, section(sectionAnnotations, of32(codeMap32, value, yes)...))
			decode(t, section(sectionFooter, of32(codeMap32, text8("k"), value)...))
			// The answer to a request for messages that stay in the queue has messages in binaries.
			peeked := append([]byte{codeBinary32}, binary.BigEndian.AppendUint32(nil, uint32(len(before)))...)
			answer := decode(t, section(sectionValue, of32(codeMap32, text8("messages"), of32(codeList32, of32(codeMap32, text8("message"), append(peeked, before...))))...))
			inner := answer.Value.(map[string]any)["messages"].([]any)[0].(map[string]any)["message"].([]byte)
			if bytes.Equal(inner, before) != keeps {
				t.Errorf("depth %d, described %v: a message within an answer was changed: %v", depth, described, keeps)
			}
		}
	}
}

func TestRenamer_LeavesReadableMessagesAsTheyAre(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	reason := "text"
	m := &amqp.Message{
		Header:              &amqp.MessageHeader{Durable: true, TTL: time.Hour, DeliveryCount: 3, Priority: 2},
		DeliveryAnnotations: amqp.Annotations{"x-opt-lock-token": amqp.UUID{1}},
		Annotations: amqp.Annotations{
			"x-opt-sequence-number": int64(1 << 40), "x-opt-locked-until": at, "x-opt-enqueued-time": at, "x-opt-partition-key": nil, "x-opt-message-state": int32(0),
		},
		Properties: &amqp.MessageProperties{MessageID: amqp.UUID{2}, UserID: []byte{1}, Subject: &reason, CreationTime: &at, GroupSequence: new(uint32), CorrelationID: uint64(7)},
		ApplicationProperties: map[string]any{
			"DeadLetterReason": "a reason", "x-opt-locked-until": "no annotation", "text": "ü", "double": 1.5, "list": []any{int32(1), "two", nil}, "map": map[string]any{"message": []byte("abc")},
			"array": []string{"a", ""}, "numbers": []int64{1, 2}, "uuids": []amqp.UUID{{3}}, "bytes": bytes.Repeat([]byte{0}, 300), "time": at,
		},
		Data: [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), 1000)}, Footer: amqp.Annotations{"crc": int32(1)},
	}
	encoded, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(encoded)
	decode(t, encoded)
	if !bytes.Equal(before, encoded) {
		t.Errorf("%x became %x", before, encoded)
	}
	if n := testing.AllocsPerRun(100, func() { makeReadable(encoded) }); n != 0 {
		t.Errorf("there are %v allocations for a message", n)
	}
}

// randomMessage returns a message of sections whose values have random types, and sometimes random bytes.
func randomMessage(r *rand.Rand) []byte {
	var value func(depth int) []byte
	items := func(depth, n int) (list [][]byte) {
		for range n {
			list = append(list, value(depth+1))
		}
		return list
	}
	value = func(depth int) []byte {
		if depth > 4 {
			return yes
		}
		switch r.IntN(16) {
		case 0:
			return of32(codeList32, items(depth, r.IntN(4))...)
		case 1:
			return of8(codeList8, items(5, r.IntN(4))...)
		case 2:
			return of32(codeMap32, items(depth, r.IntN(5))...)
		case 3:
			return of8(codeMap8, items(5, r.IntN(5))...)
		case 4:
			return bytes.Join([][]byte{{0}, value(depth + 1), value(depth + 1)}, nil)
		case 5:
			return append([]byte{0xe0, 6, byte(r.IntN(4)), byte(r.IntN(256))}, 1, 2, 3, 4)
		case 6:
			return append([]byte{byte(r.IntN(256))}, make([]byte, r.IntN(20))...)
		case 7:
			return []byte{codeBinary8, 2, 0, 255}
		case 8:
			return smallLong
		case 9:
			return []byte{0x73, 0, 0, 0, 'x'}
		case 10:
			return text8([]string{"DeadLetterReason", "x-opt-locked-until", "message"}[r.IntN(3)])
		case 11:
			return append(append([]byte{0x83}, make([]byte, 8)...), nil...)
		default:
			return text8(fmt.Sprint(r.IntN(10)))
		}
	}
	var m []byte
	for range 1 + r.IntN(4) {
		code := byte(0x70 + r.IntN(9))
		content := value(0)
		switch {
		case r.IntN(8) == 0:
		case code == sectionData:
			content = []byte{codeBinary8, 1, 'x'}
		case code == sectionHeader || code == sectionProperties:
			content = of8(codeList8, items(5, r.IntN(4))...)
		case code != sectionValue && code != sectionSequence:
			content = of32(codeMap32, items(0, 2*r.IntN(4))...)
		}
		m = append(m, section(code, content...)...)
	}
	if r.IntN(3) == 0 {
		m[r.IntN(len(m))] = byte(r.IntN(256))
	}
	return m
}

func TestRenamer_AnythingIsReadableOrMalformed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		m := randomMessage(rand.New(rand.NewPCG(seed, 1)))
		if len(m) >= 8 { // the service adds annotations to a smaller one
			decode(t, m)
		}
	}
}

func FuzzMakeReadable(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(randomMessage(rand.New(rand.NewPCG(seed, 2))))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		if len(m) >= 8 {
			decode(t, m)
		}
	})
}
