package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// contentCases are about the contents of received messages; limitCases are about the
// limits of sent ones.
var contentCases = []testCase{
	{rule: "C10", title: "a copy has the native properties of its original", modes: inHighest, needs: []need{nativeMessages}, run: func(t *caseT) {
		transport := t.open()
		first, second := t.queue(transport), t.queue(transport)
		describe := t.suite.h.SendNative(t, first, "order")
		want := ""
		for i, to := range []string{second, first, ""} { // a copy, and a copy of the copy
			from := []string{first, second, first}[i]
			r := t.receiver(transport, from, 1)
			d := r.next()
			in := d.Incoming()
			if got := describe(in.Native); i == 0 {
				want = got
			} else if got != want {
				t.fail(fmt.Sprintf("a copy that is sent with the Native of its original has its native properties, %s", want), "%s", got)
			}
			if to != "" {
				t.send(transport, core.Outgoing{ID: in.ID, Queue: to, Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: core.ReasonMoveToError})
			}
			t.complete(d)
			r.close()
		}
	}},
	{rule: "C10", title: "a copy of another adapter's message is sent without its native properties", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		m := t.message(t.queue(transport), "copied")
		m.Native, m.Reason = struct{ ofAnotherAdapter string }{"native"}, core.ReasonMoveToError
		t.send(transport, m)
		d := t.receiver(transport, m.Queue, 1).next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
	{rule: "C10", title: "a header's key may be any text", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachWith("value",
			"a key with spaces", "dots.in.it", "dashes-in-it", "underscores_in_it", "colons:in:it", "slashes/in/it",
			"$.diagnostics.hostid", "$", "@", "#1", "a=b", "a&b=c", "100%", "%41", "\"quoted\"", "it's", "back\\slash",
			"[0]", "{brackets}", "(round)", "<angled>", "a,b;c", "a+b", "a|b", "a?b!", "*", "~", "^", "`",
			"ünïcödé", "ключ", "鍵", "مفتاح", "🔑", "👩‍👩‍👧", "0", "007", "-1", "null", "true", " ", " leading", "trailing ",
			"e\u0301 decomposed", "\u00e9 composed",
		)...)
	}},
	{rule: "C10", title: "keys that differ in case are different headers", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(
			map[string]string{"key": "lower", "KEY": "upper", "Key": "title", "kEY": "inverted"},
			map[string]string{"straße": "sharp", "STRASSE": "double", "STRAẞE": "capital"},
		)
	}},
	{rule: "C10", title: "keys that look alike are different headers", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(
			map[string]string{"é": "composed", "e\u0301": "decomposed"},
			map[string]string{"key": "plain", " key": "leading", "key ": "trailing", "ke y": "inside", "k\u200bey": "zero width"},
			map[string]string{"a.b": "dot", "a-b": "dash", "a_b": "underscore", "a:b": "colon", "a/b": "slash", "ab": "none"},
		)
	}},
	{rule: "C10", title: "a header may have the name of a broker's header", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachWith("the application's own",
			"id", "ID", "Id", "type", "timestamp", "priority", "headers", "body", "queue", "expiration", "delivery-mode",
			"content-type", "Content-Type", "ContentType", "content-encoding", "correlation-id", "CorrelationId",
			"reply-to", "ReplyTo", "message-id", "MessageId", "MessageID", "user-id", "app-id", "cluster-id", "Label", "Subject",
			"x-death", "x-first-death-queue", "x-first-death-reason", "x-delay", "x-delivery-count", "x-acquired-count", "x-match", "CC", "BCC",
			"x-opt-enqueued-time", "x-opt-scheduled-enqueue-time", "DeadLetterReason", "DeadLetterErrorDescription",
			"ApproximateReceiveCount", "SentTimestamp", "SenderId", "DelaySeconds", "AWS.Message", "AWSTraceHeader", "Amazon.Headers",
			"Recoverable", "Expires", "RowVersion", "NServiceBus.Transport.Encoding", "traceparent", "tracestate",
			"Reprise.GroupKey", "Reprise.Properties", "Reprise.Escaped.", "Reprise.Escaped.Reprise.GroupKey", "GroupKey", "MessageGroupId", "SessionId",
		)...)
	}},
	{rule: "C10", title: "a header's value may be any text", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachKey(
			"ünïcödé", "значение", "値段", "قيمة", "👩‍👩‍👧🏴‍☠️", "é composed, e\u0301 decomposed", "\ufeffbyte order mark", "right\u200eto\u200fleft",
			"\ufffd", "\U0010ffff", "\u2028\u2029", "\"quoted\"", "'quoted'", "back\\slash", `{"json": [1, "two", null]}`, "<xml a=\"b\">&amp;</xml>",
			"a=b&c=d; e", "100 %", "%00 %41", "$1 ${2} {{3}}", "'; DROP TABLE messages; --", "0", "007", "1e3", "-0", "1.50", "0x1F", "true", "FALSE", "null", "NULL", "undefined", "NaN",
			"2026-01-02T03:04:05Z", "aGVsbG8=", "=?UTF-8?B?aGVsbG8=?=", "\\u0041", "\\x41", "&#65;",
		)...)
	}},
	{rule: "C10", title: "a header's value may be empty", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(
			map[string]string{"Empty": ""},
			map[string]string{"Empty": "", "Full": "value", "Empty too": ""},
		)
	}},
	{rule: "C10", title: "white space round a header's value is part of it", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachKey(" ", "   ", " leading", "trailing ", "  both  ", "\u00a0no-break\u00a0", "\u3000ideographic\u3000")...)
	}},
	{rule: "C10", title: "a header's value may have tabs and line breaks", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachKey("a\tb", "\t", "a\nb", "a\r\nb\r\n", "\n", "a\rb", "two\n\nlines\n", "Folded: a\r\n b")...)
	}},
	{rule: "C10", title: "a header's value may have any control character", modes: inHighest, run: func(t *caseT) {
		var list []string
		for c := range rune(0xa0) {
			if c < ' ' || c >= 0x7f {
				list = append(list, "<"+string(c)+">")
			}
		}
		t.headersArrive(eachKey(append(list, "\x00", "cut\x00here", "\x1b[31mred", "\ufffe\uffff")...)...)
	}},
	{rule: "C10", title: "a header's key may have control characters", modes: inHighest, run: func(t *caseT) {
		t.headersArrive(eachWith("value", "tab\there", "line\nbreak", "\r\n", "nul\x00inside", "\x00", "\x7f")...)
	}},
	{rule: "C10", title: "a message may have a hundred headers", modes: inHighest, run: func(t *caseT) {
		many := map[string]string{}
		for i := range 100 {
			many[fmt.Sprintf("Header.%d", i)] = fmt.Sprintf("value %d", i)
		}
		t.headersArrive(many)
	}},
	{rule: "C10", title: "a header may be long", modes: inHighest, run: func(t *caseT) {
		long := 40 << 10
		for _, limit := range []int{t.caps.MaxHeaderBytes, t.caps.MaxMessageBytes} {
			if limit > 0 {
				long = min(long, limit/2)
			}
		}
		key := 1000
		if limit := t.caps.MaxHeaderKeyBytes; limit > 0 {
			key = min(key, limit)
		}
		t.headersArrive(
			map[string]string{"Long value": strings.Repeat("0123456789abcdef", long/16)},
			map[string]string{"Long value": strings.Repeat("ü", long/2)},
			map[string]string{strings.Repeat("k", min(key, long)): "of a long key"},
		)
	}},
	{rule: "C10", title: "a group key arrives as it was sent", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 5)
		for i, key := range []string{"customer-7", "customer-8", "", "order 4711/a", "customer-7"} {
			sent[i].GroupKey = key
		}
		t.unchanged(transport, queue, sent...)
	}},
	{rule: "C10", title: "properties arrive as they were sent", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 4)
		for i, properties := range []map[string]string{
			{"Conformance.One": "1"},
			{"Conformance.One": "2", "Conformance.Two": "", "conformance.two": "lower"},
			nil,
			{"Conformance ключ": "\"значение\" \x00 👩‍👩‍👧\r\n", "Conformance:1/2": " round it "},
		} {
			sent[i].Properties = properties
		}
		t.unchanged(transport, queue, sent...)
	}},
	{rule: "C10", title: "every delivery of a message has its group key and properties", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.richMessage(queue)
		m.Body = []byte("given back")
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		for _, way := range t.waysToSettle("")[1:3] {
			d := r.next()
			t.wantSame(d.Incoming(), m)
			if err := t.trySettling(way, d); err != nil {
				t.stop(way.name+" settles a delivery that is held", "%v", err)
			}
		}
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
	{rule: "C10", title: "a message without headers arrives without headers", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		ids := map[string]string{"an id": t.id(), "a long id": strings.Repeat(t.id()+" ünïcode ✓ ", 20), "the id of its group": t.id()}
		var out []core.Outgoing
		for body, id := range ids {
			m := core.Outgoing{ID: id, Queue: queue, Body: []byte(body)}
			if body == "the id of its group" {
				m.GroupKey = id
			}
			out = append(out, m)
		}
		t.send(transport, out...)
		for _, in := range t.receiver(transport, queue, 3).drain("an id", "a long id", "the id of its group") {
			if in.Malformed != nil {
				t.fail("a message that was sent without headers is not Malformed", "%v", in.Malformed)
			}
			if in.Headers.Len() > 0 {
				t.fail("a message that was sent without headers has none, not even "+headers.MessageID, "it has %s", excerptHeaders(in.Headers.Map(), nil))
			}
			if id := ids[string(in.Body)]; in.ID != id || !in.IDSent {
				t.fail(fmt.Sprintf("Incoming.ID is the ID that was sent without a header, %.60q, with IDSent", id), "it is %.60q, and IDSent is %t", in.ID, in.IDSent)
			}
		}
		if err := t.trySend(transport, core.Outgoing{Queue: queue, Body: []byte("no id")}); err == nil {
			t.fail("Send refuses a message without an ID", "it returned nil")
		}
		t.wantLeft(queue, "after a message without an ID was refused")
	}},
	{rule: "C10", title: "a body may be any bytes", modes: inHighest, run: func(t *caseT) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		backwards := slices.Clone(all)
		slices.Reverse(backwards)
		t.bodiesArrive([]byte("x"), []byte{0}, []byte{0xff}, all, backwards, []byte("cut\x00here"), []byte("\x00\x00\x00"), []byte("not UTF-8: \xc3\x28 \xff\xfe"),
			[]byte("\xed\xa0\x80 surrogate"), []byte("ünïcödé ✓ 👩‍👩‍👧"), []byte("\ufeffbyte order mark"), []byte(" "), []byte(" white space \t\r\n"), []byte("\n"), []byte("a\r\nb\n\n"),
			[]byte("null"), []byte("{}"), []byte(`""`), []byte(`{"json": "\u0041"}`), []byte("<xml/>"), []byte("aGVsbG8="), []byte("0"), []byte("\\x00ff"), []byte("'; --"),
			[]byte("\x1f\x8b\x08\x00 gzip"), []byte("\x78\x9c zlib"))
	}},
	{rule: "C10", title: "a body may be empty", modes: inHighest, run: func(t *caseT) {
		t.bodiesArrive(nil, []byte{})
	}},
	{rule: "C10", title: "a body may be large", modes: inHighest, run: func(t *caseT) {
		sizes := []int{1 << 10, 4<<10 + 1, 32 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20}
		var large [][]byte
		for _, size := range sizes {
			if limit := t.caps.MaxMessageBytes; limit > 0 {
				size = min(size, limit-1<<10) // the headers have a lower limit
			}
			large = append(large, t.randomBytes(size))
		}
		t.bodiesArrive(large...)
	}},
	{rule: "C10", title: "a delayed message arrives as it was sent", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.richMessage(queue)
		m.Delay = t.briefDelay()
		t.unchanged(transport, queue, m)
	}},
	{rule: "C10", title: "a message with a time to be received arrives as it was sent", modes: inHighest, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.richMessage(queue)
		m.TimeToBeReceived = time.Hour
		t.unchanged(transport, queue, m)
	}},
	{rule: "C10", title: "a published event arrives as it was sent", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.richMessage("")
		m.Topic = t.uniqueName()
		t.subscribe(transport, queue, m.Topic)
		t.unchanged(transport, queue, m)
	}},
	{rule: "C10", title: "a message that is sent with a settlement arrives as it was sent", modes: inAtomic, run: func(t *caseT) {
		transport := t.open()
		from, to := t.queue(transport), t.queue(transport)
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			t.send(transport, t.message(from, "any"))
			r := t.receiver(transport, from, 1)
			out := []core.Outgoing{t.richMessage(to), {ID: t.id(), Queue: to, Headers: core.HeadersFromMap(map[string]string{"Empty": ""})}}
			out[1].Headers.Set(headers.MessageID, out[1].ID)
			t.settleWith(s, r.next(), slices.Clone(out)...)
			r.close()
			t.arriveUnchanged(transport, to, out...)
		}
	}},
	{rule: "C10", title: "the audit queue gets a copy of each handled message, and no other messages", run: func(t *caseT) {
		transport := t.open()
		audit := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.AuditQueue = audit })
		jobs := t.blockingHandler()
		s.handle("job", func(_ context.Context, m *core.Message) error {
			jobs.enter(string(m.RawBody()))
			defer jobs.leave()
			switch string(m.RawBody()) {
			case "bad":
				return errHandler
			case "unwanted":
				return core.Discard(errors.New("the case wants it"))
			}
			m.Headers.Set("Sender", "the handler's own")
			return nil
		})
		good := t.command(s.queue, "job", "good")
		for i := range 8 {
			good.Headers.Set(fmt.Sprintf("Custom.%d", i), fmt.Sprintf("välue %d", i))
		}
		s.run()
		t.send(transport, t.command(s.queue, "job", "bad"), good, t.command(s.queue, "job", "unwanted"))
		t.awaitCount("messages handled", 3, jobs.messages)
		s.end()
		for _, in := range t.wantLeft(audit, "the copies of the handled messages", "good") {
			if in.ID != good.ID {
				t.fail("the audit copy has the message's id, "+good.ID, "%q", in.ID)
			}
			for key, want := range good.Headers.All() {
				if got := in.Headers.Get(key); got != want {
					t.fail(fmt.Sprintf("the audit copy has the message's header %s: %q", key, want), "%q", got)
				}
			}
			if in.Headers.Get(headers.ProcessingEndpoint) != s.queue {
				t.fail(fmt.Sprintf("the audit copy says in the header %s who handled it: %q", headers.ProcessingEndpoint, s.queue), "%q", in.Headers.Map())
			}
		}
		t.wantLeft(s.errorQueue, "the failed messages", "bad")
		t.wantLeft(s.queue, "after all was handled")
	}},
	{rule: "C10", title: "messages of 64 KiB are sent and received", slow: true, run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, nil)
		out := t.queue(transport)
		s.handle("job", func(_ context.Context, m *core.Message) error { return m.Send(out, doneType.Of(m.RawBody())) })
		s.handle("bad", func(context.Context, *core.Message) error { return errHandler })
		size := 64 << 10
		if limit := t.caps.MaxMessageBytes; limit > 0 { // the endpoint reserves 8 KiB, or half
			size = min(size, max(limit-8<<10, limit/2)-2<<10)
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(t.random.Uint32())
		}
		s.run()
		t.send(transport, t.command(s.queue, "job", string(body)), t.command(s.queue, "bad", string(body)))
		for queue, subject := range map[string]string{out: "the messages of the handler", s.errorQueue: "the failed messages"} {
			d := t.receiver(transport, queue, 1).next()
			if in := d.Incoming(); !bytes.Equal(in.Body, body) {
				t.fail(fmt.Sprintf("%s has the body of %d bytes that was sent", subject, len(body)), "%d bytes, which differ from byte %d on", len(in.Body), differ(in.Body, body))
			}
			t.complete(d)
		}
		s.end()
		t.wantLeft(s.queue, "after all was handled")
	}},
	{rule: "C10", title: "a control message is consumed, audited and acknowledged", run: func(t *caseT) {
		transport := t.open()
		audit, acks := t.queue(transport), t.queue(transport)
		var handled attempts
		s := t.service(transport, func(c *core.Config) { c.AuditQueue, c.RetryAckQueues = audit, []string{acks} })
		s.handle("order", handled.fail)
		s.run()
		sent := t.message(s.queue, "")
		sent.Body = nil
		sent.Headers.Set(headers.ControlMessage, "True")
		sent.Headers.Set(headers.MessageIntent, headers.IntentSend)
		sent.Headers.Set(headers.RetryUniqueMessageID, "unique "+sent.ID)
		sent.Headers.Set(headers.RetryAckQueue, acks)
		t.send(transport, sent)
		const consumed = "a control message, which has neither a type nor a body, is consumed"
		for _, ack := range t.wantArrivals(acks, consumed+", and an operator's retry of it acknowledged", 1) {
			if got, want := ack.Headers.Get(headers.RetryUniqueMessageID), "unique "+sent.ID; got != want {
				t.fail(fmt.Sprintf("the acknowledgement has the header %s: %q", headers.RetryUniqueMessageID, want), "%q", got)
			}
		}
		for _, in := range t.wantLeft(audit, consumed+", and audited", "") {
			if in.ID != sent.ID {
				t.fail("the audit copy has the message's id, "+sent.ID, "%q", in.ID)
			}
		}
		s.wantDrained("after its control message was consumed")
		t.wantLeft(s.errorQueue, "after a control message was consumed")
	}},
}

// eachWith returns one map for each key, all with the same value.
func eachWith(value string, keys ...string) (list []map[string]string) {
	for _, key := range keys {
		list = append(list, map[string]string{key: value})
	}
	return list
}

// eachKey returns one map for each value, all with the same key.
func eachKey(values ...string) (list []map[string]string) {
	for _, value := range values {
		list = append(list, map[string]string{"Key": value})
	}
	return list
}

func (t *caseT) bodiesArrive(list ...[]byte) {
	transport := t.open()
	queue := t.queue(transport)
	var sent []core.Outgoing
	for _, body := range list {
		m := t.message(queue, "")
		m.Body = body
		sent = append(sent, m)
	}
	t.unchanged(transport, queue, sent...)
}

// differ returns the index of the first byte in which two bodies differ.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
