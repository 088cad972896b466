package amqp10

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// maxDepth limits the nesting of lists, maps, arrays and descriptors.
	maxDepth = 32

	// maxEmptyElements limits an array whose elements take no bytes: 9 bytes can announce
	// four billion of them.
	maxEmptyElements = 4096
)

var errShort = errors.New("the bytes end within a value")

// Constructors of AMQP 1.0, part 1, section 1.6.
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBoolean    = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// decoder reads values from b and shortens it.
type decoder struct {
	b     []byte
	depth int
}

// DecodeValue returns the first value in b and the bytes after it. The value shares no
// memory with b.
func DecodeValue(b []byte) (value any, rest []byte, err error) {
	d := decoder{b: b}
	value, err = d.value()
	return value, d.b, err
}

func (d *decoder) byte() (byte, error) {
	if len(d.b) == 0 {
		return 0, errShort
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c, nil
}

// next returns n bytes, which are part of the decoder's.
func (d *decoder) next(n int) ([]byte, error) {
	if n < 0 || n > len(d.b) {
		return nil, errShort
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v, nil
}

func (d *decoder) value() (any, error) {
	code, err := d.byte()
	if err != nil {
		return nil, err
	}
	if code == codeDescribed {
		return d.described()
	}
	return d.valueOf(code)
}

func (d *decoder) described() (any, error) {
	if d.depth++; d.depth > maxDepth {
		return nil, errors.New("values are nested too deeply")
	}
	defer func() { d.depth-- }()
	descriptor, err := d.value()
	if err != nil {
		return nil, err
	}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	return Described{Descriptor: descriptor, Value: v}, nil
}

// valueOf reads the value whose constructor is code.
func (d *decoder) valueOf(code byte) (any, error) {
	switch code >> 4 {
	case 0x4:
		return emptyValue(code)
	case 0x5, 0x6, 0x7, 0x8, 0x9:
		b, err := d.next(fixedWidth(code))
		if err != nil {
			return nil, err
		}
		return fixedValue(code, b)
	case 0xa, 0xb:
		b, err := d.variable(code)
		if err != nil {
			return nil, err
		}
		return variableValue(code, b)
	case 0xc, 0xd:
		return d.compound(code)
	case 0xe, 0xf:
		return d.array(code)
	}
	return nil, fmt.Errorf("no value begins with 0x%02x", code)
}

func emptyValue(code byte) (any, error) {
	switch code {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeUint0:
		return uint32(0), nil
	case codeUlong0:
		return uint64(0), nil
	case codeList0:
		return List{}, nil
	}
	return nil, fmt.Errorf("no value begins with 0x%02x", code)
}

// fixedWidth returns how many bytes follow a constructor of the categories 0x5 to 0x9.
func fixedWidth(code byte) int { return 1 << (code>>4 - 5) }

func fixedValue(code byte, b []byte) (any, error) {
	switch code {
	case codeUbyte:
		return b[0], nil
	case codeByte:
		return int8(b[0]), nil
	case codeSmallUint:
		return uint32(b[0]), nil
	case codeSmallUlong:
		return uint64(b[0]), nil
	case codeSmallInt:
		return int32(int8(b[0])), nil
	case codeSmallLong:
		return int64(int8(b[0])), nil
	case codeBoolean:
		if b[0] > 1 {
			return nil, fmt.Errorf("boolean 0x%02x", b[0])
		}
		return b[0] == 1, nil
	case codeUshort:
		return binary.BigEndian.Uint16(b), nil
	case codeShort:
		return int16(binary.BigEndian.Uint16(b)), nil
	case codeUint:
		return binary.BigEndian.Uint32(b), nil
	case codeInt:
		return int32(binary.BigEndian.Uint32(b)), nil
	case codeFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(b)), nil
	case codeChar:
		return Char(binary.BigEndian.Uint32(b)), nil
	case codeDecimal32:
		return Decimal32(b), nil
	case codeUlong:
		return binary.BigEndian.Uint64(b), nil
	case codeLong:
		return int64(binary.BigEndian.Uint64(b)), nil
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case codeTimestamp:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(), nil
	case codeDecimal64:
		return Decimal64(b), nil
	case codeDecimal128:
		return Decimal128(b), nil
	case codeUUID:
		return UUID(b), nil
	}
	return nil, fmt.Errorf("no value begins with 0x%02x", code)
}

// variable returns the bytes of a binary, a string or a symbol, which are part of the
// decoder's.
func (d *decoder) variable(code byte) ([]byte, error) {
	n, err := d.size(code)
	if err != nil {
		return nil, err
	}
	return d.next(n)
}

// size reads a length or a count of 1 or 4 bytes, depending on the constructor: in the
// categories 0xa, 0xc and 0xe it is 1 byte.
func (d *decoder) size(code byte) (int, error) {
	if code&0x10 == 0 {
		n, err := d.byte()
		return int(n), err
	}
	b, err := d.next(4)
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(b)
	if n > math.MaxInt32 {
		return 0, errShort
	}
	return int(n), nil
}

func variableValue(code byte, b []byte) (any, error) {
	switch code {
	case codeBinary8, codeBinary32:
		return append([]byte{}, b...), nil
	case codeString8, codeString32:
		return string(b), nil
	case codeSymbol8, codeSymbol32:
		return Symbol(b), nil
	}
	return nil, fmt.Errorf("no value begins with 0x%02x", code)
}

// header reads size and count of a list, a map or an array and returns a decoder of the
// bytes that the size covers, without those of the count.
func (d *decoder) header(code byte) (body decoder, count int, err error) {
	size, err := d.size(code)
	if err != nil {
		return body, 0, err
	}
	b, err := d.next(size)
	if err != nil {
		return body, 0, err
	}
	body = decoder{b: b, depth: d.depth + 1}
	if body.depth > maxDepth {
		return body, 0, errors.New("values are nested too deeply")
	}
	count, err = body.size(code)
	return body, count, err
}

func (d *decoder) compound(code byte) (any, error) {
	body, count, err := d.header(code)
	if err != nil {
		return nil, err
	}
	if count > len(body.b) { // an element takes at least one byte
		return nil, fmt.Errorf("%d elements in %d bytes", count, len(body.b))
	}
	switch code {
	case codeList8, codeList32:
		return body.list(count)
	case codeMap8, codeMap32:
		return body.pairs(count)
	}
	return nil, fmt.Errorf("no value begins with 0x%02x", code)
}

func (d *decoder) list(count int) (List, error) {
	l := make(List, count)
	for i := range l {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		l[i] = v
	}
	return l, d.end()
}

func (d *decoder) pairs(count int) (Map, error) {
	if count%2 != 0 {
		return nil, fmt.Errorf("a map of %d elements", count)
	}
	m := make(Map, count/2)
	for i := range m {
		k, err := d.value()
		if err != nil {
			return nil, err
		}
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		m[i] = Pair{k, v}
	}
	return m, d.end()
}

func (d *decoder) end() error {
	if len(d.b) > 0 {
		return fmt.Errorf("%d bytes behind the last element", len(d.b))
	}
	return nil
}

func (d *decoder) array(code byte) (any, error) {
	if code != codeArray8 && code != codeArray32 {
		return nil, fmt.Errorf("no value begins with 0x%02x", code)
	}
	body, count, err := d.header(code)
	if err != nil {
		return nil, err
	}
	return body.elements(count)
}

// elements reads the elements of an array, which share one constructor.
func (d *decoder) elements(count int) (Array, error) {
	code, err := d.byte()
	if err != nil {
		return nil, err
	}
	var descriptors []any // the outermost first
	for code == codeDescribed {
		if len(descriptors)+d.depth >= maxDepth {
			return nil, errors.New("values are nested too deeply")
		}
		descriptor, err := d.value()
		if err != nil {
			return nil, err
		}
		descriptors = append(descriptors, descriptor)
		if code, err = d.byte(); err != nil {
			return nil, err
		}
	}
	limit := len(d.b)
	if code>>4 == 0x4 {
		limit = maxEmptyElements
	}
	if count > limit {
		return nil, fmt.Errorf("an array of %d elements in %d bytes", count, len(d.b))
	}
	a := make(Array, count)
	for i := range a {
		v, err := d.valueOf(code)
		if err != nil {
			return nil, err
		}
		for _, descriptor := range slices.Backward(descriptors) {
			v = Described{Descriptor: descriptor, Value: v}
		}
		a[i] = v
	}
	return a, d.end()
}
