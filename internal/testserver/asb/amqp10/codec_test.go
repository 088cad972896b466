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

// values are values and their encodings, from the examples and tables of AMQP 1.0, part 1.
var values = []struct {
	name  string
	value any
	hex   string
}{
	{"null", nil, "40"},
	{"true", true, "41"},
	{"false", false, "42"},
	{"ubyte", uint8(200), "50c8"},
	{"ushort", uint16(0x0102), "600102"},
	{"uint 0", uint32(0), "43"},
	{"small uint", uint32(200), "52c8"},
	{"uint", uint32(0x01020304), "7001020304"},
	{"ulong 0", uint64(0), "44"},
	{"small ulong", uint64(200), "53c8"},
	{"ulong", uint64(256), "800000000000000100"},
	{"byte", int8(-2), "51fe"},
	{"short", int16(-2), "61fffe"},
	{"small int", int32(-2), "54fe"},
	{"int", int32(-200), "71ffffff38"},
	{"small long", int64(-2), "55fe"},
	{"long", int64(-200), "81ffffffffffffff38"},
	{"float", float32(1.5), "723fc00000"},
	{"double", 1.5, "823ff8000000000000"},
	{"char", Char('A'), "7300000041"},
	{"timestamp", time.UnixMilli(-1).UTC(), "83ffffffffffffffff"},
	{"uuid", UUID{15: 1}, "9800000000000000000000000000000001"},
	{"decimal32", Decimal32{1}, "7401000000"},
	{"decimal64", Decimal64{1}, "840100000000000000"},
	{"decimal128", Decimal128{1}, "9401000000000000000000000000000000"},
	{"binary", []byte{1, 2}, "a0020102"},
	{"string", "é", "a102c3a9"},
	{"symbol", Symbol("ab"), "a3026162"},
	{"empty list", List{}, "45"},
	{"list", List{uint32(1), "a"}, "c006025201a10161"},
	{"map", Map{{Symbol("k"), true}}, "c10502a3016b41"},
	{"array", Array{int32(1), int32(2)}, "e00a02710000000100000002"},
	{"empty array", Array{}, "e0020040"},
	{"array of strings", Array{"a"}, "e00701b10000000161"},
	{"array of booleans", Array{true, false}, "e00402560100"},
	{"array of lists", Array{List{}, List{uint8(1)}}, "e01402d0" + "0000000400000000" + "00000006000000015001"},
	{"described", Described{Symbol("d"), "v"}, "00a30164a10176"},
	{"described array", Array{Described{uint64(1), uint8(7)}}, "e00601005301" + "5007"},
}

func TestValue_EncodedAndDecoded(t *testing.T) {
	t.Parallel()
	for _, tt := range values {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want, err := hex.DecodeString(tt.hex)
			if err != nil {
				t.Fatal(err)
			}
			b, err := AppendValue(nil, tt.value)
			if err != nil || !bytes.Equal(b, want) {
				t.Errorf("encoded %x, %v in place of %x", b, err, want)
			}
			v, rest, err := DecodeValue(append(want, 0xff))
			if err != nil || len(rest) != 1 || !reflect.DeepEqual(v, tt.value) {
				t.Errorf("decoded %#v, %d bytes left, %v", v, len(rest), err)
			}
			for n := range want {
				if v, _, err := DecodeValue(want[:n]); err == nil {
					t.Errorf("the first %d bytes were decoded as %#v", n, v)
				}
			}
		})
	}
}

func TestValue_LongFormsAreUsedWhenNeeded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	many := make(List, 300)
	for _, v := range []any{
		long, Symbol(long), []byte(long), List{long}, many, Map{{"k", long}}, Array{long, "y"},
		Array{List{long}, List{}}, Array{Map{{"k", "v"}}, Map{{"k", long}}}, Array{Array{uint8(1)}, Array{}}, uint32(math.MaxUint32), uint64(math.MaxUint64),
		int64(math.MinInt64), int32(math.MaxInt32),
	} {
		b, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if got, rest, err := DecodeValue(b); err != nil || len(rest) > 0 || !reflect.DeepEqual(got, v) {
			t.Errorf("%T of %d bytes: decoded %#v, %d bytes left, %v", v, len(b), got, len(rest), err)
		}
	}
}

