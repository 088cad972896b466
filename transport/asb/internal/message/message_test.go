package message_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
)

// read returns a message of a queue as the adapter reads it.
func read(codec *message.Codec, queue string, m *azservicebus.ReceivedMessage) *message.Received {
	var r message.Received
	codec.Read(&r, queue, m)
	return &r
}

// foreign is a message as the SDK receives it.
func foreign(change func(m *azservicebus.ReceivedMessage)) *azservicebus.ReceivedMessage {
	sequence, enqueued := int64(4711), time.UnixMilli(1_800_000_000_000)
	m := &azservicebus.ReceivedMessage{
		SequenceNumber: &sequence, EnqueuedTime: &enqueued,
		RawAMQPMessage: &azservicebus.AMQPAnnotatedMessage{
			Header: &azservicebus.AMQPAnnotatedMessageHeader{}, Properties: &azservicebus.AMQPAnnotatedMessageProperties{},
			Body: azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("body")}},
		},
	}
	change(m)
	return m
}

// ofDotNet are properties of the types that .NET's clients describe, as go-amqp reads them from the wire.
func ofDotNet(t *testing.T) map[string]any {
	t.Helper()
	number := func(n int64) []byte { return binary.BigEndian.AppendUint64([]byte{0x81}, uint64(n)) }
	text := func(code byte, s string) []byte { return append([]byte{code, byte(len(s))}, s...) }
	const ticks = 10_000_000
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_700, time.UTC)
	var pairs []byte
	values := []struct {
		key, descriptor string
		value           []byte
	}{
		{"span", "com.microsoft:timespan", number(-((26*3600+3*60+4)*ticks + 50_000))},
		{"minute", "com.microsoft:timespan", number(60 * ticks)},
		{"shortest", "com.microsoft:timespan", number(math.MinInt64)},
		{"at", "com.microsoft:datetime-offset", number(at.UnixNano()/100 + 621355968000000000)},
		{"uri", "com.microsoft:uri", text(0xa1, "https://example.com/a?b=c")},
		{"other", "example:other", number(7)},
	}
	for _, v := range values {
		pairs = append(pairs, text(0xa1, v.key)...)
		pairs = append(append(append(pairs, 0), text(0xa3, v.descriptor)...), v.value...)
	}
	encoded := binary.BigEndian.AppendUint32([]byte{0, 0x53, 0x74, 0xd1}, uint32(len(pairs)+4))
	encoded = append(binary.BigEndian.AppendUint32(encoded, uint32(2*len(values))), pairs...)
	var m amqp.Message
	if err := m.UnmarshalBinary(encoded); err != nil {
		t.Fatal(err)
	}
	return m.ApplicationProperties
}

func TestRead_ForeignProperties(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	in := read(&codec, "orders", foreign(func(m *azservicebus.ReceivedMessage) {
		m.ApplicationProperties = map[string]any{
			"text": "ü", "int": int32(-5), "long": int64(1 << 40), "unsigned": uint64(1 << 63), "bool": true, "double": 1.5, "float": float32(0.1),
			"time": time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC), "symbol": amqp.Symbol("s"), "binary": []byte{0, 255}, "nothing": nil,
			"uuid": amqp.UUID{0x12, 0x34},
		}
		maps.Copy(m.ApplicationProperties, ofDotNet(t))
		m.MessageID = "native"
		m.RawAMQPMessage.Properties.MessageID = "native"
		contentType := "text/plain"
		m.ContentType = &contentType
	}))
	for key, want := range map[string]string{
		"text": "ü", "int": "-5", "long": "1099511627776", "unsigned": "9223372036854775808", "bool": "true", "double": "1.5", "float": "0.1",
		"time": "2026-01-02T03:04:05.006Z", "symbol": "s", "binary": "AP8=", "nothing": "", "uuid": "12340000-0000-0000-0000-000000000000",
		"span": "-1.02:03:04.0050000", "minute": "00:01:00", "shortest": "-10675199.02:48:05.4775808",
		"at": "2026-01-02T03:04:05.0060007Z", "uri": "https://example.com/a?b=c", "other": "7",
		headers.ContentType: "text/plain",
	} {
		if got, has := in.Headers.Lookup(key); got != want || !has {
			t.Errorf("the header %s is %q, %v; want %q", key, got, has, want)
		}
	}
	if in.ID != "native" || in.Malformed != nil || string(in.Body) != "body" || in.DeliveryCount != 1 {
		t.Errorf("it was read as %q, %v, %q, delivery %d", in.ID, in.Malformed, in.Body, in.DeliveryCount)
	}
}

