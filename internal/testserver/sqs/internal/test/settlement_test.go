//go:build darwin || linux

package sqs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func TestChangeVisibility_ReleasesAndExtends(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "x")
	f.setVisibility(url, f.one(url), 0)
	m := f.one(url)
	f.Advance(20 * time.Second)
	f.setVisibility(url, m, 20) // from now on
	f.Advance(19 * time.Second)
	f.gets(url)
	f.Advance(time.Second)
	f.gets(url, "x")
}

func TestChangeVisibility_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "x")
	first := f.one(url)
	f.fails(f.changeVisibility(url, *first.ReceiptHandle, 43201), "InvalidParameterValue")
	f.fails(f.changeVisibility(url, *first.ReceiptHandle, -1), "InvalidParameterValue")
	garbage := f.changeVisibility(url, "garbage", 1)
	if !is[*types.ReceiptHandleIsInvalid](garbage) {
		t.Errorf("%v, want ReceiptHandleIsInvalid", garbage)
	}
	other := f.queue("other")
	f.fails(f.changeVisibility(other, *first.ReceiptHandle, 1), "ReceiptHandleIsInvalid")

	f.Advance(10 * time.Second)
	total := f.changeVisibility(url, *first.ReceiptHandle, 43200)
	if f.fails(total, "InvalidParameterValue"); total == nil || !strings.Contains(total.Error(), "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]") {
		t.Errorf("over 12 hours in all: %v", total)
	}
	f.setVisibility(url, first, 43200-11)

	f.setVisibility(url, first, 0)
	f.setVisibility(url, first, 100) // of a message that is ready: no error, no effect
	second := f.one(url)
	f.fails(f.changeVisibility(url, *first.ReceiptHandle, 1), "InvalidParameterValue")
	f.delete(url, second)
	gone := f.changeVisibility(url, *second.ReceiptHandle, 1)
	if f.fails(gone, "InvalidParameterValue"); gone == nil || !strings.Contains(gone.Error(), "Message does not exist or is not available for visibility timeout change.") {
		t.Errorf("of a deleted message: %v", gone)
	}
}

func TestDeleteMessage_ByItsHandle(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "x")
	m := f.one(url)
	f.delete(url, m)
	f.delete(url, m) // is no error
	f.counts(url, "0", "0", "0")

	_, err := f.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: new("garbage")})
	f.fails(err, "ReceiptHandleIsInvalid")
	tampered := strings.Replace(*m.ReceiptHandle, (*m.ReceiptHandle)[10:14], "AbCd", 1)
	_, err = f.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: &tampered})
	f.fails(err, "ReceiptHandleIsInvalid")

	f.send(url, "expired")
	m = f.one(url)
	f.Advance(31 * time.Second)
	f.delete(url, m)
	f.counts(url, "0", "0", "0")

	f.send(url, "received again")
	old := f.one(url)
	f.Advance(31 * time.Second)
	m = f.one(url)
	f.delete(url, old) // is no error, and no effect
	f.counts(url, "0", "1", "0")
	f.delete(url, m)
	f.counts(url, "0", "0", "0")
}

func TestBatches_OfHandlesFailInPart(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "a")
	f.send(url, "b")
	got := f.receive(url)

	changed, err := f.sqs.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: new("0"), ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0},
			{Id: new("1"), ReceiptHandle: new("garbage"), VisibilityTimeout: 0},
			{Id: new("2"), ReceiptHandle: got[1].ReceiptHandle, VisibilityTimeout: 43201},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(changed.Successful) != 1 || *changed.Successful[0].Id != "0" {
		t.Errorf("changed %v", changed.Successful)
	}
	failed(t, changed.Failed, "1 ReceiptHandleIsInvalid", "2 InvalidParameterValue")
	a := f.gets(url, "a")[0]

	deleted, err := f.sqs.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{
		QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: new("0"), ReceiptHandle: a.ReceiptHandle},
			{Id: new("1"), ReceiptHandle: new("garbage")},
			{Id: new("2"), ReceiptHandle: got[1].ReceiptHandle},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(deleted.Successful) != 2 {
		t.Errorf("deleted %v", deleted.Successful)
	}
	failed(t, deleted.Failed, "1 ReceiptHandleIsInvalid")
	f.counts(url, "0", "0", "0")

	_, err = f.sqs.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{}})
	f.fails(err, "AWS.SimpleQueueService.EmptyBatchRequest")
	_, err = f.sqs.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, 0),
	})
	f.fails(err, "AWS.SimpleQueueService.EmptyBatchRequest")
}

// failed fails unless the entries failed with these ids and codes, by the sender's fault.
func failed(t *testing.T, entries []types.BatchResultErrorEntry, want ...string) {
	t.Helper()
	var got []string
	for _, e := range entries {
		got = append(got, *e.Id+" "+*e.Code)
		if !e.SenderFault {
			t.Errorf("entry %s is not the sender's fault", *e.Id)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("failed: %q, want %q", got, want)
	}
}