func TestArray_OfEachType(t *testing.T) {
	t.Parallel()
	for _, tt := range values {
		if _, ok := tt.value.(Described); ok {
			continue // its array is a row of the table
		}
		a := Array{tt.value, tt.value, tt.value}
		b, err := AppendValue(nil, a)
		if err != nil {
			t.Error(tt.name, err)
			continue
		}
		if got, rest, err := DecodeValue(b); err != nil || len(rest) > 0 || !reflect.DeepEqual(got, a) {
			t.Errorf("%s: %x was decoded as %#v, %d bytes left, %v", tt.name, b, got, len(rest), err)
		}
	}
}

func TestAppendValue_RefusesOtherTypes(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		struct{}{}, 1, List{1}, Map{{1, nil}}, Map{{nil, 1}}, Array{"a", true}, Array{1}, Described{1, nil}, Described{nil, 1},
		Array{Described{uint64(1), "a"}, Described{uint64(1), true}}, Array{Described{uint64(1), "a"}, Described{uint64(2), "a"}},
		Array{Described{uint64(1), "a"}, "a"}, Array{"a", Described{uint64(1), "a"}},
	} {
		if b, err := AppendValue(nil, v); err == nil {
			t.Errorf("%#v was encoded as %x", v, b)
		}
	}
}

// hostile are bytes that announce more than there is.
var hostile = map[string]string{
	"no bytes":                        "",
	"unknown constructor":             "ff",
	"string longer than the rest":     "b1ffffffff61",
	"length beyond 31 bits":           "b080000000",
	"list of more elements than fit":  "d0000000057fffffff40",
	"list that ends too late":         "c00301404040",
	"map without a last value":        "c1030340404040",
	"array of four billion nulls":     "f000000005ffffffff40",
	"array of a billion nulls":        "f0000000053fffffff40",
	"array of a billion empty lists":  "f0000000053fffffff45",
	"array of more longs than fit":    "f00000000d7fffffff810000000000000001",
	"array without a constructor":     "e00100",
	"boolean of 2":                    "5602",
	"described without a value":       "005301",
	"nested descriptors":              strings.Repeat("00", 100) + "5301",
	"array of nested descriptors":     "e05001" + strings.Repeat("005301", 100),
	"list within lists":               nested("c0", 60),
	"compound with a size of nothing": "c000",
}

func nested(code string, depth int) string {
	b := []byte{0x45}
	for range depth {
		b = append([]byte{0xc0, byte(len(b) + 1), 1}, b...)
	}
	return hex.EncodeToString(b)
}

func TestDecodeValue_RefusesHostileBytes(t *testing.T) {
	t.Parallel()
	for name, h := range hostile {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(name, err)
		}
		if v, _, err := DecodeValue(b); err == nil {
			t.Errorf("%s: decoded %#v", name, v)
		}
	}
}

