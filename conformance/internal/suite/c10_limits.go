package suite

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
)

// Needs of the cases about limits: a message can exceed one limit alone, and it fits into
// the test machine's memory.
var (
	messageLimitTried = need{"MaxMessageBytes is without limit, or above 64 MiB", func(s *suite) bool {
		return s.caps.MaxMessageBytes > 0 && s.caps.MaxMessageBytes <= 64<<20
	}}
	headerLimitTried = need{"MaxHeaderBytes is without limit, not below MaxMessageBytes, or above 64 MiB", func(s *suite) bool {
		limit, all := s.caps.MaxHeaderBytes, s.caps.MaxMessageBytes
		return limit > 0 && limit <= 64<<20 && (all == 0 || limit < all)
	}}
)

var limitCases = []testCase{
	{rule: "C10", title: "a message may be as large as MaxMessageBytes", modes: inHighest, needs: []need{messageLimitTried}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m, headers := t.message(queue, ""), t.message(queue, "")
		m.Body = t.randomBytes(t.caps.MaxMessageBytes - m.Headers.Bytes())
		t.fill(&headers, t.maxHeaders())
		headers.Body = t.randomBytes(t.caps.MaxMessageBytes - headers.Headers.Bytes())
		t.unchanged(transport, queue, m, headers)
	}},
	{rule: "C10", title: "a message larger than MaxMessageBytes is refused", modes: inHighest, needs: []need{messageLimitTried}, run: func(t *caseT) {
		limit := t.caps.MaxMessageBytes
		t.tooLarge("MaxMessageBytes", limit, limit+1, func(queue string) (bad []core.Outgoing) {
			body, both := t.message(queue, ""), t.message(queue, "")
			body.Body = make([]byte, limit+1-body.Headers.Bytes())
			t.fill(&both, t.maxHeaders()) // too large in bytes, but not in characters
			both.Body = make([]byte, limit+1-both.Headers.Bytes())
			return []core.Outgoing{body, both}
		})
	}},
	{rule: "C10", title: "headers may be as large as MaxHeaderBytes", modes: inHighest, needs: []need{headerLimitTried}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "")
		t.fill(&m, t.caps.MaxHeaderBytes)
		t.unchanged(transport, queue, m)
	}},
	{rule: "C10", title: "headers larger than MaxHeaderBytes are refused", modes: inHighest, needs: []need{headerLimitTried}, run: func(t *caseT) {
		limit := t.caps.MaxHeaderBytes
		t.tooLarge("MaxHeaderBytes", limit, limit+1, func(queue string) []core.Outgoing {
			m := t.message(queue, "")
			t.fill(&m, limit+1)
			return []core.Outgoing{m}
		})
	}},
	{rule: "C10", title: "a header's key may be as long as MaxHeaderKeyBytes", modes: inHighest, needs: []need{headerKeyLimit}, run: func(t *caseT) {
		limit := t.caps.MaxHeaderKeyBytes
		t.headersArrive(map[string]string{strings.Repeat("k", limit): "ASCII"}, map[string]string{wide(limit): "not ASCII"})
	}},
	{rule: "C10", title: "a header's key longer than MaxHeaderKeyBytes is refused", modes: inHighest, needs: []need{headerKeyLimit}, run: func(t *caseT) {
		limit := t.caps.MaxHeaderKeyBytes
		t.tooLarge("MaxHeaderKeyBytes", limit, limit+1, func(queue string) []core.Outgoing {
			long, characters := t.message(queue, ""), t.message(queue, "")
			long.Headers.Set(strings.Repeat("k", limit+1), "")
			characters.Headers.Set(wide(limit+1), "")
			return []core.Outgoing{long, characters}
		})
	}},
	{rule: "C10", title: "a header that is no UTF-8 or has no key is refused", modes: inHighest, run: func(t *caseT) {
		t.refusesEach(t.invalidHeaders)
	}},
	{rule: "C10", title: "a message without exactly one destination is refused", modes: inHighest, run: func(t *caseT) {
		t.refusesEach(t.wrongDestinations)
	}},
	{rule: "C10", title: "a negative time is refused", modes: inHighest, run: func(t *caseT) {
		t.refusesEach(t.negativeTimes)
	}},
	{rule: "C10", title: "a refused message has no effect on other messages", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		t.send(transport, t.message(queue, "held"))
		held := r.next()
		for range 3 {
			for _, bad := range t.invalidMessages(queue) {
				t.renew(held)
				if err := t.trySend(transport, bad.message); err == nil {
					t.stop("Send refuses "+bad.name, "nil")
				}
			}
		}
		t.send(transport, t.message(queue, "afterwards")) // the connection still works
		next := r.next()
		if got := string(next.Incoming().Body); got != "afterwards" {
			t.stop(`while "held" is held, "afterwards" is delivered: refused messages lose no lock`, "%q", got)
		}
		t.complete(held, next)
		t.wantLeft(queue, "after both messages were completed")
	}},
	{rule: "C10", title: "a settlement checks the messages that it sends", modes: inAtomic, run: func(t *caseT) {
		transport := t.open()
		from, to := t.queue(transport), t.queue(transport)
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			t.send(transport, t.message(from, "received"))
			r := t.receiver(transport, from, 1)
			d := r.next()
			for _, bad := range t.invalidMessages(to) {
				t.renew(d)
				out := []core.Outgoing{t.message(to, "sound"), bad.message}
				err := t.trySettleWith(s, d, out...)
				if !bad.matches(err) {
					t.fail(fmt.Sprintf("%s refuses %s%s", s.name, bad.name, bad.how()), "%v", err)
				}
				if err == nil {
					break // and the delivery is settled
				}
				t.sendResults(err, out)
			}
			t.settleWith(s, d, t.message(to, "sent with "+s.name)) // it is still unsettled
			r.close()
		}
		t.wantLeft(from, "after its messages were settled by CompleteWith and ReplaceWith")
		t.wantLeft(to, "after the invalid messages were refused with all that were sent with them", "sent with CompleteWith", "sent with ReplaceWith")
	}},
	{rule: "C10", title: "the limits hold for the messages of applications, not for copies of failed messages", modes: inHighest, needs: []need{lowerLimit}, run: func(t *caseT) {
		transport := t.openLimited(lowLimit)
		queue := t.queue(transport)
		for _, reason := range []core.SendReason{core.ReasonApplication, core.ReasonForward, core.ReasonAcknowledgement} {
			m := t.beyondLimit(queue, "")
			m.Reason = reason
			if err := t.trySend(transport, m); !errors.Is(err, core.ErrTooLarge) {
				t.fail(fmt.Sprintf("Send refuses a message larger than MaxMessageBytes whose Reason is %v with an error matching core.ErrTooLarge", reason), "%v", err)
			}
		}
		copies := make([]core.Outgoing, len(engineCopies))
		for i, reason := range engineCopies {
			copies[i] = t.beyondLimit(queue, fmt.Sprint(i))
			copies[i].Reason = reason
			if err := t.trySend(transport, copies[i]); err != nil {
				t.stop(fmt.Sprintf("Send takes a message larger than MaxMessageBytes whose Reason is %v, because the broker takes it", reason), "%v", err)
			}
		}
		t.arriveUnchanged(transport, queue, copies...)
	}},
}

