package suite

import (
	"fmt"
	"maps"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// returnOf returns the message with which a tool sends a message to a queue, with the id of
// the return, or "".
func returnOf(in *core.Incoming, queue, id string) core.Outgoing {
	o := core.Outgoing{
		ID: in.ID, Queue: queue, Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: core.ReasonReturn,
	}
	o.Headers.Del(headers.RetryUniqueMessageID)
	if id != "" {
		o.Headers.Set(headers.RetryUniqueMessageID, id)
	}
	return o
}

// failedCopyOf returns the copy of a message that the engine sends to an error queue.
func failedCopyOf(in *core.Incoming, queue string) core.Outgoing {
	o := returnOf(in, queue, "")
	o.Reason = core.ReasonMoveToError
	o.Headers.Set(headers.FailedQ, "orders")
	return o
}

// uniqueQueue returns an empty queue at which the broker drops duplicates, and a
// message for it that would be dropped the second time.
func (t *caseT) uniqueQueue(body string) (queue string, m core.Outgoing) {
	queue, property := t.suite.h.UniqueQueue(t)
	m = t.message(queue, body)
	if property != "" {
		m.Properties = map[string]string{property: t.id()}
	}
	return queue, m
}

// wantCopies receives and consumes the messages of a queue, and checks how many there are. A
// broker that may deliver one of them twice does not deliver more of them.
func (t *caseT) wantCopies(queue, subject string, want int) {
	copies := map[string]bool{}
	for _, in := range t.contents(queue, want) {
		copies[in.NativeID] = true
	}
	if len(copies) != want {
		t.fail(fmt.Sprintf("%s: %d messages", subject, want), "%d", len(copies))
	}
}

// onlyMessage receives and consumes the message with the body "returned", the only one of a queue.
func (t *caseT) onlyMessage(queue, subject string) *core.Incoming {
	found := t.wantLeft(queue, subject, "returned")
	if len(found) == 0 {
		t.stop(subject+" arrives", "it does not")
	}
	return found[0]
}

var sentReturnCases = []testCase{
	{rule: "C38", title: "a return has the id, headers and body of its message, and a first delivery", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue, errorQueue := t.queue(transport), t.queue(transport)
		sent := t.richMessage(queue)
		t.send(transport, sent)
		r := t.receiver(transport, queue, 1)
		d := r.abandonN(3)
		t.send(transport, failedCopyOf(d.Incoming(), errorQueue))
		t.complete(d)
		r.close()
		r = t.receiver(transport, errorQueue, 1)
		d = r.abandonN(2)
		t.send(transport, returnOf(d.Incoming(), queue, "campaign/1"))
		t.complete(d)
		r.close()
		d = t.receiver(transport, queue, 1).next()
		returned := *d.Incoming()
		t.wantFirstDelivery("on the first delivery of a return, after deliveries of the message and of its failed copy", &returned)
		returned.Headers.Del(headers.RetryUniqueMessageID, headers.FailedQ)
		t.wantSame(&returned, sent)
		t.complete(d)
	}},
	{rule: "C38", title: "the limits of applications do not limit a return", modes: inHighest, needs: []need{headerLimit}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "returned")
		t.fill(&m, t.caps.MaxHeaderBytes)
		t.send(transport, m)
		in := t.onlyMessage(queue, "a message whose headers have MaxHeaderBytes")
		t.send(transport, returnOf(in, queue, "campaign/"+strings.Repeat("1", 300)))
		in = t.onlyMessage(queue, "the return of a message whose headers have MaxHeaderBytes, with 300 bytes more")
		got := in.Headers.Map()
		delete(got, headers.RetryUniqueMessageID)
		if want := m.Headers.Map(); !maps.Equal(got, want) {
			t.fail(fmt.Sprintf("a return has the %d headers of its message", len(want)), "%d headers of %d bytes", len(got), in.Headers.Bytes())
		}
	}},
	{rule: "C38", title: "a return is no duplicate of its message, nor of the failed copy", modes: inHighest, needs: []need{duplicateDetection}, run: func(t *caseT) {
		transport := t.open()
		queue, m := t.uniqueQueue("returned")
		t.send(transport, m)
		t.send(transport, m)
		t.wantCopies(queue, "of two Sends of one message to the queue of Harness.UniqueQueue, one", 1)
		in := &core.Incoming{ID: m.ID, Headers: m.Headers, Body: m.Body, Properties: m.Properties}
		errorQueue, _ := t.uniqueQueue("")
		t.send(transport, failedCopyOf(in, errorQueue))
		in = t.onlyMessage(errorQueue, "the failed copy of the message")
		t.send(transport, returnOf(in, queue, "campaign/1"), returnOf(in, errorQueue, "campaign/2"))
		t.onlyMessage(queue, "the return of a message to the queue that has had it")
		in = t.onlyMessage(errorQueue, "the return of a message to the queue that has had the failed copy")
		t.send(transport, returnOf(in, queue, ""))
		t.onlyMessage(queue, "a return without an id, to the queue that has had the message")
	}},
	{rule: "C38", title: "a return that is sent again is dropped, and no other one", modes: inHighest, needs: []need{duplicateDetection}, run: func(t *caseT) {
		transport := t.open()
		queue, m := t.uniqueQueue("returned")
		t.send(transport, m)
		in := t.onlyMessage(queue, "the message")
		long := strings.Repeat("1", 300)
		for _, id := range []string{"campaign/1", "campaign/2", long, long + "2"} {
			t.send(transport, returnOf(in, queue, id))
			t.send(transport, returnOf(in, queue, id))
		}
		t.wantCopies(queue, "of two returns with each of four ids, one with each", 4)
		for range 2 {
			t.send(transport, returnOf(in, queue, ""))
		}
		t.wantCopies(queue, "two returns without an id", 2)
	}},
}
