package sdkclient

import (
	"encoding/binary"
	"math"
	"slices"
)

// This file makes every encoded message readable for go-amqp v1.7.0 and azservicebus v1.11.0. Senders decide about the content
// of a message, and in these cases one message would keep the others of its link from being received, or end the process:
//
//   - The SDK panics where a property or annotation that the service sets has another type (newReceivedMessage).
//   - go-amqp panics in its own goroutine at an annotation whose key is a binary, a list, a map or an array
//     (Annotations.Unmarshal), and at a described key with such a value also elsewhere.
//   - It decodes nested values recursively without a limit, and overflows the stack
//     (docs/contributing/go-amqp-depth.md).
//   - It closes the link at types that it does not decode, such as char, decimals, and arrays of arrays, and at
//     malformed sections.
//
// All changes are made in place, so that no length changes, in one pass and without allocations.

// maxDepth is how deep values may be nested.
const maxDepth = 100

// maxItems is go-amqp's limit of the items of a list, map or array.
const maxItems = 65536

// The codes of AMQP 1.0 for the sections of a message (section 3.2).
const (
	sectionHeader         = 0x70
	sectionDeliveryNotes  = 0x71
	sectionAnnotations    = 0x72
	sectionProperties     = 0x73
	sectionAppProperties  = 0x74
	sectionData           = 0x75
	sectionSequence       = 0x76
	sectionValue          = 0x77
	sectionFooter         = 0x78
	codeDescribed         = 0x00
	codeNull              = 0x40
	codeList0             = 0x45
	codeBinary8           = 0xa0
	codeText8             = 0xa1
	codeSymbol8           = 0xa3
	codeBinary32          = 0xb0
	codeText32            = 0xb1
	codeSymbol32          = 0xb3
	codeList8, codeList32 = 0xc0, 0xd0
	codeMap8, codeMap32   = 0xc1, 0xd1
)

// makeReadable changes an encoded message so that it can be read. Values that cannot be decoded become binaries. The
// rest of a malformed message becomes a body without bytes, a list, so that the message is malformed for its receiver.
func makeReadable(b []byte) { makeMessageReadable(b, 0) }

func makeMessageReadable(b []byte, depth int) {
	b = slices.Clip(b) // isReadableArray needs the end of the message
	for i, before := 0, 0; i < len(b); {
		end, ok := readableSection(b, i, depth)
		if !ok {
			for _, from := range [...]int{i, before, 0} {
				if makeList(b[from:]) {
					break
				}
			}
			return
		}
		before, i = i, end
	}
}

// makeList makes bytes the section of a body that is a list with a binary, and reports whether there are enough of them.
func makeList(b []byte) bool {
	switch n := len(b); {
	case n >= 17 && uint64(n) <= math.MaxUint32:
		copy(b, []byte{codeDescribed, 0x53, sectionValue, codeList32})
		binary.BigEndian.PutUint32(b[4:], uint32(n-8))
		binary.BigEndian.PutUint32(b[8:], 1)
		b[12] = codeBinary32
		binary.BigEndian.PutUint32(b[13:], uint32(n-17))
	case n >= 8:
		copy(b, []byte{codeDescribed, 0x53, sectionValue, codeList8, byte(n - 5), 1, codeBinary8, byte(n - 8)})
	case n == 7:
		copy(b, []byte{codeDescribed, 0x53, sectionValue, codeList8, 2, 1, codeNull})
	case n == 6:
		copy(b, []byte{codeDescribed, 0x53, sectionValue, codeList8, 1, 0})
	case n == 4:
		copy(b, []byte{codeDescribed, 0x53, sectionValue, codeList0})
	default:
		return false
	}
	return true
}