func TestRead_Bodies(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	type body = azservicebus.AMQPAnnotatedMessageBody
	for name, c := range map[string]struct {
		body      body
		want      string
		malformed bool
	}{
		"data":             {body{Data: [][]byte{[]byte("one")}}, "one", false},
		"data in parts":    {body{Data: [][]byte{[]byte("one "), []byte("two")}}, "one two", false},
		"text":             {body{Value: "text"}, "text", false},
		"binary":           {body{Value: []byte("bytes")}, "bytes", false},
		"a number":         {body{Value: int64(7)}, "7", false},
		"none":             {body{}, "", false},
		"a map":            {body{Value: map[any]any{"a": 1}}, "", true},
		"a list":           {body{Value: []any{1}}, "", true},
		"an AMQP sequence": {body{Sequence: [][]any{{1}}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			in := read(&codec, "orders", foreign(func(m *azservicebus.ReceivedMessage) { m.RawAMQPMessage.Body = c.body }))
			if string(in.Body) != c.want || (in.Malformed != nil) != c.malformed {
				t.Errorf("the body is %q, malformed: %v", in.Body, in.Malformed)
			}
		})
	}
}

func TestRead_DeliveryCountWithoutReleases(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	for name, c := range map[string]struct {
		counted  uint32
		released any
		want     int
	}{
		"first delivery":          {0, nil, 1},
		"after two failures":      {2, nil, 3},
		"after a release":         {1, int64(1), 1},
		"after both":              {5, int64(2), 4},
		"a count of another type": {5, int32(2), 4},
		"an application's header": {5, "2", 6},
		"more than there can be":  {1, int64(9), 2},
		"a negative number":       {1, int64(-9), 2},
	} {
		t.Run(name, func(t *testing.T) {
			in := read(&codec, "orders", foreign(func(m *azservicebus.ReceivedMessage) {
				m.RawAMQPMessage.Header.DeliveryCount = c.counted
				if c.released != nil {
					m.ApplicationProperties = map[string]any{"Reprise.Released": c.released, "Reprise.StateOf": *m.SequenceNumber}
				}
			}))
			if in.DeliveryCount != c.want || in.Redelivered != (c.counted > 0) {
				t.Errorf("the delivery count is %d, redelivered %v; want %d", in.DeliveryCount, in.Redelivered, c.want)
			}
		})
	}
}

