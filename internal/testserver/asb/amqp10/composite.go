package amqp10

import (
	"encoding/binary"
	"fmt"
	"time"
)

// fieldWriter appends the fields of a composite type to b. It leaves out nulls at the end.
type fieldWriter struct {
	b     []byte
	start int
	count int
	nulls int // fields without a value since the last one with a value
	err   error
}

func beginComposite(b []byte, code byte) *fieldWriter {
	b, start := beginCompound(append(b, codeDescribed, codeSmallUlong, code), codeList8)
	return &fieldWriter{b: b, start: start}
}

func (w *fieldWriter) end() ([]byte, error) {
	return endCompound(w.b, w.start, w.count), w.err
}

func (w *fieldWriter) null() { w.nulls++ }

// field begins a field with a value.
func (w *fieldWriter) field() {
	w.count += w.nulls + 1
	for ; w.nulls > 0; w.nulls-- {
		w.b = append(w.b, codeNull)
	}
}

func (w *fieldWriter) bool(v bool) {
	w.field()
	w.b = appendBool(w.b, v)
}

// flag writes v if it is true: false is the field's default.
func (w *fieldWriter) flag(v bool) {
	if v {
		w.bool(v)
	} else {
		w.null()
	}
}

func (w *fieldWriter) ubyte(v uint8) {
	w.field()
	w.b = append(w.b, codeUbyte, v)
}

func (w *fieldWriter) ushort(v uint16) {
	w.field()
	w.b = binary.BigEndian.AppendUint16(append(w.b, codeUshort), v)
}

func (w *fieldWriter) uint(v uint32) {
	w.field()
	w.b = appendUint(w.b, v)
}

// uintUnless writes v if it differs from the field's default.
func (w *fieldWriter) uintUnless(v, absent uint32) {
	if v == absent {
		w.null()
	} else {
		w.uint(v)
	}
}

func (w *fieldWriter) optionalUint(v *uint32) {
	if v == nil {
		w.null()
	} else {
		w.uint(*v)
	}
}

func (w *fieldWriter) optionalUbyte(v *uint8) {
	if v == nil {
		w.null()
	} else {
		w.ubyte(*v)
	}
}

func (w *fieldWriter) ulong(v uint64) {
	if v == 0 {
		w.null()
		return
	}
	w.field()
	w.b = appendUlong(w.b, v)
}

func (w *fieldWriter) binary(v []byte) {
	if v == nil {
		w.null()
		return
	}
	w.field()
	w.b = appendVariable(w.b, codeBinary8, v)
}

// string writes v even if it is empty.
func (w *fieldWriter) string(v string) {
	w.field()
	w.b = appendVariable(w.b, codeString8, v)
}

func (w *fieldWriter) optionalString(v string) {
	if v == "" {
		w.null()
	} else {
		w.string(v)
	}
}

func (w *fieldWriter) symbol(v Symbol) {
	if v == "" {
		w.null()
		return
	}
	w.field()
	w.b = appendVariable(w.b, codeSymbol8, v)
}

// symbols writes a field of several values: one symbol or an array of them.
func (w *fieldWriter) symbols(v []Symbol) {
	switch len(v) {
	case 0:
		w.null()
	case 1:
		w.symbol(v[0])
	default:
		a := make(Array, len(v))
		for i, s := range v {
			a[i] = s
		}
		w.any(a)
	}
}

func (w *fieldWriter) fields(v Map) {
	if v == nil {
		w.null()
	} else {
		w.any(v)
	}
}

func (w *fieldWriter) any(v any) {
	if v == nil {
		w.null()
		return
	}
	w.field()
	b, err := AppendValue(w.b, v)
	w.b = b
	if err != nil && w.err == nil {
		w.err = err
	}
}

// nested writes a composite type.
func (w *fieldWriter) nested(appendTo func([]byte) ([]byte, error)) {
	w.field()
	b, err := appendTo(w.b)
	w.b = b
	if err != nil && w.err == nil {
		w.err = err
	}
}

// fieldReader reads the fields of a composite type. Fields that are absent or null get
// the default that the caller passes. The first error is kept.
type fieldReader struct {
	d     decoder
	count int // remaining fields
	name  string
	err   error
}

// readComposite reads the descriptor and the header of a composite type. It returns the
// code of the descriptor and a reader of the fields, which has any error.
func (d *decoder) readComposite() (code byte, f fieldReader) {
	code, err := d.descriptor()
	if err != nil {
		f.err = err
		return 0, f
	}
	f.name = descriptorNames[code]
	c, err := d.byte()
	switch {
	case err != nil:
		f.err = err
	case c == codeList0:
	case c == codeList8 || c == codeList32:
		f.d, f.count, f.err = d.header(c)
		if f.err == nil && f.count > len(f.d.b) {
			f.err = fmt.Errorf("%s: %d fields in %d bytes", f.name, f.count, len(f.d.b))
		}
	default:
		f.err = fmt.Errorf("%s: a value that begins with 0x%02x is no list", f.name, c)
	}
	return code, f
}

// descriptor reads the descriptor of a composite type, which is a number or a symbol.
func (d *decoder) descriptor() (byte, error) {
	if len(d.b) >= 3 && d.b[0] == codeDescribed && d.b[1] == codeSmallUlong {
		code := d.b[2]
		d.b = d.b[3:]
		return code, nil
	}
	c, err := d.byte()
	if err != nil {
		return 0, err
	}
	if c != codeDescribed {
		return 0, fmt.Errorf("a value that begins with 0x%02x is no composite type", c)
	}
	v, err := d.value()
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case uint64:
		if v <= 0xff {
			return byte(v), nil
		}
	case Symbol:
		if code, ok := descriptorCodes[v]; ok {
			return code, nil
		}
	}
	return 0, fmt.Errorf("no composite type has the descriptor %v", v)
}

