package suite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// id returns a message id that no other message has.
func (t *caseT) id() string {
	return fmt.Sprintf("m%d-%016x", t.suite.names.Add(1), t.random.Uint64())
}

// message returns a message as the engine would send it: with an id, and the
// header for it.
func (t *caseT) message(queue, body string) core.Outgoing {
	id := t.id()
	var h core.Headers
	h.Set(headers.MessageID, id)
	h.Set("Sender", "conformance, ünïcode ✓")
	return core.Outgoing{ID: id, Queue: queue, Headers: h, Body: []byte(body)}
}

// messages returns n messages.
func (t *caseT) messages(queue string, n int) []core.Outgoing {
	out := make([]core.Outgoing, n)
	for i := range out {
		out[i] = t.message(queue, fmt.Sprintf("body %d", i))
	}
	return out
}

// richMessage returns a message with contents that adapters often lose.
func (t *caseT) richMessage(queue string) core.Outgoing {
	m := t.message(queue, "not UTF-8: \xff\xfe \x00 zero, ünïcödé ✓\r\n")
	m.GroupKey = "customer-7"
	m.Properties = map[string]string{"Conformance.Property": "значение", "Conformance.Empty": ""}
	for key, value := range map[string]string{
		"Empty": "", "id": "the application's", "content-type": "text/x", "x-death": "never", "$.diagnostics.hostid": "a=b; c",
		"ключ": "значение 👩‍👩‍👧", "UPPER": "1", "upper": "2", " Spaces ": " round it ", "Number": "007",
	} {
		m.Headers.Set(key, value)
	}
	return m
}

// randomBytes returns bytes that are not UTF-8 and cannot be compressed.
func (t *caseT) randomBytes(size int) []byte {
	body := make([]byte, 0, size+8)
	for len(body) < size {
		body = binary.LittleEndian.AppendUint64(body, t.random.Uint64())
	}
	return body[:size]
}

// wantMalformed checks the delivery of a message sent by Harness.Corrupt.
func (t *caseT) wantMalformed(d core.Delivery, body []byte) {
	in := d.Incoming()
	if in.Malformed == nil {
		t.stop("a message that cannot be parsed is delivered with Malformed set", "Malformed is nil, the body %s", excerpt(in.Body))
	}
	if in.Malformed.Error() == "" {
		t.fail("Malformed has the defect of the message", "an error without text: %T", in.Malformed)
	}
	if !bytes.Equal(in.Body, body) {
		t.fail(fmt.Sprintf("the Body of a malformed message is the result of Harness.Corrupt, %s", excerpt(body)), "%s", excerpt(in.Body))
	}
	for key := range in.Headers.All() {
		if key == "" {
			t.fail("the Headers of a malformed message are those that could be read", "one has an empty key")
		}
	}
}

// wantSame checks that a received message equals the sent one.
func (t *caseT) wantSame(in *core.Incoming, sent core.Outgoing) {
	if in.Malformed != nil {
		t.fail("a message that was sent is not Malformed", "%v", in.Malformed)
	}
	if in.ID != sent.ID {
		t.fail(fmt.Sprintf("Incoming.ID is the id that was sent, %q", sent.ID), "%q", in.ID)
	}
	if got, want := in.Headers.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail("the headers are those that were sent, "+excerptHeaders(want, got), "%s", excerptHeaders(got, want))
	}
	if in.GroupKey != sent.GroupKey {
		t.fail(fmt.Sprintf("Incoming.GroupKey is that which was sent, %q", sent.GroupKey), "%q", in.GroupKey)
	}
	if got, want := in.Properties, sent.Properties; !maps.Equal(got, want) {
		t.fail("Incoming.Properties are those that were sent, "+excerptHeaders(want, got), "%s", excerptHeaders(got, want))
	}
	if !bytes.Equal(in.Body, sent.Body) {
		t.fail(fmt.Sprintf("the body is that which was sent, %s", excerpt(sent.Body)), "%s", excerpt(in.Body))
	}
}

// excerptHeaders returns the headers that are missing or different in others.
func excerptHeaders(headers, others map[string]string) string {
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		if other, has := others[key]; !has || other != headers[key] {
			differ = append(differ, excerpt([]byte(key))+": "+excerpt([]byte(headers[key])))
		}
	}
	return fmt.Sprintf("%d headers, here those that differ: {%s}", len(headers), strings.Join(shortened(differ), ", "))
}

// excerpt formats a body of any size.
func excerpt(body []byte) string {
	const shown = 64
	if len(body) <= shown {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%q... (%d bytes)", body[:shown], len(body))
}

// bodies lists the bodies of deliveries.
func bodies(deliveries []core.Delivery) string {
	var list []string
	for _, d := range deliveries {
		list = append(list, string(d.Incoming().Body))
	}
	return sample(list)
}

func bodiesOf(msgs []core.Outgoing) []string {
	list := make([]string, len(msgs))
	for i, m := range msgs {
		list[i] = string(m.Body)
	}
	return list
}

// sample formats a list of bodies, or of other texts, of any length.
func sample(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = excerpt([]byte(text))
	}
	return "[" + strings.Join(shortened(quoted), ", ") + "]"
}

// listed formats a few of many keys.
func listed[V any](all map[string]V) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, fmt.Sprintf("%s: %v", excerpt([]byte(key)), all[key]))
	}
	return strings.Join(shortened(list), "; ")
}

// shortened leaves out the end of a long list, and says so.
func shortened(list []string) []string {
	const shown = 10
	if len(list) <= shown {
		return list
	}
	return append(slices.Clone(list[:shown]), fmt.Sprintf("and %d more", len(list)-shown))
}