// Any sender can write the properties in which the adapter keeps the state of a message.
func TestRead_StateOfAnotherMessageIsIgnored(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock), MaxPostpone: 24 * time.Hour}
	const own, due = int64(4711), time.Hour
	for name, c := range map[string]struct {
		queue    string
		counted  uint32
		stateOf  any // nil: missing
		due      time.Duration
		believed bool
	}{
		"its own":                              {"q", 1, own, due, true},
		"its own, of another type":             {"q", 1, int32(own), due, true},
		"another one's":                        {"q", 1, own + 1, due, false},
		"the number as text":                   {"q", 1, "4711", due, false},
		"that of no message":                   {"q", 1, nil, due, false},
		"on the first delivery":                {"q", 0, own, due, false},
		"later than anything can be postponed": {"q", 1, own, 200 * 365 * 24 * time.Hour, false},
		"in a dead-letter queue":               {"q/$deadletterqueue", 0, own, due, true},
		"another one's dead letter":            {"q/$deadletterqueue", 1, own + 1, due, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := foreign(func(m *azservicebus.ReceivedMessage) {
				m.RawAMQPMessage.Header.DeliveryCount = c.counted
				m.ApplicationProperties = map[string]any{
					"Reprise.NotBefore": time.Now().Add(c.due).UnixMilli(), "Reprise.Failed": int64(3),
				}
				if c.stateOf != nil {
					m.ApplicationProperties["Reprise.StateOf"] = c.stateOf
				}
			})
			in := read(&codec, c.queue, m)
			postponed, failed := c.believed && c.queue == "q", 0
			if c.believed && !postponed {
				failed = 3
			}
			if in.NotBefore.IsZero() == postponed || in.Failed != failed {
				t.Errorf("it is due at %v, after %d failures in the dead-letter queue; want due later: %v, %d failures", in.NotBefore, in.Failed, postponed, failed)
			}
			if in.Forged != (c.due > due) {
				t.Errorf("its state is taken as forged: %v", in.Forged)
			}
			// Otherwise the first settlement would make the rest of a forged state the message's own.
			state := in.State
			state.Released++
			written := state.Properties(m)
			for key := range m.ApplicationProperties {
				if _, overwritten := written[key]; !overwritten && key != "Reprise.StateOf" {
					t.Errorf("a settlement leaves %s", key)
				}
			}
			if written["Reprise.StateOf"] != own || !postponed && written["Reprise.NotBefore"] != int64(0) {
				t.Errorf("a settlement writes %v", written)
			}
		})
	}
	if written := (message.State{}).Properties(foreign(func(*azservicebus.ReceivedMessage) {})); written != nil {
		t.Errorf("for a message without a state a settlement writes %v", written)
	}
}

// ownNames are the names of properties of the adapter.
var ownNames = []string{"Reprise.StateOf", "Reprise.Released", "Reprise.NotBefore", "Reprise.Failed", "Reprise.NativeMessageID"}

func TestEncode_HeadersWithNamesOfOwnPropertiesArrive(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	want := map[string]string{"Reprise.Escaped.Reprise.Released": "escaped", "Reprise.GroupKey": "a header", "Reprise.Other": "other"}
	for i, name := range ownNames {
		want[name] = strconv.Itoa(i)
	}
	copied := want
	for range 3 { // copies of copies
		m, err := codec.Encode(&core.Outgoing{ID: "id", Headers: core.HeadersFromMap(copied), Reason: core.ReasonMoveToError}, false)
		if err != nil {
			t.Fatal(err)
		}
		in := read(&codec, "error", foreign(func(r *azservicebus.ReceivedMessage) { r.ApplicationProperties = m.ApplicationProperties }))
		copied = in.Headers.Map()
		if !maps.Equal(copied, want) {
			t.Fatalf("the headers arrived as %v, want %v", copied, want)
		}
	}
}

func TestRead_OwnPropertiesOfASenderAreNoHeaders(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	for _, value := range []any{"text", "\xff", true, 1.5, nil, int64(-1), uint64(math.MaxUint64), []byte{255}, amqp.UUID{1}, time.Now()} {
		in := read(&codec, "q", foreign(func(m *azservicebus.ReceivedMessage) {
			m.ApplicationProperties = map[string]any{}
			for _, name := range ownNames {
				m.ApplicationProperties[name] = value
			}
		}))
		if in.Headers.Len() > 0 || in.Malformed != nil || in.DeliveryCount != 1 {
			t.Errorf("%T: the headers are %v, delivery %d, malformed: %v", value, in.Headers, in.DeliveryCount, in.Malformed)
		}
	}
}