// skip reports whether the next field is absent or null, and if so skips it.
func (f *fieldReader) skip() bool {
	if f.err != nil || f.count == 0 {
		return true
	}
	f.count--
	if len(f.d.b) == 0 {
		f.err = errShort
		return true
	}
	if f.d.b[0] == codeNull {
		f.d.b = f.d.b[1:]
		return true
	}
	return false
}

func (f *fieldReader) fail(field string, err error) {
	if f.err == nil {
		f.err = fmt.Errorf("%s.%s: %w", f.name, field, err)
	}
}

func (f *fieldReader) any(field string) any {
	if f.skip() {
		return nil
	}
	v, err := f.d.value()
	if err != nil {
		f.fail(field, err)
	}
	return v
}

// typed reads a field of type T, and reports whether it has a value.
func typed[T any](f *fieldReader, field string) (T, bool) {
	var zero T
	if f.skip() {
		return zero, false
	}
	v, err := f.d.value()
	if err != nil {
		f.fail(field, err)
		return zero, false
	}
	t, ok := v.(T)
	if !ok {
		f.fail(field, fmt.Errorf("a %T is no %T", v, zero))
	}
	return t, ok
}

func (f *fieldReader) bool(field string) bool {
	v, _ := typed[bool](f, field)
	return v
}

func (f *fieldReader) uint(field string, absent uint32) uint32 {
	if v := f.optionalUint(field); v != nil {
		return *v
	}
	return absent
}

func (f *fieldReader) optionalUint(field string) *uint32 {
	if v, ok := f.uint32(field); ok {
		return &v
	}
	return nil
}

// uint32 reads the most common encodings without the generic decoder, which allocates.
func (f *fieldReader) uint32(field string) (uint32, bool) {
	if f.skip() {
		return 0, false
	}
	switch b := f.d.b; {
	case b[0] == codeUint0:
		f.d.b = b[1:]
		return 0, true
	case b[0] == codeSmallUint && len(b) >= 2:
		f.d.b = b[2:]
		return uint32(b[1]), true
	case b[0] == codeUint && len(b) >= 5:
		f.d.b = b[5:]
		return binary.BigEndian.Uint32(b[1:]), true
	case b[0] == codeUint || b[0] == codeSmallUint:
		f.fail(field, errShort)
	default:
		f.fail(field, fmt.Errorf("a value that begins with 0x%02x is no uint", b[0]))
	}
	return 0, false
}

func (f *fieldReader) requiredUint(field string) uint32 {
	v, ok := f.uint32(field)
	if !ok {
		f.missing(field)
	}
	return v
}

func (f *fieldReader) missing(field string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s.%s is missing", f.name, field)
	}
}

func (f *fieldReader) ushort(field string, absent uint16) uint16 {
	if v, ok := typed[uint16](f, field); ok {
		return v
	}
	return absent
}

func (f *fieldReader) optionalUshort(field string) *uint16 {
	if v, ok := typed[uint16](f, field); ok {
		return &v
	}
	return nil
}

func (f *fieldReader) optionalUbyte(field string) *uint8 {
	if v, ok := typed[uint8](f, field); ok {
		return &v
	}
	return nil
}

func (f *fieldReader) ulong(field string) uint64 {
	v, _ := typed[uint64](f, field)
	return v
}

func (f *fieldReader) string(field string) string {
	v, _ := typed[string](f, field)
	return v
}

// bytes returns a binary, which is part of the decoder's bytes, or nil if it is absent.
func (f *fieldReader) bytes(field string) []byte {
	if f.skip() {
		return nil
	}
	code, _ := f.d.byte()
	if code != codeBinary8 && code != codeBinary32 {
		f.fail(field, fmt.Errorf("a value that begins with 0x%02x is no binary", code))
		return nil
	}
	v, err := f.d.variable(code)
	if err != nil {
		f.fail(field, err)
	}
	return v
}

func (f *fieldReader) symbol(field string) Symbol {
	v, _ := typed[Symbol](f, field)
	return v
}

func (f *fieldReader) symbols(field string) []Symbol {
	switch v := f.any(field).(type) {
	case nil:
		return nil
	case Symbol:
		return []Symbol{v}
	case Array:
		s := make([]Symbol, len(v))
		for i, e := range v {
			symbol, ok := e.(Symbol)
			if !ok {
				f.fail(field, fmt.Errorf("a %T is no symbol", e))
				return nil
			}
			s[i] = symbol
		}
		return s
	default:
		f.fail(field, fmt.Errorf("a %T is no symbol", v))
		return nil
	}
}

func (f *fieldReader) fields(field string) Map {
	v, _ := typed[Map](f, field)
	return v
}

func (f *fieldReader) milliseconds(field string) time.Duration {
	return time.Duration(f.uint(field, 0)) * time.Millisecond
}

// composite reads a field of a composite type with read, which gets the code of its
// descriptor and its fields.
func (f *fieldReader) composite(field string, read func(code byte, f *fieldReader) error) {
	if f.skip() {
		return
	}
	code, nested := f.d.readComposite()
	if nested.err == nil {
		if err := read(code, &nested); err != nil {
			nested.err = err
		}
	}
	if nested.err != nil {
		f.fail(field, nested.err)
	}
}
