package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// FuzzIncomingTable receives a message with any table of headers, and sends a copy of it on,
// as the engine does for a delayed retry or the error queue.
func FuzzIncomingTable(f *testing.F) {
	f.Add([]byte("\x01S\x04key1\x05value\x01l\x03num\x00\x00\x00\x00\x00\x00\x00\x07"), "id", "type", "reply", byte(0), false)
	f.Add([]byte("\x02F\x05table\x02A\x01aS\x01b\x01xS\x01c\x00V\x00D\x01d\xff\x00\x00\x00\x05"), "\xff", "", "\xff", byte(9), true)
	f.Add([]byte("\x01S\x00\x03xyz\x01S\x0eReprise.CopyID\x09c1@orders\x01S\x10Reprise.Escaped.\x01x"), "", "a,b", "", byte(0), false)
	f.Add([]byte("\x01S\x12Reprise.Properties\x0f{\"rabbitmq.x\":1}\x01S\x0eReprise.CopyID\x02c1"), "m", "t", "r", byte(255), true)
	f.Add([]byte("\x01S\x12Reprise.Undecodable\x02no\x01S\x0fReprise.Header.\x01x\x01S\x11Reprise.Header.CC\x01y\x01S\x02CC\x01z"), "m", "t", "r", byte(255), true)
	f.Fuzz(func(t *testing.T, table []byte, id, messageType, reply string, priority byte, redelivered bool) {
		g := tableMaker{table}
		d := &amqp.Delivery{
			Headers: g.table(0), MessageId: id, Type: messageType, ReplyTo: reply, CorrelationId: reply, ContentType: messageType, Priority: priority, Redelivered: redelivered, Body: []byte("body"),
		}
		format := NewFormat(Config{})
		var in core.Incoming
		format.Incoming(d, "orders", &in)
		checkReceived(t, &in)
		if n := DeliveryCount(d); n < 1 || n > math.MaxInt32 {
			t.Errorf("the delivery count is %d", n)
		}
		// A decimal number of six bytes has at most 257 characters.
		input := len(table) + 3*(len(id)+len(messageType)+2*len(reply))
		if size := in.Headers.Bytes() + len(in.GroupKey); size > 64*input+400 {
			t.Errorf("%d bytes are read as %d", input, size)
		}

		out := core.Outgoing{ID: in.ID, Queue: "error", Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: core.ReasonMoveToError}
		p, err := format.Publishing(&out, "c2")
		if err != nil {
			if !errors.Is(err, core.ErrTooLarge) {
				t.Errorf("a copy of %+v with %q: %v", in, in.Headers.Map(), err)
			}
			return
		}
		if err := p.Headers.Validate(); err != nil {
			t.Errorf("the client library refuses the headers %q: %v", p.Headers, err)
		}
		var copied core.Incoming
		format.Incoming(delivered(&p, ""), "error", &copied)
		if copied.Malformed != nil || !maps.Equal(copied.Headers.Map(), in.Headers.Map()) || !bytes.Equal(copied.Body, in.Body) || copied.GroupKey != in.GroupKey || !maps.Equal(copied.Properties, in.Properties) || copied.ID != in.ID && in.IDSent {
			t.Errorf("a copy of %+v with %q is read as %+v with %q", in, in.Headers.Map(), copied, copied.Headers.Map())
		}
	})
}

// checkReceived fails for a field that no handler may see.
func checkReceived(t *testing.T, in *core.Incoming) {
	t.Helper()
	for key, value := range in.Headers.All() {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Errorf("no header may be %q: %q", key, value)
		}
	}
	for name, value := range in.Properties {
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			t.Errorf("no property may be %q: %q", name, value)
		}
	}
	if !utf8.ValidString(in.ID) || !utf8.ValidString(in.GroupKey) {
		t.Errorf("ID %q, group key %q", in.ID, in.GroupKey)
	}
}

// tableMaker makes a table as the client library decodes it of bytes that are nearly those
// of AMQP: a table is a count, and each of its headers a type, a name and a value; lengths
// have one byte.
type tableMaker struct{ rest []byte }

func (g *tableMaker) take(n int) []byte {
	taken := make([]byte, n)
	g.rest = g.rest[copy(taken, g.rest):]
	return taken
}

func (g *tableMaker) text() string {
	n := min(int(g.take(1)[0]), len(g.rest))
	return string(g.take(n))
}

func (g *tableMaker) table(depth int) amqp.Table {
	table := amqp.Table{}
	for len(g.rest) > 0 && (depth == 0 || len(table) < 8) {
		if g.take(1)[0] == 0 {
			break
		}
		kind := g.take(1)[0]
		name := g.text()
		table[name] = g.value(kind, depth)
	}
	return table
}

func (g *tableMaker) value(kind byte, depth int) any {
	switch kind {
	case 't':
		return g.take(1)[0] != 0
	case 'b':
		return int8(g.take(1)[0])
	case 'B':
		return g.take(1)[0]
	case 's':
		return int16(binary.BigEndian.Uint16(g.take(2)))
	case 'I':
		return int32(binary.BigEndian.Uint32(g.take(4)))
	case 'l':
		return int64(binary.BigEndian.Uint64(g.take(8)))
	case 'f':
		return math.Float32frombits(binary.BigEndian.Uint32(g.take(4)))
	case 'd':
		return math.Float64frombits(binary.BigEndian.Uint64(g.take(8)))
	case 'D':
		return amqp.Decimal{Scale: g.take(1)[0], Value: int32(binary.BigEndian.Uint32(g.take(4)))}
	case 'T':
		return time.Unix(int64(binary.BigEndian.Uint64(g.take(8))), 0)
	case 'x':
		return []byte(g.text())
	case 'F':
		if depth < 8 {
			return g.table(depth + 1)
		}
	case 'A':
		var list []any
		for n := g.take(1)[0] % 8; n > 0 && depth < 8; n-- {
			list = append(list, g.value(g.take(1)[0], depth+1))
		}
		return list
	case 'V':
		return nil
	}
	return g.text()
}
