package charset

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func encodeUTF16(text string, order binary.AppendByteOrder) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

func TestJSON(t *testing.T) {
	const text = `{"name":"Zürich € 😀"}`
	little, big := encodeUTF16(text, binary.LittleEndian), encodeUTF16(text, binary.BigEndian)
	for _, test := range []struct{ name, charset, body, want string }{
		{"UTF-8", "", text, text},
		{"UTF-8 with a mark", "", "\xef\xbb\xbf" + text, text},
		{"a mark alone", "", "\xef\xbb\xbf", ""},
		{"half a mark", "", "\xef\xbb", "\xef\xbb"},
		{"little-endian UTF-16", "utf-16", little, text},
		{"little-endian UTF-16 with a mark", "utf-16", "\xff\xfe" + little, text},
		{"big-endian UTF-16", "utf-16", big, text},
		{"big-endian UTF-16 with a mark", "utf-16be", "\xfe\xff" + big, text},
		{"UTF-16 without a charset", "", little, text},
		{"UTF-16 of the other order than the charset says", "utf-16be", little, text},
		{"UTF-16 that claims to be Latin-1", "latin1", big, text},
		{"UTF-8 that claims to be UTF-16", "utf-16", text, text},
		{"half a character", "", "\"\x00\x00\xd8\"\x00", "\"\uFFFD\""},
		{"half a character at the end", "", "\"\x00\x00\xd8", "\"\uFFFD"},
		{"the second half alone", "", "\"\x00\x00\xdc\"\x00", "\"\uFFFD\""},
		{"a digit", "", "1", "1"},
		{"Latin-1", "iso-8859-1", "\"Z\xfcrich\"", `"Zürich"`},
		{"nothing", "", "", ""},
		{"nothing in Latin-1", "latin1", "", ""},
	} {
		before := test.body
		body := []byte(test.body)
		if got, err := JSON(body, test.charset); err != nil || string(got) != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
		if string(body) != before {
			t.Errorf("%s: the text was changed", test.name)
		}
	}
	for _, test := range []struct{ charset, body, says string }{
		{"windows-1252", "{}", `"windows-1252" is none of UTF-8, UTF-16 and ISO-8859-1`},
		{strings.Repeat("x", 1000), "{}", "(1000 bytes)"},
		{"utf-16", "{\x00}", "odd number of bytes"},
	} {
		if _, err := JSON([]byte(test.body), test.charset); err == nil || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 500 {
			t.Errorf("%.20q: %v, want it to say %q", test.charset, err, test.says)
		}
	}
}

// FuzzJSON gives JSON any bytes in any charset.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"{}", "\xef\xbb\xbf{}", "\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}", "\"\x00\x00\xd8\x00\xdc\"\x00", "\"\xfc\"", "\x00\x00\x00{", ""} {
		for _, charset := range []string{"", "utf-16", "iso-8859-1", "utf-7"} {
			f.Add([]byte(text), charset)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, charset string) {
		before := string(text)
		got, err := JSON(text, charset)
		if string(text) != before {
			t.Error("the text was changed")
		}
		if err == nil && len(got) > 2*len(text) {
			t.Errorf("%d bytes have become %d", len(text), len(got))
		}
		if utf16Order(text) != nil && err == nil && !utf8.Valid(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		if charset == "" && utf16Order(text) == nil && !strings.HasSuffix(before, string(got)) {
			t.Errorf("%q has become %q", before, got)
		}
	})
}
