package sqlserver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"time"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"
)

// What there is of MS-TDS in the stand-in.

// The types of packets.
const (
	packetBatch       = 1
	packetRPC         = 3
	packetReply       = 4
	packetAttention   = 6
	packetTransaction = 14
	packetLogin       = 16
	packetPrelogin    = 18
)

func readMessage(in io.Reader) (kind byte, body []byte, err error) {
	for last := false; !last; {
		var header [8]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return 0, nil, err
		}
		kind, last = header[0], header[1]&1 != 0
		part := make([]byte, int(binary.BigEndian.Uint16(header[2:]))-len(header))
		if _, err := io.ReadFull(in, part); err != nil {
			return 0, nil, err
		}
		body = append(body, part...)
	}
	return kind, body, nil
}

func writeMessage(out io.Writer, body []byte) error {
	const limit = 4096 - 8
	for first := true; first || len(body) > 0; first = false {
		part := body[:min(len(body), limit)]
		body = body[len(part):]
		packet := []byte{packetReply, 0, 0, 0, 0, 0, 1, 0}
		if len(body) == 0 {
			packet[1] = 1
		}
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)+len(part)))
		if _, err := out.Write(append(packet, part...)); err != nil {
			return err
		}
	}
	return nil
}

func parseRequest(kind byte, body []byte) (request, error) {
	p := &parser{rest: body}
	headers := &parser{rest: p.take(int(p.uint32()) - 4)}
	headers.take(4 + 2)
	r := request{transaction: headers.uint64(), args: map[string]any{}}
	switch kind {
	case packetBatch:
		r.text = fromUTF16(p.rest)
	case packetTransaction:
		request := p.uint16()
		r.text = map[uint16]string{5: begins, 7: commits, 8: rollsBack}[request]
		if r.text == "" {
			return r, fmt.Errorf("a transaction manager request %d", request)
		}
	default:
		if n := p.uint16(); n == 0xffff { // a number instead of a name
			p.take(2)
		} else if name := fromUTF16(p.take(2 * int(n))); name != "sp_executesql" {
			return r, fmt.Errorf("a call of %q", name)
		}
		p.take(2)
		for i := 0; len(p.rest) > 0; i++ {
			name := fromUTF16(p.take(2 * int(p.take(1)[0])))
			p.take(1)
			value, err := p.value()
			switch {
			case err != nil:
				return r, err
			case i == 0:
				r.text, _ = value.(string)
			case i == 1:
				r.declared, _ = value.(string)
			default:
				r.args[name] = value
			}
		}
	}
	return r, nil
}

// parser reads what a client sent.
type parser struct{ rest []byte }

func (p *parser) take(n int) []byte {
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) uint16() uint16 { return binary.LittleEndian.Uint16(p.take(2)) }
func (p *parser) uint32() uint32 { return binary.LittleEndian.Uint32(p.take(4)) }
func (p *parser) uint64() uint64 { return binary.LittleEndian.Uint64(p.take(8)) }

// The types of values, of those that there are.
const (
	typeInt      = 0x26
	typeTime     = 0x2b
	typeBytes    = 0xa5
	typeText     = 0xe7
	partsFollow  = 0xffff
	nullInParts  = 1<<64 - 1
	nullIn16Bits = 0xffff
)

// value reads one parameter: nil, an int64, a string, a []byte, or a time.Time.
func (p *parser) value() (any, error) {
	switch kind := p.take(1)[0]; kind {
	case typeInt:
		p.take(1)
		number := make([]byte, 8)
		if copy(number, p.take(int(p.take(1)[0]))) == 0 {
			return nil, nil
		}
		return int64(binary.LittleEndian.Uint64(number)), nil
	case typeTime:
		p.take(1)
		value := p.take(int(p.take(1)[0]))
		if len(value) == 0 {
			return nil, nil
		}
		fractions := binary.LittleEndian.Uint64(append(bytes.Clone(value[:5]), 0, 0, 0)) // of 100 ns
		days := binary.LittleEndian.Uint32(append(bytes.Clone(value[5:8]), 0))
		return time.Date(1, 1, 1+int(days), 0, 0, int(fractions/1e7), int(fractions%1e7)*100, time.UTC), nil
	case typeBytes, typeText:
		size := p.uint16()
		if kind == typeText {
			p.take(5) // the collation
		}
		value, null := p.bytes(size == partsFollow)
		switch {
		case null:
			return nil, nil
		case kind == typeText:
			return fromUTF16(value), nil
		}
		return value, nil
	default:
		return nil, fmt.Errorf("a parameter of type %#x", kind)
	}
}