// Senders may write any bytes into the native fields of a message.
func TestRead_TextsThatAreNotUTF8AreInNoCopy(t *testing.T) {
	bad := "a\xff\xfe"
	codec := message.Codec{Clock: new(transport.ServiceClock), MessageType: func(_ string, m *azservicebus.ReceivedMessage) string { return *m.Subject }}
	for name, change := range map[string]func(m *azservicebus.ReceivedMessage){
		"a message with a number": func(*azservicebus.ReceivedMessage) {},
		"without one":             func(m *azservicebus.ReceivedMessage) { m.SequenceNumber = nil },
		"of a copy": func(m *azservicebus.ReceivedMessage) {
			m.ApplicationProperties = map[string]any{"Reprise.NativeMessageID": bad}
		},
	} {
		in := read(&codec, "q", foreign(func(m *azservicebus.ReceivedMessage) {
			m.MessageID = bad
			m.RawAMQPMessage.Properties.MessageID = bad
			m.SessionID, m.Subject, m.CorrelationID, m.ReplyTo, m.ContentType = new(bad+"s"), &bad, &bad, &bad, &bad
			change(m)
		}))
		if in.GroupKey == "" || in.Headers.Get(headers.MessageTypes) == "" || in.ID == "" {
			t.Errorf("%s: it has the group %q, the id %q and the headers %v", name, in.GroupKey, in.ID, in.Headers)
		}
		out, err := codec.Encode(&core.Outgoing{ID: in.ID, GroupKey: in.GroupKey, Headers: in.Headers, Reason: core.ReasonMoveToError}, true)
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{in.ID, in.NativeID, in.GroupKey, *out.Properties.GroupID, fmt.Sprint(out.Properties.MessageID, out.Properties.CorrelationID)}
		for key, value := range out.ApplicationProperties {
			texts = append(texts, key, fmt.Sprint(value))
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Errorf("%s: a copy has %q", name, text)
			}
		}
	}
}

func TestRead_HeaderThatIsNoUTF8(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	in := read(&codec, "orders", foreign(func(m *azservicebus.ReceivedMessage) {
		m.ApplicationProperties = map[string]any{"good": "text", "bad": "\xff"}
	}))
	if !errors.Is(in.Malformed, core.ErrInvalidHeader) || in.Headers.Get("good") != "text" || string(in.Body) != "body" {
		t.Errorf("it was read as %v, %v, %q", in.Malformed, in.Headers, in.Body)
	}
}

func TestEncode_NativeMessageID(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	long := strings.Repeat("i", 129)
	for name, c := range map[string]struct {
		out  core.Outgoing
		kept bool
	}{
		"an application's message":           {core.Outgoing{ID: "id"}, true},
		"a delayed retry":                    {core.Outgoing{ID: "id", Reason: core.ReasonDelayedRetry}, false},
		"a move to the error queue":          {core.Outgoing{ID: "id", Reason: core.ReasonMoveToError}, false},
		"a forwarded copy":                   {core.Outgoing{ID: "id", Reason: core.ReasonForward}, false},
		"an id that is too long":             {core.Outgoing{ID: long}, false},
		"an id that is the group's key, too": {core.Outgoing{ID: "id", GroupKey: "id"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := codec.Encode(&c.out, false)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Properties.MessageID == c.out.ID; got != c.kept {
				t.Errorf("the native id of %q is %v", c.out.ID, m.Properties.MessageID)
			}
		})
	}
}

func TestEncode_TimeToLive(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	for _, c := range []struct {
		lives, delay, want time.Duration
		far                bool
	}{
		{lives: time.Second, want: time.Second},
		{lives: time.Nanosecond, want: time.Millisecond},
		{lives: time.Minute, delay: 45 * time.Second, want: 15 * time.Second},
		{lives: 365 * 24 * time.Hour, want: (1<<32 - 1) * time.Millisecond, far: true},
	} {
		m, err := codec.Encode(&core.Outgoing{ID: "id", TimeToBeReceived: c.lives, Delay: c.delay}, false)
		if err != nil {
			t.Fatal(err)
		}
		if m.Header.TTL != c.want {
			t.Errorf("of %v with a delay of %v the time to live is %v, want %v", c.lives, c.delay, m.Header.TTL, c.want)
		}
		p := m.Properties
		if far := p.AbsoluteExpiryTime != nil; far != c.far || far && p.AbsoluteExpiryTime.Sub(*p.CreationTime) != c.lives {
			t.Errorf("of %v the message expires at %v", c.lives, p.AbsoluteExpiryTime)
		}
	}
}

