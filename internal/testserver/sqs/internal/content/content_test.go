package content

import (
	"regexp"
	"testing"
)

func TestContent_ValidCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                  true,
		"\t\n\r ~":          true,
		"\u0080\uD7FF":      true,
		"\uE000\uFFFD":      true,
		"\U00010000":        true,
		"\U0010FFFF":        true,
		"\x00":              false,
		"a\x0b":             false,
		"ä\x1f":             false,
		"\uFFFE":            false,
		"\uFFFF":            false,
		"long enough \x7f":  true,
		"ends with \u001e.": false,
	} {
		if got := Valid(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// The checksums are recorded from the service: test_send_message_with_binary_attributes and
// test_receive_message_attribute_names_filters of LocalStack's tests/aws/services/sqs.
func TestAttributesMD5_IsTheServices(t *testing.T) {
	t.Parallel()
	binary := Attribute{Name: "attr1", Type: "Binary", Binary: []byte("traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")}
	text := Attribute{Name: "Foo", Type: "String", String: "Bar"}
	for want, a := range map[string]Attribute{"8cbe4db156db8a94db8b801b7addb984": binary, "ae7155c6026991b6d54b11589678bf9c": text} {
		if got := MD5OfAttributes([]Attribute{a}); got != want {
			t.Errorf("%s: %s, want %s", a.Name, got, want)
		}
	}
}

func TestIDs_HaveTheirForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if a, b := NewID(), NewID(); !form.MatchString(a) || a == b {
		t.Errorf("ids %s and %s", a, b)
	}
}