// readableSection makes the section at i readable, and returns its end.
func readableSection(b []byte, i, depth int) (end int, ok bool) {
	code, i, ok := descriptor(b, i)
	if !ok || i >= len(b) {
		return 0, false
	}
	switch code {
	case sectionData:
		return sized(b, i), (b[i] == codeBinary8 || b[i] == codeBinary32 || b[i] == codeNull) && sized(b, i) > 0
	case sectionHeader, sectionProperties:
		return readableFields(b, i, depth, fieldTypes[code-sectionHeader])
	case sectionDeliveryNotes, sectionAnnotations, sectionAppProperties, sectionFooter:
		if b[i] != codeNull && b[i] != codeMap8 && b[i] != codeMap32 {
			return 0, false
		}
	case sectionSequence:
		if b[i] != codeNull && b[i] != codeList0 && b[i] != codeList8 && b[i] != codeList32 {
			return 0, false
		}
	case sectionValue:
	default:
		return 0, false
	}
	before := b[i]
	end, ok = readableValue(b, i, depth, code)
	return end, ok && b[i] == before // a section that has become a binary is none
}

// descriptor returns the code that describes the value at i, and where that begins.
func descriptor(b []byte, i int) (code byte, end int, ok bool) {
	switch {
	case len(b)-i < 3 || b[i] != codeDescribed:
		return 0, 0, false
	case b[i+1] == 0x53:
		return b[i+2], i + 3, true
	case b[i+1] == 0x80 && len(b)-i >= 10 && binary.BigEndian.Uint64(b[i+2:]) <= math.MaxUint8:
		return b[i+9], i + 10, true
	}
	return 0, 0, false
}

// fieldTypes are the codes that the fields of header and properties may have; "" means any.
var fieldTypes = [...][]string{
	0: {"\x41\x42\x56", "\x50", "\x43\x52\x70", "\x41\x42\x56", "\x43\x52\x70"},
	sectionProperties - sectionHeader: {
		"", "\xa0\xb0", "\xa1\xb1\xa3\xb3", "\xa1\xb1\xa3\xb3", "\xa1\xb1\xa3\xb3", "", "\xa1\xb1\xa3\xb3", "\xa1\xb1\xa3\xb3", "\x83", "\x83",
		"\xa1\xb1\xa3\xb3", "\x43\x52\x70", "\xa1\xb1\xa3\xb3",
	},
}

// readableFields makes the fields of a header or of properties readable.
func readableFields(b []byte, i, depth int, types []string) (end int, ok bool) {
	if b[i] == codeList0 {
		return i + 1, true
	}
	first, count, end, ok := compound(b, i)
	if !ok || b[i] != codeList8 && b[i] != codeList32 || count > len(types) {
		return 0, false
	}
	i = first
	for _, codes := range types[:count] {
		if i >= end {
			return 0, false
		}
		next, ok := readableValue(b[:end], i, depth+1, 0)
		if !ok || codes != "" && b[i] != codeNull && !hasCode(codes, b[i]) {
			return 0, false
		}
		i = next
	}
	return end, i == end
}

func hasCode(codes string, code byte) bool {
	for i := range len(codes) {
		if codes[i] == code {
			return true
		}
	}
	return false
}

// sized returns the end of the value at i, which is not described, or 0 if it is malformed.
func sized(b []byte, i int) int {
	n := 1
	rest := b[i+1:]
	switch b[i] >> 4 {
	case 0x4:
	case 0x5:
		n += 1
	case 0x6:
		n += 2
	case 0x7:
		n += 4
	case 0x8:
		n += 8
	case 0x9:
		n += 16
	case 0xa, 0xc, 0xe:
		if len(rest) < 1 {
			return 0
		}
		n += 1 + int(rest[0])
	case 0xb, 0xd, 0xf:
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)) {
			return 0
		}
		n += 4 + int(binary.BigEndian.Uint32(rest))
	default:
		return 0
	}
	if n > len(b)-i {
		return 0
	}
	return i + n
}

// skip returns the end of the value at i, which may be described, or 0 if it is malformed.
func skip(b []byte, i int) int {
	for values := 1; values > 0; values-- {
		if i >= len(b) {
			return 0
		}
		if b[i] == codeDescribed {
			i++
			values += 2
			continue
		}
		if i = sized(b, i); i == 0 {
			return 0
		}
	}
	return i
}