func TestEncode_RefusesHeadersThatServiceBusDoesNotTake(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	quarter := strings.Repeat("x", 16<<10)
	for name, c := range map[string]struct {
		headers map[string]string
		want    error
	}{
		"a property above 32 KiB": {map[string]string{"a": strings.Repeat("x", 32<<10)}, core.ErrTooLarge},
		"properties above 64 KiB": {map[string]string{"a": quarter, "b": quarter, "c": quarter, "d": quarter}, core.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := codec.Encode(&core.Outgoing{ID: "id", Headers: core.HeadersFromMap(c.headers), Reason: core.ReasonMoveToError}, false)
			if !errors.Is(err, c.want) {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
		})
	}
}

func TestGroupKeys_ArriveAsTheyWere(t *testing.T) {
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	sessions := map[string]string{}
	for _, key := range []string{"", "customer-7", "ünïcode", "with\x00NUL", strings.Repeat("long ", 200), strings.Repeat("x", 128), strings.Repeat("x", 129)} {
		for _, needed := range []bool{false, true} {
			m, err := codec.Encode(&core.Outgoing{ID: "id", GroupKey: key}, needed)
			if err != nil {
				t.Fatal(err)
			}
			session := ""
			if m.Properties.GroupID != nil {
				session = *m.Properties.GroupID
			}
			if (session != "") != (needed || key != "") || len(session) > 128 {
				t.Errorf("the session of the group %q is %q", key, session)
			}
			if other, has := sessions[session]; has && other != key {
				t.Errorf("the groups %q and %q have the session %q", key, other, session)
			}
			sessions[session] = key
			in := read(&codec, "orders", foreign(func(r *azservicebus.ReceivedMessage) {
				r.RawAMQPMessage = m
				r.ApplicationProperties, r.SessionID = m.ApplicationProperties, m.Properties.GroupID
				r.MessageID = m.Properties.MessageID.(string)
			}))
			if in.GroupKey != key {
				t.Errorf("the group %q arrives as %q", key, in.GroupKey)
			}
		}
	}
}

// A queue that was deleted and created anew begins again with its sequence numbers.
func TestRead_NativeIDNamesOneMessage(t *testing.T) {
	t.Parallel()
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	at := time.Now()
	ids := map[string]bool{}
	for _, m := range []*azservicebus.ReceivedMessage{
		{SequenceNumber: new(int64(1)), EnqueuedTime: &at},
		{SequenceNumber: new(int64(1)), EnqueuedTime: new(at.Add(time.Second))},
		{SequenceNumber: new(int64(2)), EnqueuedTime: &at},
	} {
		m.RawAMQPMessage = &azservicebus.AMQPAnnotatedMessage{}
		ids[read(&codec, "q", m).NativeID] = true
		ids[read(&codec, "other", m).NativeID] = true
	}
	if len(ids) != 6 {
		t.Errorf("six messages have the ids %v", ids)
	}
}

