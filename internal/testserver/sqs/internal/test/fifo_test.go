//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func TestFIFO_Requires(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo")
	send := func(change func(*sqs.SendMessageInput)) error {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")}
		change(in)
		_, err := f.sqs.SendMessage(t.Context(), in)
		return err
	}
	f.fails(send(func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = new("d") }), "MissingParameter")
	f.fails(send(toGroup("g", "")), "InvalidParameterValue")
	f.fails(send(func(in *sqs.SendMessageInput) { toGroup("g", "d")(in); in.DelaySeconds = 1 }), "InvalidParameterValue")
	f.fails(send(toGroup("g", strings.Repeat("d", 129))), "InvalidParameterValue")

	entries := []types.SendMessageBatchRequestEntry{
		{Id: new("0"), MessageBody: new("x"), MessageGroupId: new("g"), MessageDeduplicationId: new("0")},
		{Id: new("1"), MessageBody: new("y"), MessageDeduplicationId: new("1")},
	}
	_, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	f.fails(err, "InvalidParameterValue") // the whole batch
	f.counts(url, "0", "0", "0")
	entries[1].MessageGroupId, entries[1].DelaySeconds = new("g"), 3
	out, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil || len(out.Successful) != 1 || out.Successful[0].SequenceNumber == nil {
		t.Fatalf("sent %v, %v", out, err)
	}
	failed(t, out.Failed, "1 InvalidParameterValue")
	a := f.one(url).Attributes
	if a["MessageGroupId"] != "g" || a["MessageDeduplicationId"] != "0" || a["SequenceNumber"] != *out.Successful[0].SequenceNumber || len(a["SequenceNumber"]) != 20 {
		t.Errorf("attributes %v", a)
	}
}

func TestFIFO_OrderAndLocksOfGroups(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	for i := range 4 {
		f.send(url, fmt.Sprintf("a%d", i), toGroup("a", ""))
		f.send(url, fmt.Sprintf("b%d", i), toGroup("b", ""))
	}
	got := f.receive(url, maxMessages(3)) // as many of one group as possible
	if fmt.Sprint(bodies(got)) != "[a0 a1 a2]" {
		t.Fatalf("received %q", bodies(got))
	}
	b := f.gets(url, "b0", "b1", "b2", "b3") // a is locked
	f.delete(url, got[0])
	f.delete(url, got[1])
	f.gets(url) // until the last is deleted
	f.delete(url, got[2])
	f.gets(url, "a3")
	f.setVisibility(url, b[1], 0)
	f.gets(url) // others of b are in flight
	f.delete(url, b[0])
	f.setVisibility(url, b[2], 0)
	f.delete(url, b[3])
	f.gets(url, "b1", "b2") // in their order
}

func TestFIFO_SeveralGroupsInOneReceive(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	for _, m := range []string{"a0", "b0", "a1", "c0", "b1"} {
		f.send(url, m, toGroup(m[:1], ""))
	}
	f.gets(url, "a0", "a1", "b0", "b1", "c0")
}

func TestFIFO_LockedGroupWakesItsPoll(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	f.send(url, "a0", toGroup("a", ""))
	m := f.one(url)
	f.send(url, "a1", toGroup("a", ""))
	poll := f.poll(t.Context(), "q.fifo", 1, 20, 10)
	f.delete(url, m)
	if got := f.answer(poll); fmt.Sprint(bodies(got)) != "[a1]" {
		t.Errorf("got %q", bodies(got))
	}
}

func TestFIFO_RedeliversInOrder(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	for i := range 5 {
		f.send(url, fmt.Sprint(i), toGroup("g", ""))
	}
	got := f.receive(url, maxMessages(3))
	f.Advance(30 * time.Second)
	f.gets(url, "0", "1", "2", "3", "4")
	f.Advance(30 * time.Second)

	_, err := f.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: got[0].ReceiptHandle})
	f.fails(err, "InvalidParameterValue")
	if err == nil || !strings.Contains(err.Error(), "The receipt handle has expired.") {
		t.Errorf("deleted with an expired handle: %v", err)
	}
	out, err := f.sqs.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{
		QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: new("0"), ReceiptHandle: got[0].ReceiptHandle}},
	})
	if err != nil {
		t.Fatal(err)
	}
	failed(t, out.Failed, "0 ReceiptHandleIsInvalid")
	for _, m := range f.gets(url, "0", "1", "2", "3", "4") {
		f.delete(url, m)
		f.delete(url, m) // of a message that is deleted: no error
	}
	f.counts(url, "0", "0", "0")
}

