//go:build darwin || linux

package sqs

import (
	"regexp"
	"testing"
	"time"
)

func TestReceiptHandle_IsOfItsQueueAlone(t *testing.T) {
	t.Parallel()
	r := receipt{queue: 3, serial: 1 << 40, receive: 7}
	h := r.handle()
	if got, ok := parseHandle(h, 3); !ok || got != r {
		t.Errorf("parsed %v, %t, want %v", got, ok, r)
	}
	if _, ok := parseHandle(h, 4); ok {
		t.Error("another queue takes it")
	}
	for i := range len(h) {
		wrong := []byte(h)
		wrong[i] ^= 1
		if _, ok := parseHandle(string(wrong), 3); ok && string(wrong) != h {
			t.Errorf("changed at %d it is taken", i)
		}
	}
	for _, wrong := range []string{"", "AQEB", h + "A", h[1:]} {
		if _, ok := parseHandle(wrong, 3); ok {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestIDs_HaveTheirForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if a, b := newID(), newID(); !form.MatchString(a) || a == b {
		t.Errorf("ids %s and %s", a, b)
	}
	last := ""
	for _, n := range []uint64{1, 2, 9, 10, 1 << 20, 1 << 40} {
		s, topic := sequenceNumber(n), topicSequenceNumber(n)
		if len(s) != 20 || s <= last || len(topic) != 20 {
			t.Errorf("sequence numbers %s and %s after %s", s, topic, last)
		}
		last = s
	}
}

func TestMemory_ForgetsAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	m, now := newMemory(), instant(time.Hour)
	m.add("a", sentMessage{id: "1", at: now})
	m.add("b", sentMessage{id: "2", at: now.add(time.Minute)})
	if s, ok := m.find("a", now.add(deduplicationInterval-1)); !ok || s.id != "1" {
		t.Errorf("a: %v, %t", s, ok)
	}
	if _, ok := m.find("a", now.add(deduplicationInterval)); ok {
		t.Error("a is remembered for too long")
	}
	m.add("a", sentMessage{id: "3", at: now.add(deduplicationInterval)})
	if s, ok := m.find("a", now.add(deduplicationInterval+2*time.Minute)); !ok || s.id != "3" {
		t.Errorf("a, sent again: %v, %t", s, ok)
	}
	if len(m.sent) != 1 || len(m.order) != 1 {
		t.Errorf("%d and %d are kept, want 1", len(m.sent), len(m.order))
	}
}

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
		if got := validContent(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// The checksums are recorded from the service: test_send_message_with_binary_attributes and
// test_receive_message_attribute_names_filters of LocalStack's tests/aws/services/sqs.
func TestAttributesMD5_IsTheServices(t *testing.T) {
	t.Parallel()
	binary := attribute{Name: "attr1", Type: "Binary", Binary: []byte("traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")}
	text := attribute{Name: "Foo", Type: "String", String: "Bar"}
	for want, a := range map[string]attribute{"8cbe4db156db8a94db8b801b7addb984": binary, "ae7155c6026991b6d54b11589678bf9c": text} {
		if got := md5OfAttributes([]attribute{a}); got != want {
			t.Errorf("%s: %s, want %s", a.Name, got, want)
		}
	}
}

func TestQueueURL_Parts(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"http://127.0.0.1:4566/123/q":                  {"123", "q"},
		"https://sqs.us-east-1.amazonaws.com/1/q.fifo": {"1", "q.fifo"},
		"q":                    {},
		"http://host":          {},
		"http://host/q":        {},
		"http://host/1/":       {},
		"http://host/1/q/more": {},
	} {
		account, name, ok := splitQueueURL(url)
		if ok != (want[0] != "") || ok && (account != want[0] || name != want[1]) {
			t.Errorf("%s: %q, %q, %t", url, account, name, ok)
		}
	}
}