// The service tells one time to live, whether the sender has set it or the queue.
func TestHasOwnLifetime(t *testing.T) {
	t.Parallel()
	const unknown, forever = 0, math.MaxInt64
	arrived := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	late, early := arrived.Add(100*24*time.Hour), arrived.Add(-time.Hour)
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	for name, c := range map[string]struct {
		ttl       time.Duration
		absolute  *time.Time
		header    string
		queueLife time.Duration
		want      bool
	}{
		"none":                                  {0, nil, "", forever, false},
		"none, in a queue with a limit":         {time.Hour, nil, "", time.Hour, false},
		"foreign":                               {time.Minute, nil, "", forever, true},
		"foreign, in a queue with a limit":      {time.Minute, nil, "", time.Hour, true},
		"foreign, in an unknown queue":          {time.Minute, nil, "", unknown, false},
		"more than the header has room for":     {math.MaxUint32 * time.Millisecond, nil, "", forever, false},
		"a long one":                            {math.MaxUint32 * time.Millisecond, &late, "", forever, true},
		"one that was over before the arrival":  {0, &early, "", forever, false},
		"a header":                              {time.Minute + time.Millisecond, nil, "00:01:00", unknown, true},
		"a header, delayed":                     {time.Second, nil, "00:01:00", unknown, true},
		"a header of an earlier copy":           {time.Hour, nil, "00:01:00", time.Hour, false},
		"a header of an earlier copy, no limit": {0, nil, "00:01:00", forever, false},
		"a header of an earlier copy, unknown":  {time.Hour, nil, "00:01:00", unknown, false},
		"a header that cannot be read":          {time.Minute, nil, "soon", forever, false},
	} {
		m := foreign(func(m *azservicebus.ReceivedMessage) {
			m.EnqueuedTime = &arrived
			m.RawAMQPMessage.Header = &azservicebus.AMQPAnnotatedMessageHeader{TTL: c.ttl}
			m.RawAMQPMessage.Properties = &azservicebus.AMQPAnnotatedMessageProperties{AbsoluteExpiryTime: c.absolute}
			if c.header != "" {
				m.ApplicationProperties = map[string]any{headers.TimeToBeReceived: c.header}
			}
		})
		if got := read(&codec, "q", m).HasOwnLifetime(c.queueLife); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A copy that is sent again does not begin its time anew.
func TestResent_HasTheRestOfItsTime(t *testing.T) {
	t.Parallel()
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	for life, rest := range map[time.Duration]time.Duration{time.Hour: time.Hour - time.Minute, 100 * 24 * time.Hour: 100*24*time.Hour - time.Minute, time.Second: time.Millisecond} {
		sent, err := codec.Encode(&core.Outgoing{ID: "id", TimeToBeReceived: life}, false)
		if err != nil {
			t.Fatal(err)
		}
		arrived := time.Now().Add(-time.Minute)
		m := foreign(func(m *azservicebus.ReceivedMessage) {
			m.RawAMQPMessage, m.EnqueuedTime = sent, &arrived
			if sent.Properties.AbsoluteExpiryTime != nil {
				sent.Properties.AbsoluteExpiryTime = new(arrived.Add(life))
			}
		})
		copied := codec.Resent(read(&codec, "q", m), m)
		got := copied.Header.TTL
		if p := copied.Properties; p.AbsoluteExpiryTime != nil {
			got = p.AbsoluteExpiryTime.Sub(*p.CreationTime)
		}
		if got > rest || got < rest-time.Minute {
			t.Errorf("of %v, a minute later, %v are left, want %v", life, got, rest)
		}
	}
}

// A copy has another native id, and all that is read of the message stays.
func TestResent_IsReadAsBefore(t *testing.T) {
	t.Parallel()
	codec := message.Codec{Clock: new(transport.ServiceClock)}
	receive := func(sent *azservicebus.AMQPAnnotatedMessage) *azservicebus.ReceivedMessage {
		return foreign(func(m *azservicebus.ReceivedMessage) {
			m.RawAMQPMessage, m.ApplicationProperties, m.SessionID = sent, sent.ApplicationProperties, sent.Properties.GroupID
			m.MessageID, _ = sent.Properties.MessageID.(string)
		})
	}
	for name, out := range map[string]core.Outgoing{
		"ours":       {ID: "id", Body: []byte("body"), Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "id", "key": "value"})},
		"of a group": {ID: "id", GroupKey: "group", Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "id"})},
		"foreign":    {ID: "id", Body: []byte("body")},
	} {
		sent, err := codec.Encode(&out, true)
		if err != nil {
			t.Fatal(err)
		}
		first := receive(sent)
		want := read(&codec, "q", first)
		second := receive(codec.Resent(want, first))
		third := receive(codec.Resent(read(&codec, "q", second), second))
		for _, m := range []*azservicebus.ReceivedMessage{second, third} {
			got := read(&codec, "q", m)
			if m.MessageID == first.MessageID || got.ID != want.ID || got.IDSent != want.IDSent || got.GroupKey != want.GroupKey || !maps.Equal(maps.Collect(got.Headers.All()), maps.Collect(want.Headers.All())) {
				t.Errorf("%s: the copy %q is read as %q of the group %q with %v; want %q, %q, %v", name, m.MessageID, got.ID, got.GroupKey, got.Headers, want.ID, want.GroupKey, want.Headers)
			}
			if m.SessionID == nil || (*m.SessionID == m.MessageID) != (out.GroupKey == "") {
				t.Errorf("%s: the copy %q has the session %v", name, m.MessageID, m.SessionID)
			}
		}
	}
}