// invalidMessage is a message that a transport refuses.
type invalidMessage struct {
	name    string
	want    error // the expected error; nil: any
	message core.Outgoing
}

func (i invalidMessage) matches(err error) bool {
	return err != nil && (i.want == nil || errors.Is(err, i.want))
}

func (i invalidMessage) how() string {
	if i.want == nil {
		return ""
	}
	return " with an error matching " + errorName(i.want)
}

func (t *caseT) invalidHeaders(queue string) (list []invalidMessage) {
	for _, h := range []struct{ name, key, value string }{
		{"an empty key", "", "value"},
		{"a key that is not UTF-8", "\xff", "value"},
		{"a key that is cut inside a character", "cl\xc3", "value"},
		{"a value that is not UTF-8", "key", "\xff\xfe"},
		{"a value that is cut inside a character", "key", "caf\xc3"},
		{"a value with half a surrogate pair", "key", "\xed\xa0\x80"},
	} {
		m := t.message(queue, "a header with "+h.name)
		m.Headers.Set(h.key, h.value)
		list = append(list, invalidMessage{"a header with " + h.name, core.ErrInvalidHeader, m})
	}
	return list
}

func (t *caseT) wrongDestinations(queue string) []invalidMessage {
	neither, both := t.message("", "no destination"), t.message(queue, "two destinations")
	both.Topic = t.uniqueName()
	return []invalidMessage{
		{"a message with neither Queue nor Topic", nil, neither},
		{"a message with both Queue and Topic", nil, both},
	}
}

func (t *caseT) negativeTimes(queue string) []invalidMessage {
	delayed, expired := t.message(queue, "early"), t.message(queue, "expired")
	delayed.Delay = -time.Second
	expired.TimeToBeReceived = -time.Second
	return []invalidMessage{
		{"a message with a negative Delay", nil, delayed},
		{"a message with a negative TimeToBeReceived", nil, expired},
	}
}

// invalidMessages returns messages that a transport refuses for all kinds of reasons.
func (t *caseT) invalidMessages(queue string) []invalidMessage {
	list := append(append(t.invalidHeaders(queue), t.wrongDestinations(queue)...), t.negativeTimes(queue)...)
	if messageLimitTried.met(t.suite) {
		m := t.message(queue, "")
		m.Body = make([]byte, t.caps.MaxMessageBytes+1)
		list = append(list, invalidMessage{"a message larger than MaxMessageBytes", core.ErrTooLarge, m})
	}
	if headerLimitTried.met(t.suite) {
		m := t.message(queue, "")
		t.fill(&m, t.caps.MaxHeaderBytes+1)
		list = append(list, invalidMessage{"headers larger than MaxHeaderBytes", core.ErrTooLarge, m})
	}
	if limit := t.caps.MaxHeaderKeyBytes; limit > 0 {
		m := t.message(queue, "")
		m.Headers.Set(strings.Repeat("k", limit+1), "")
		list = append(list, invalidMessage{"a header's key longer than MaxHeaderKeyBytes", core.ErrTooLarge, m})
	}
	return list
}