func (p *parser) bytes(inParts bool) (value []byte, null bool) {
	if !inParts {
		n := p.uint16()
		if n == nullIn16Bits {
			return nil, true
		}
		return p.take(int(n)), false
	}
	if p.uint64() == nullInParts {
		return nil, true
	}
	value = []byte{}
	for n := p.uint32(); n > 0; n = p.uint32() {
		value = append(value, p.take(int(n))...)
	}
	return value, false
}

// tokens is what a server says.
type tokens struct{ bytes.Buffer }

const (
	doneError     = 2
	doneAttention = 0x20
)

func (o *tokens) number(values ...any) {
	for _, v := range values {
		_ = binary.Write(o, binary.LittleEndian, v)
	}
}

func (o *tokens) loginAck() {
	o.number(byte(0xad), uint16(1+4+1+4), byte(1), [4]byte{0x74, 0, 0, 4}, byte(0), [4]byte{14, 0, 0, 0})
}

// transaction says that one has begun (8), was committed (9) or rolled back (10).
func (o *tokens) transaction(kind byte, id uint64) {
	if kind == 8 {
		o.number(byte(0xe3), uint16(11), kind, byte(8), id, byte(0))
	} else {
		o.number(byte(0xe3), uint16(11), kind, byte(0), byte(8), id)
	}
}

func (o *tokens) error(err *mssql.Error) {
	var text tokens
	text.number(err.Number, err.State, err.Class, uint16(len(err.Message)))
	text.Write(toUTF16(err.Message))
	text.number(byte(0), byte(0), int32(1))
	o.number(byte(0xaa), uint16(text.Len()))
	o.Write(text.Bytes())
}

func (o *tokens) done(status uint16, err *mssql.Error) {
	if err != nil {
		status |= doneError
	}
	o.number(byte(0xfd), status, uint16(0), uint64(0))
}

// result is rows of int, string, []byte and time.Time.
func (o *tokens) result(rows [][]any) {
	o.number(byte(0x81), uint16(len(rows[0])))
	for _, v := range rows[0] {
		o.number(uint32(0), uint16(1)) // may be NULL
		switch v.(type) {
		case int:
			o.number(byte(typeInt), byte(8))
		case time.Time:
			o.number(byte(typeTime), byte(7))
		case []byte:
			o.number(byte(typeBytes), uint16(partsFollow))
		default:
			o.number(byte(typeText), uint16(partsFollow), [5]byte{})
		}
		o.number(byte(0)) // without a name
	}
	for _, row := range rows {
		o.number(byte(0xd1))
		for _, v := range row {
			switch v := v.(type) {
			case int:
				o.number(byte(8), int64(v))
			case time.Time:
				v = v.UTC()
				midnight := v.Truncate(24 * time.Hour)
				var fractions [8]byte
				binary.LittleEndian.PutUint64(fractions[:], uint64(v.Sub(midnight)/100))
				days := uint32(midnight.Unix()/86400 + 719162) // days from the year 1 to 1970
				o.number(byte(10), fractions[:5], []byte{byte(days), byte(days >> 8), byte(days >> 16)}, uint16(0))
			case []byte:
				o.parts(v)
			case string:
				o.parts(toUTF16(v))
			}
		}
	}
}

func (o *tokens) parts(value []byte) {
	o.number(uint64(len(value)))
	if len(value) > 0 {
		o.number(uint32(len(value)))
		o.Write(value)
	}
	o.number(uint32(0))
}

func toUTF16(text string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

func fromUTF16(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