// compound returns the first item of the list, map or array at i, the number of items, and the end.
func compound(b []byte, i int) (first, count, end int, ok bool) {
	end = sized(b, i)
	switch code := b[i] >> 4; {
	case end == 0:
	case (code == 0xc || code == 0xe) && end-i >= 3:
		return i + 3, int(b[i+2]), end, true
	case (code == 0xd || code == 0xf) && end-i >= 9:
		if n := binary.BigEndian.Uint32(b[i+5:]); n <= maxItems {
			return i + 9, int(n), end, true
		}
	}
	return 0, 0, 0, false
}

// readableValue makes the value at i readable, and returns its end. section is that of which it is the whole content,
// sectionValue also for values within a body, or 0.
func readableValue(b []byte, i, depth int, section byte) (end int, ok bool) {
	if i >= len(b) {
		return 0, false
	}
	switch b[i] {
	case codeNull, 0x41, 0x42, 0x43, 0x44, codeList0, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72, 0x80, 0x81, 0x82, 0x83, 0x98,
		codeBinary8, codeText8, codeSymbol8, codeBinary32, codeText32, codeSymbol32:
		end = sized(b, i)
		return end, end > 0
	case codeDescribed:
		return readableDescribed(b, i, depth)
	}
	if end = sized(b, i); end == 0 {
		return 0, false
	}
	readable := false
	if depth < maxDepth {
		switch b[i] {
		case codeList8, codeList32:
			readable = readableList(b[:end], i, depth, section)
		case codeMap8, codeMap32:
			readable = readableMap(b[:end], i, depth, section)
		case 0xe0, 0xf0:
			readable = isReadableArray(b[:end], i)
		}
	}
	return end, readable || makeBinary(b[i:end])
}

func readableDescribed(b []byte, i, depth int) (end int, ok bool) {
	if depth < maxDepth {
		value, ok := readableValue(b, i+1, depth+1, 0)
		if !ok {
			return 0, false
		}
		if end, ok = readableValue(b, value, depth+1, 0); !ok {
			return 0, false
		}
		if _, _, isOwn := descriptor(b[:end], i); !isOwn { // codes are those of AMQP's own types
			return end, true
		}
	} else if end = skip(b, i); end == 0 {
		return 0, false
	}
	return end, makeBinary(b[i:end])
}

func readableList(b []byte, i, depth int, section byte) bool {
	i, count, _, ok := compound(b, i)
	for ; ok && count > 0; count-- {
		i, ok = readableValue(b, i, depth+1, section)
	}
	return ok && i == len(b)
}

func readableMap(b []byte, i, depth int, section byte) bool {
	i, count, _, ok := compound(b, i)
	if !ok || count%2 != 0 {
		return false
	}
	nested := byte(0)
	if section == sectionValue {
		nested = sectionValue
	}
	for ; count > 0; count -= 2 {
		value, ok := readableKey(b, i, depth, section)
		if !ok || value >= len(b) {
			return false
		}
		wasBinary := b[value] == codeBinary8 || b[value] == codeBinary32
		end, ok := readableValue(b, value, depth+1, nested)
		if !ok {
			return false
		}
		key := b[i:value]
		switch section {
		case sectionAnnotations, sectionAppProperties:
			if types := typesOf(key, section); types != "" && !hasCode(types, b[value]) {
				rename(key)
			}
		case sectionValue:
			if content := textOf(b[value:end], codeBinary8, codeBinary32); wasBinary && string(textOf(key, codeText8, codeText32)) == peekedMessage && depth+2 < maxDepth {
				makeMessageReadable(content, depth+2)
			}
		}
		i = end
	}
	return i == len(b)
}

// peekedMessage is the key of the messages in the answer to a request for messages that stay in the queue.
const peekedMessage = "message"

