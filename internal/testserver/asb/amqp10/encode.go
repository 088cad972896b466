package amqp10

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// AppendValue appends the encoding of v, in the shortest form, to b. It returns an error
// for a type that is not in the table above Symbol, and for an array of several types.
func AppendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, codeNull), nil
	case bool:
		return appendBool(b, v), nil
	case uint8:
		return append(b, codeUbyte, v), nil
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, codeUshort), v), nil
	case uint32:
		return appendUint(b, v), nil
	case uint64:
		return appendUlong(b, v), nil
	case int8:
		return append(b, codeByte, byte(v)), nil
	case int16:
		return binary.BigEndian.AppendUint16(append(b, codeShort), uint16(v)), nil
	case int32:
		if v == int32(int8(v)) {
			return append(b, codeSmallInt, byte(v)), nil
		}
		return binary.BigEndian.AppendUint32(append(b, codeInt), uint32(v)), nil
	case int64:
		if v == int64(int8(v)) {
			return append(b, codeSmallLong, byte(v)), nil
		}
		return binary.BigEndian.AppendUint64(append(b, codeLong), uint64(v)), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(b, codeFloat), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(b, codeDouble), math.Float64bits(v)), nil
	case Char:
		return binary.BigEndian.AppendUint32(append(b, codeChar), uint32(v)), nil
	case time.Time:
		return binary.BigEndian.AppendUint64(append(b, codeTimestamp), uint64(v.UnixMilli())), nil
	case UUID:
		return append(append(b, codeUUID), v[:]...), nil
	case Decimal32:
		return append(append(b, codeDecimal32), v[:]...), nil
	case Decimal64:
		return append(append(b, codeDecimal64), v[:]...), nil
	case Decimal128:
		return append(append(b, codeDecimal128), v[:]...), nil
	case []byte:
		return appendVariable(b, codeBinary8, v), nil
	case string:
		return appendVariable(b, codeString8, v), nil
	case Symbol:
		return appendVariable(b, codeSymbol8, v), nil
	case List:
		return appendList(b, v)
	case Map:
		return appendMap(b, v)
	case Array:
		return appendArray(b, v)
	case Described:
		b, err := AppendValue(append(b, codeDescribed), v.Descriptor)
		if err != nil {
			return b, err
		}
		return AppendValue(b, v.Value)
	}
	return b, fmt.Errorf("amqp10: encode a %T: AMQP has no such type", v)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

func appendUint(b []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(b, codeUint0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(b, codeUint), v)
}