// refusesEach checks that Send refuses a batch with one of these messages, and that no
// message of the batch arrives.
func (t *caseT) refusesEach(illegals func(queue string) []invalidMessage) {
	transport := t.open()
	queue := t.queue(transport)
	for _, bad := range illegals(queue) {
		batch := []core.Outgoing{t.message(queue, "sound"), bad.message, t.message(queue, "sound")}
		for _, msgs := range [][]core.Outgoing{{bad.message}, batch} {
			err := t.trySend(transport, msgs...)
			if !bad.matches(err) {
				t.fail(fmt.Sprintf("Send refuses %s%s", bad.name, bad.how()), "%v", err)
				continue
			}
			results := t.sendResults(err, msgs)
			t.allRefused(results)
			t.blamed(bad, msgs, results)
		}
	}
	t.send(transport, t.message(queue, "afterwards"))
	t.wantLeft(queue, "after every Send was refused but the last", "afterwards")
}

// allRefused checks that no message of a Send was sent.
func (t *caseT) allRefused(results []core.SendResult) {
	for i, r := range results {
		if r.State != core.SendRefused {
			t.fail("all messages are checked before the first is sent, so that each of them is core.SendRefused", "message %d is %v", i, r.State)
		}
	}
}

// tooLarge checks that messages which exceed one limit are refused, and that no message
// of their Sends arrives.
func (t *caseT) tooLarge(limit string, maximum, size int, exceeding func(queue string) []core.Outgoing) {
	transport := t.open()
	queue := t.queue(transport)
	r := t.receiver(transport, queue, 4)
	for _, bad := range exceeding(queue) {
		msgs := []core.Outgoing{t.message(queue, "sound"), bad, t.message(queue, "sound")}
		err := t.trySend(transport, msgs...)
		large, ok := errors.AsType[*core.TooLargeError](err)
		if !ok || !errors.Is(err, core.ErrTooLarge) {
			t.fail(fmt.Sprintf("Send refuses a message that exceeds %s by a byte with a *core.TooLargeError", limit), "%v", err)
			continue
		}
		if large.Limit != limit || large.Max != maximum || large.Size != size {
			t.fail(fmt.Sprintf("the *core.TooLargeError has Limit %s, Max %d and Size %d", limit, maximum, size), "%+v", *large)
		}
		t.allRefused(t.sendResults(err, msgs))
	}
	t.send(transport, t.message(queue, "afterwards"))
	r.drain("afterwards") // transport and receiver still work
	r.close()
	t.wantLeft(queue, "after every Send was refused but the last, which was received")
}

// maxHeaders is the size in bytes of the headers of a message that has many headers, and
// a body too.
func (t *caseT) maxHeaders() int {
	size := min(t.caps.MaxMessageBytes/2, 16<<10)
	if limit := t.caps.MaxHeaderBytes; limit > 0 {
		size = min(size, limit)
	}
	return size
}

// fill adds headers to a message until they have the size. The headers are long, but none
// is very long, and not in ASCII.
func (t *caseT) fill(m *core.Outgoing, size int) {
	const long, key = 4 << 10, "f00000"
	for i := 0; ; i++ {
		rest := size - m.Headers.Bytes() - len(key)
		if rest < 0 {
			t.stop(fmt.Sprintf("the limits leave room for a message's id and some headers, %d bytes", m.Headers.Bytes()+len(key)), "they allow %d", size)
		}
		last := rest <= long+len(key)
		if !last {
			rest = long
		}
		m.Headers.Set(fmt.Sprintf("f%05d", i), wide(rest))
		if last {
			return
		}
	}
}

// wide returns text of size bytes with fewer characters.
func wide(size int) string {
	const character = 'ü'
	n := utf8.RuneLen(character)
	return strings.Repeat(string(character), size/n) + strings.Repeat("u", size%n)
}

// blamed checks that the invalid message has its own error, and the other messages do
// not.
func (t *caseT) blamed(bad invalidMessage, msgs []core.Outgoing, results []core.SendResult) {
	for i, r := range results {
		switch {
		case bad.want == nil:
		case msgs[i].ID == bad.message.ID && !errors.Is(r.Err, bad.want):
			t.fail("the SendResult of the message that is wrong has an Err matching "+errorName(bad.want), "%v", r.Err)
		case msgs[i].ID != bad.message.ID && errors.Is(r.Err, bad.want):
			t.fail("the SendResult of a message that is not wrong has no Err matching "+errorName(bad.want)+": the code that handles the error needs the index of the message that is", "message %d of %d, which is sound: %v", i, len(results), r.Err)
		}
	}
}