// performatives have a value in each field.
var performatives = []Performative{
	&Open{
		ContainerID: "c", Hostname: "h", MaxFrameSize: 1000, ChannelMax: 7, IdleTimeout: 30 * time.Second, OutgoingLocales: []Symbol{"en"},
		IncomingLocales: []Symbol{"en", "de"}, OfferedCapabilities: []Symbol{"o"}, DesiredCapabilities: []Symbol{"d"}, Properties: Map{{Symbol("k"), "v"}},
	},
	&Open{MaxFrameSize: math.MaxUint32, ChannelMax: math.MaxUint16},
	&Begin{
		RemoteChannel: new(uint16(1)), NextOutgoingID: 2, IncomingWindow: 3, OutgoingWindow: 4, HandleMax: 5, OfferedCapabilities: []Symbol{"o"},
		DesiredCapabilities: []Symbol{"d"}, Properties: Map{},
	},
	&Begin{HandleMax: math.MaxUint32},
	&Attach{
		Name: "n", Handle: 1, Role: RoleReceiver, SenderSettleMode: new(SenderSettled), ReceiverSettleMode: new(ReceiverSecond),
		Source: &Source{
			Address: "a", Durable: 2, ExpiryPolicy: "never", Timeout: 9, Dynamic: true, DynamicNodeProperties: Map{}, DistributionMode: "copy",
			Filter:         Map{{Symbol("f"), Described{uint64(0x137000000c), "s"}}},
			DefaultOutcome: Described{uint64(0x26), List{}}, Outcomes: []Symbol{"o", "p"}, Capabilities: []Symbol{"c"},
		},
		Target: &Target{
			Address: "t", Durable: 1, ExpiryPolicy: "never", Timeout: 8, Dynamic: true, DynamicNodeProperties: Map{{Symbol("k"), nil}}, Capabilities: []Symbol{"c"},
		},
		Unsettled: Map{{[]byte{1}, nil}}, IncompleteUnsettled: true, InitialDeliveryCount: new(uint32(3)), MaxMessageSize: 1 << 40,
		OfferedCapabilities: []Symbol{"o"}, DesiredCapabilities: []Symbol{"d"}, Properties: Map{{Symbol("k"), int64(5)}},
	},
	&Attach{Name: "", Source: &Source{}, Target: &Target{}},
	&Flow{
		NextIncomingID: new(uint32(1)), IncomingWindow: 2, NextOutgoingID: 3, OutgoingWindow: 4, Handle: new(uint32(5)), DeliveryCount: new(uint32(6)),
		LinkCredit: new(uint32(7)), Available: new(uint32(8)), Drain: true, Echo: true, Properties: Map{},
	},
	&Flow{},
	&Transfer{
		Handle: 1, DeliveryID: new(uint32(2)), DeliveryTag: []byte("tag"), MessageFormat: new(uint32(0x80013700)), Settled: true, More: true,
		ReceiverSettleMode: new(ReceiverSecond), State: Received{1, 2}, Resume: true, Aborted: true, Batchable: true, Payload: []byte("payload"),
	},
	&Transfer{Payload: []byte{}},
	&Disposition{Role: RoleReceiver, First: 1, Last: new(uint32(300)), Settled: true, State: Accepted{}, Batchable: true},
	&Disposition{State: Released{}},
	&Disposition{State: Rejected{}},
	&Disposition{State: Rejected{Error: &Error{"c", "d", Map{{Symbol("i"), "v"}}}}},
	&Disposition{State: Modified{DeliveryFailed: true, UndeliverableHere: true, MessageAnnotations: Map{{Symbol("i"), "v"}}}},
	&Disposition{State: OtherState{Described{uint64(0x34), List{[]byte("txn")}}}},
	&Detach{Handle: 1, Closed: true, Error: &Error{Condition: "c"}},
	&Detach{},
	&End{Error: &Error{Condition: "c", Description: strings.Repeat("d", 300)}},
	&End{},
	&Close{Error: &Error{Condition: "c"}},
	&Close{},
	&SASLMechanisms{Mechanisms: []Symbol{"ANONYMOUS", "PLAIN"}},
	&SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00u\x00p"), Hostname: "h"},
	&SASLOutcome{Code: 1, AdditionalData: []byte("a")},
}