// readableKey makes the key at i readable, and returns its end. For go-amqp a key is no list, map, array or binary, and that of
// an application property is a text.
func readableKey(b []byte, i, depth int, section byte) (end int, ok bool) {
	if end, ok = readableValue(b, i, depth+1, 0); !ok {
		return 0, false
	}
	switch code := b[i]; {
	case code == codeText8 || code == codeText32 || code == codeSymbol8 || code == codeSymbol32:
	case code == codeBinary8 || code == codeBinary32 || code >= 0xc0 || code == codeDescribed || section == sectionAppProperties:
		if !makeBinary(b[i:end]) {
			return 0, false
		}
		if b[i] != codeNull {
			b[i]++ // a text has the form of a binary
		}
		return end, b[i] != codeNull || section != sectionAppProperties
	case code == codeList0:
		b[i] = codeNull
	}
	return end, true
}

// textOf returns the content of a text or binary.
func textOf(value []byte, code8, code32 byte) []byte {
	switch {
	case len(value) >= 2 && value[0] == code8:
		return value[2:]
	case len(value) >= 5 && value[0] == code32:
		return value[5:]
	}
	return nil
}

// makeBinary makes an encoded value a binary of the same size, or null if it has only one byte.
func makeBinary(b []byte) bool {
	switch n := len(b); {
	case b[0] == codeBinary8 || b[0] == codeBinary32:
	case b[0]>>4 == 0xa || b[0]>>4 == 0xc || b[0]>>4 == 0xe:
		b[0] = codeBinary8
	case b[0]>>4 == 0xb || b[0]>>4 == 0xd || b[0]>>4 == 0xf:
		b[0] = codeBinary32
	case n == 1:
		b[0] = codeNull
	case n-2 <= math.MaxUint8:
		b[0], b[1] = codeBinary8, byte(n-2)
	case uint64(n) <= math.MaxUint32:
		b[0] = codeBinary32
		binary.BigEndian.PutUint32(b[1:], uint32(n-5))
	default:
		return false
	}
	return true
}

// isReadableArray reports whether go-amqp decodes an array.
func isReadableArray(b []byte, i int) bool {
	first, count, end, ok := compound(b, i)
	if !ok || first >= end {
		return false
	}
	items := b[first+1:]
	switch code := b[first]; code {
	case 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56:
		return len(items) == count
	case 0x60, 0x61:
		return len(items) == 2*count
	case 0x70, 0x71, 0x72:
		return len(items) == 4*count
	case 0x80, 0x81, 0x82, 0x83:
		return len(items) == 8*count
	case 0x98:
		return len(items) == 16*count
	case codeBinary8, codeText8, codeSymbol8, codeBinary32, codeText32, codeSymbol32:
		if 2*count > cap(b)-first { // go-amqp takes them to be larger, and does not look for their end
			return false
		}
		for ; count > 0; count-- {
			size := 1
			if code >= codeBinary32 {
				size = 4
			}
			if len(items) < size {
				return false
			}
			n := uint64(items[0])
			if size == 4 {
				n = uint64(binary.BigEndian.Uint32(items))
			}
			if n > uint64(len(items)-size) {
				return false
			}
			items = items[size+int(n):]
		}
		return len(items) == 0
	}
	return false
}

// typesOf returns the codes of the types that the SDK expects of the property or annotation with a key, or "" if it does not
// read that.
func typesOf(key []byte, section byte) string {
	const text, textOrNull, number, timestamp = "\xa1\xb1\xa3\xb3", "\xa1\xb1\xa3\xb3\x40", "\x81\x55", "\x83"
	name := textOf(key, codeText8, codeText32)
	if name == nil {
		name = textOf(key, codeSymbol8, codeSymbol32)
	}
	if section == sectionAppProperties {
		switch string(name) {
		case "DeadLetterReason", "DeadLetterErrorDescription":
			return text
		}
		return ""
	}
	switch string(name) {
	case "x-opt-partition-key", "x-opt-deadletter-source":
		return textOrNull
	case "x-opt-sequence-number", "x-opt-enqueue-sequence-number":
		return number
	case "x-opt-locked-until", "x-opt-enqueued-time", "x-opt-scheduled-enqueue-time":
		return timestamp
	}
	return ""
}

// rename changes the case of the first letter of a key.
func rename(key []byte) {
	if key[0] == codeText8 || key[0] == codeSymbol8 {
		key[2] ^= 0x20
	} else {
		key[5] ^= 0x20
	}
}
