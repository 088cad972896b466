// Package charset converts JSON of other encodings to UTF-8.
package charset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/reprise-go/reprise/internal/bounded"
)

var utf8Mark = []byte{0xef, 0xbb, 0xbf}

// JSON returns a JSON text in UTF-8, without a byte order mark. charset is that of its
// content type, in lower case, or "" for UTF-8. JSON begins with an ASCII character, whose
// bytes prove UTF-16 in either order, even if the charset is another one. The result may share the
// memory of text, which is not written to.
func JSON(text []byte, charset string) ([]byte, error) {
	if order := utf16Order(text); order != nil {
		return fromUTF16(text, order)
	}
	switch charset {
	case "", "utf-16", "utf-16le", "utf-16be":
		return bytes.TrimPrefix(text, utf8Mark), nil
	case "iso-8859-1", "latin1":
		converted := make([]byte, 0, len(text)+len(text)/8)
		for _, b := range text {
			converted = utf8.AppendRune(converted, rune(b))
		}
		return converted, nil
	}
	return nil, fmt.Errorf("its charset %q is none of UTF-8, UTF-16 and ISO-8859-1; let its sender write UTF-8, or set a Config.Codec that reads it", bounded.Name(charset))
}

// utf16Order returns the byte order of a JSON text in UTF-16, or nil for other texts.
func utf16Order(text []byte) binary.ByteOrder {
	if len(text) < 2 {
		return nil
	}
	switch first, second := text[0], text[1]; {
	case first == 0xfe && second == 0xff, first == 0 && second != 0:
		return binary.BigEndian
	case first == 0xff && second == 0xfe, first != 0 && second == 0:
		return binary.LittleEndian
	}
	return nil
}

// fromUTF16 replaces half characters by U+FFFD, as encoding/json does.
func fromUTF16(text []byte, order binary.ByteOrder) ([]byte, error) {
	if len(text)%2 != 0 {
		return nil, errors.New("it is UTF-16 with an odd number of bytes: its end is missing")
	}
	converted := make([]byte, 0, len(text)/2+len(text)/8)
	for i := 0; i < len(text); i += 2 {
		r := rune(order.Uint16(text[i:]))
		if i == 0 && r == '\uFEFF' {
			continue
		}
		if utf16.IsSurrogate(r) {
			pair := utf8.RuneError
			if i+4 <= len(text) {
				pair = utf16.DecodeRune(r, rune(order.Uint16(text[i+2:])))
			}
			if r = pair; pair != utf8.RuneError {
				i += 2
			}
		}
		converted = utf8.AppendRune(converted, r)
	}
	return converted, nil
}