func TestPerformative_EncodedAndDecoded(t *testing.T) {
	t.Parallel()
	for _, p := range performatives {
		b, err := AppendPerformative(nil, p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodePerformative(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%#v was decoded as %#v, %v", p, got, err)
		}
		end := len(b)
		if transfer, ok := p.(*Transfer); ok {
			end -= len(transfer.Payload)
		}
		for n := range end {
			if got, err := DecodePerformative(b[:n]); err == nil {
				t.Errorf("the first %d bytes of a %T were decoded as %#v", n, p, got)
			}
		}
	}
}

func TestPerformative_DecodedWithSymbolicDescriptor(t *testing.T) {
	t.Parallel()
	b := append([]byte{0}, mustAppend(t, Symbol("amqp:end:list"))...)
	p, err := DecodePerformative(append(b, 0x45))
	if err != nil || !reflect.DeepEqual(p, &End{}) {
		t.Errorf("decoded %#v, %v", p, err)
	}
}

func mustAppend(t *testing.T, v any) []byte {
	t.Helper()
	b, err := AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodePerformative_RefusesHostileBytes(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]Described{
		"unknown descriptor":        {uint64(0x99), List{}},
		"large descriptor":          {uint64(1 << 40), List{}},
		"descriptor of a state":     {uint64(codeAccepted), List{}},
		"map in place of a list":    {uint64(codeEnd), Map{}},
		"begin without a window":    {uint64(codeBegin), List{}},
		"flow without a window":     {uint64(codeFlow), List{uint32(1)}},
		"attach without a role":     {uint64(codeAttach), List{"n", uint32(0)}},
		"role that is a number":     {uint64(codeAttach), List{"n", uint32(0), uint32(1)}},
		"handle that is a ulong":    {uint64(codeDetach), List{uint64(1)}},
		"handle that is missing":    {uint64(codeDetach), List{}},
		"error that is a string":    {uint64(codeEnd), List{"e"}},
		"error that is an outcome":  {uint64(codeEnd), List{Described{uint64(codeAccepted), List{}}}},
		"state that is a string":    {uint64(codeDisposition), List{true, uint32(1), nil, nil, "s"}},
		"source that is a target":   {uint64(codeAttach), List{"n", uint32(0), true, nil, nil, Described{uint64(codeTarget), List{}}}},
		"mechanisms that are bytes": {uint64(codeSASLMechanisms), List{[]byte("PLAIN")}},
		"tag of 33 bytes":           {uint64(codeTransfer), List{uint32(0), uint32(0), make([]byte, 33)}},
		"tag that is a string":      {uint64(codeTransfer), List{uint32(0), uint32(0), "tag"}},
		"outcome without a code":    {uint64(codeSASLOutcome), List{}},
	} {
		if p, err := DecodePerformative(mustAppend(t, v)); err == nil {
			t.Errorf("%s: decoded %#v", name, p)
		}
	}
	if p, err := DecodePerformative(append(mustAppend(t, Described{uint64(codeEnd), List{}}), 0x40)); err == nil {
		t.Errorf("bytes behind the performative: decoded %#v", p)
	}
}

func FuzzDecodeValue(f *testing.F) {
	for _, tt := range values {
		b, err := hex.DecodeString(tt.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, h := range hostile {
		b, err := hex.DecodeString(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xe0, 10, 2, 0, 0x72, 0x7f, 0xc0, 0, 0, 0x50, 1, 2}) // a NaN describes two elements
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := DecodeValue(b)
		if err != nil {
			return
		}
		if len(rest) >= len(b) {
			t.Fatalf("%#v took no bytes", v)
		}
		first, err := AppendValue(nil, v)
		if err != nil {
			t.Fatalf("%#v was decoded and cannot be encoded: %v", v, err)
		}
		v, rest, err = DecodeValue(first)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%x cannot be decoded: %d bytes left, %v", first, len(rest), err)
		}
		second, err := AppendValue(nil, v)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%x was encoded as %x, %v", first, second, err)
		}
	})
}

func FuzzDecodePerformative(f *testing.F) {
	for _, p := range performatives {
		b, err := AppendPerformative(nil, p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePerformative(b)
		if err != nil {
			return
		}
		first, err := AppendPerformative(nil, p)
		if err != nil {
			t.Fatalf("%#v was decoded and cannot be encoded: %v", p, err)
		}
		p, err = DecodePerformative(first)
		if err != nil {
			t.Fatalf("%x cannot be decoded: %v", first, err)
		}
		second, err := AppendPerformative(nil, p)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%x was encoded as %x, %v", first, second, err)
		}
	})
}

func FuzzFrames(f *testing.F) {
	var b []byte
	for _, p := range performatives {
		var err error
		if b, err = appendFrame(b, frameAMQP, 3, p, 1<<16); err != nil {
			f.Fatal(err)
		}
		f.Add(appendHeartbeat(b))
	}
	f.Add([]byte{0, 0, 0, 8, 1, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 512
		frames := newFrameReader(bytes.NewReader(b), limit)
		for taken := 0; ; {
			f, err := frames.next()
			if err != nil {
				return
			}
			if taken += frameHeader + len(f.body); taken > len(b) || len(f.body) > limit-frameHeader {
				t.Fatalf("a body of %d bytes, %d bytes of %d so far", len(f.body), taken, len(b))
			}
		}
	})
}