func appendUlong(b []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(b, codeUlong0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
}

// appendVariable appends a constructor and v: code8, or the constructor for long values
// of the same type.
func appendVariable[T ~string | ~[]byte](b []byte, code8 byte, v T) []byte {
	if len(v) <= math.MaxUint8 {
		b = append(b, code8, byte(len(v)))
	} else {
		b = binary.BigEndian.AppendUint32(append(b, code8|0x10), uint32(len(v)))
	}
	return append(b, v...)
}

// beginCompound appends the constructor of a short list, map or array, with room for size
// and count, and returns the position after it.
func beginCompound(b []byte, code8 byte) ([]byte, int) {
	b = append(b, code8, 0, 0)
	return b, len(b)
}

// endCompound sets size and count of the compound value whose body begins at start, and
// makes room for longer ones if they need it.
func endCompound(b []byte, start, count int) []byte {
	size := len(b) - start
	if size+1 <= math.MaxUint8 && count <= math.MaxUint8 {
		b[start-2], b[start-1] = byte(size+1), byte(count)
		return b
	}
	b = append(b, 0, 0, 0, 0, 0, 0)
	copy(b[start+6:], b[start:start+size])
	b[start-3] |= 0x10
	binary.BigEndian.PutUint32(b[start-2:], uint32(size+4))
	binary.BigEndian.PutUint32(b[start+2:], uint32(count))
	return b
}

func appendList(b []byte, l List) ([]byte, error) {
	if len(l) == 0 {
		return append(b, codeList0), nil
	}
	b, start := beginCompound(b, codeList8)
	for _, v := range l {
		var err error
		if b, err = AppendValue(b, v); err != nil {
			return b, err
		}
	}
	return endCompound(b, start, len(l)), nil
}

func appendMap(b []byte, m Map) ([]byte, error) {
	b, start := beginCompound(b, codeMap8)
	for _, p := range m {
		var err error
		if b, err = AppendValue(b, p.Key); err != nil {
			return b, err
		}
		if b, err = AppendValue(b, p.Value); err != nil {
			return b, err
		}
	}
	return endCompound(b, start, 2*len(m)), nil
}

// appendArray appends an array with the longest constructor of its elements' type, since
// all elements share it.
func appendArray(b []byte, a Array) ([]byte, error) {
	b, start := beginCompound(b, codeArray8)
	if len(a) == 0 {
		return endCompound(append(b, codeNull), start, 0), nil
	}
	from := len(b)
	b, first, err := appendDescriptors(b, a[0])
	if err != nil {
		return b, err
	}
	descriptors := slices.Clone(b[from:])
	code, err := arrayCode(first)
	if err != nil {
		return b, err
	}
	b = append(b, code)
	for _, e := range a {
		others, v, err := appendDescriptors(nil, e)
		if err != nil {
			return b, err
		}
		if other, err := arrayCode(v); err != nil || other != code || !bytes.Equal(others, descriptors) {
			return b, fmt.Errorf("amqp10: encode an array with elements of the types %T and %T, or with two descriptors", first, v)
		}
		if b, err = appendElement(b, v); err != nil {
			return b, err
		}
	}
	return endCompound(b, start, len(a)), nil
}

// appendDescriptors appends the descriptors of v, the outermost first, and returns the
// described value.
func appendDescriptors(b []byte, v any) ([]byte, any, error) {
	for {
		d, ok := v.(Described)
		if !ok {
			return b, v, nil
		}
		var err error
		if b, err = AppendValue(append(b, codeDescribed), d.Descriptor); err != nil {
			return b, nil, err
		}
		v = d.Value
	}
}

func arrayCode(v any) (byte, error) {
	switch v.(type) {
	case nil:
		return codeNull, nil
	case bool:
		return codeBoolean, nil
	case uint8:
		return codeUbyte, nil
	case uint16:
		return codeUshort, nil
	case uint32:
		return codeUint, nil
	case uint64:
		return codeUlong, nil
	case int8:
		return codeByte, nil
	case int16:
		return codeShort, nil
	case int32:
		return codeInt, nil
	case int64:
		return codeLong, nil
	case float32:
		return codeFloat, nil
	case float64:
		return codeDouble, nil
	case Char:
		return codeChar, nil
	case time.Time:
		return codeTimestamp, nil
	case UUID:
		return codeUUID, nil
	case Decimal32:
		return codeDecimal32, nil
	case Decimal64:
		return codeDecimal64, nil
	case Decimal128:
		return codeDecimal128, nil
	case []byte:
		return codeBinary32, nil
	case string:
		return codeString32, nil
	case Symbol:
		return codeSymbol32, nil
	case List:
		return codeList32, nil
	case Map:
		return codeMap32, nil
	case Array:
		return codeArray32, nil
	}
	return 0, fmt.Errorf("amqp10: encode a %T: AMQP has no such type", v)
}

// appendElement appends v in the form of its arrayCode, without the constructor.
func appendElement(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return b, nil
	case bool:
		if v {
			return append(b, 1), nil
		}
		return append(b, 0), nil
	case uint32:
		return binary.BigEndian.AppendUint32(b, v), nil
	case uint64:
		return binary.BigEndian.AppendUint64(b, v), nil
	case int32:
		return binary.BigEndian.AppendUint32(b, uint32(v)), nil
	case int64:
		return binary.BigEndian.AppendUint64(b, uint64(v)), nil
	case []byte:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	case string:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	case Symbol:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	case List, Map, Array:
		return appendLongElement(b, v)
	}
	// The other types have one form, which follows a constructor of one byte.
	at := len(b)
	b, err := AppendValue(b, v)
	if err != nil {
		return b, err
	}
	return append(b[:at], b[at+1:]...), nil
}

// appendLongElement appends a list, a map or an array with a size and a count of 4 bytes.
func appendLongElement(b []byte, v any) ([]byte, error) {
	at := len(b)
	b, err := AppendValue(b, v)
	if err != nil {
		return b, err
	}
	code, body := b[at], b[at+1:]
	switch {
	case code == codeList0:
		return append(b[:at], 0, 0, 0, 4, 0, 0, 0, 0), nil
	case code&0x10 != 0:
		return append(b[:at], body...), nil
	}
	count, body := body[1], body[2:]
	long := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	long = binary.BigEndian.AppendUint32(long, uint32(count))
	return append(b[:at], append(long, body...)...), nil
}