func TestFIFO_DeduplicatesByID(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo")
	first := f.send(url, "x", toGroup("g", "d"))
	f.delete(url, f.one(url))
	if second := f.send(url, "y", toGroup("other", "d")); second != first { // also after the message was deleted
		t.Errorf("the duplicate has the id %s, want that of the first, %s", second, first)
	}
	f.gets(url)
	f.Advance(5*time.Minute - 1)
	f.send(url, "z", toGroup("g", "d"))
	f.gets(url)
	f.Advance(1)
	f.send(url, "later", toGroup("g", "d"))
	f.gets(url, "later")
}

func TestFIFO_DeduplicatesByContentAndScope(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	attribute := func(in *sqs.SendMessageInput) {
		toGroup("g", "")(in)
		in.MessageAttributes = map[string]types.MessageAttributeValue{"a": text("v")}
	}
	f.send(url, "x", toGroup("g", ""))
	f.send(url, "x", attribute) // attributes do not count
	f.send(url, "y", toGroup("g", ""))
	f.send(url, "x", toGroup("g", "own"))
	f.gets(url, "x", "y", "x")

	perGroup := f.fifo("g.fifo", "DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId")
	f.send(perGroup, "1", toGroup("a", "d"))
	f.send(perGroup, "2", toGroup("b", "d"))
	f.send(perGroup, "3", toGroup("a", "d"))
	f.gets(perGroup, "1", "2")
}

func TestFIFO_DeadLetterQueueAndDelay(t *testing.T) {
	f := start(t, server.Config{})
	dead := f.fifo("dead.fifo")
	url := f.fifo("q.fifo", "DelaySeconds", "10", "ContentBasedDeduplication", "true", "RedrivePolicy", f.redrive("dead.fifo", 1))
	f.send(url, "0", toGroup("g", ""))
	f.send(url, "1", toGroup("g", ""))
	f.counts(url, "0", "0", "2")
	f.Advance(9 * time.Second)
	f.gets(url)
	f.Advance(time.Second)
	got := f.gets(url, "0", "1")
	f.delete(url, got[1])
	f.setVisibility(url, got[0], 0)
	f.gets(url)
	m := f.one(dead)
	if a := m.Attributes; a["MessageGroupId"] != "g" || a["DeadLetterQueueSourceArn"] != f.QueueARN("q.fifo") || *m.MessageId != *got[0].MessageId || a["MessageDeduplicationId"] != *m.MessageId {
		t.Errorf("the dead-letter queue has %s with %v", *m.Body, a)
	}

	f.send(url, "2", toGroup("g", ""))
	if err := f.setAttributes(url, "DelaySeconds", "3"); err != nil { // of a FIFO queue it is retroactive
		t.Fatal(err)
	}
	f.Advance(3 * time.Second)
	f.gets(url, "2")
}

func TestFIFO_AttemptIsRepeated(t *testing.T) {
	f := start(t, server.Config{})
	url := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	f.send(url, "0", toGroup("g", ""))
	f.send(url, "1", toGroup("g", ""))
	attempt := func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = new("attempt") }
	got := f.receive(url, attempt)
	f.Advance(20 * time.Second)
	second := f.receive(url, attempt)
	handles := func(messages []types.Message) (h []string) {
		for _, m := range messages {
			h = append(h, *m.ReceiptHandle+" "+m.Attributes["ApproximateReceiveCount"])
		}
		return h
	}
	if len(got) != 2 || !slices.Equal(handles(got), handles(second)) {
		t.Fatalf("the same attempt got %q, and again %q", handles(got), handles(second))
	}
	f.Advance(20 * time.Second) // the visibility timeout has begun again
	f.counts(url, "0", "2", "0")
	f.delete(url, got[0])
	if second := f.receive(url, attempt); len(second) != 0 {
		t.Errorf("the attempt got %q after a message was deleted", bodies(second))
	}
}
