//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func (f *fixture) redrive(dead string, limit int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, f.QueueARN(dead), limit)
}

func TestRedrive_AfterTheLastReceive(t *testing.T) {
	f := start(t, server.Config{})
	dead := f.queue("dead")
	url := f.queue("q", "RedrivePolicy", f.redrive("dead", 2))
	id := f.send(url, "x", func(in *sqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{"a": text("v")}
	})
	f.setVisibility(url, f.one(url), 0)
	f.setVisibility(url, f.one(url), 0)
	f.counts(url, "1", "0", "0") // it is moved when it would be received a third time
	poll := f.poll(t.Context(), "dead", 1, 20, 10)
	f.gets(url)
	got := f.answer(poll)
	if len(got) != 1 || *got[0].MessageId != id {
		t.Fatalf("the dead-letter queue has %q", bodies(got))
	}
	a := got[0].Attributes
	if a["DeadLetterQueueSourceArn"] != f.QueueARN("q") || a["ApproximateReceiveCount"] != "3" {
		t.Errorf("attributes %v", a)
	}
	f.setVisibility(dead, got[0], 0)
	if m := f.one(dead); deref(m.MessageAttributes["a"].StringValue) != "v" {
		t.Errorf("message attributes %v", m.MessageAttributes)
	}
	out, err := f.sqs.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
	if err != nil || !slices.Equal(out.QueueUrls, []string{url}) {
		t.Errorf("sources %v, %v, want %s", out, err, url)
	}
	f.fails(f.setAttributes(url, "RedrivePolicy", f.redrive("none", 1)), "InvalidParameterValue")
	if err := f.setAttributes(url, "RedrivePolicy", ""); err != nil {
		t.Error(err)
	}
}

func TestRedrive_KeepsTheRetentionPeriod(t *testing.T) {
	f := start(t, server.Config{})
	dead := f.queue("dead", "MessageRetentionPeriod", "100")
	url := f.queue("q", "RedrivePolicy", f.redrive("dead", 1))
	f.send(url, "x")
	f.receive(url)
	f.Advance(60 * time.Second)
	f.gets(url)
	f.counts(dead, "1", "0", "0")
	f.Advance(41 * time.Second)
	f.counts(dead, "0", "0", "0")
}

func TestRedriveAllowPolicy_LimitsSources(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("denied", "RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
	f.queue("chosen", "RedriveAllowPolicy", `{"redrivePermission":"byQueue","sourceQueueArns":["`+f.QueueARN("good")+`"]}`)
	f.queue("good", "RedrivePolicy", f.redrive("chosen", 1))
	bad := f.queue("bad")
	f.fails(f.setAttributes(bad, "RedrivePolicy", f.redrive("chosen", 1)), "InvalidParameterValue")
	f.fails(f.setAttributes(bad, "RedrivePolicy", f.redrive("denied", 1)), "InvalidParameterValue")
}

// dead returns the URLs of a queue and of its dead-letter queue, which has n messages.
func (f *fixture) dead(n int) (url, dead string) {
	f.Helper()
	dead = f.queue("dead")
	url = f.queue("q", "RedrivePolicy", f.redrive("dead", 1))
	for i := range n {
		f.send(url, fmt.Sprint(i))
	}
	f.receive(url)
	f.Advance(30 * time.Second)
	f.gets(url)
	f.counts(dead, fmt.Sprint(n), "0", "0")
	return url, dead
}

func (f *fixture) startTask(change func(*sqs.StartMessageMoveTaskInput)) (*sqs.StartMessageMoveTaskOutput, error) {
	in := &sqs.StartMessageMoveTaskInput{SourceArn: new(f.QueueARN("dead"))}
	change(in)
	return f.sqs.StartMessageMoveTask(f.Context(), in)
}

func (f *fixture) tasks() []types.ListMessageMoveTasksResultEntry {
	f.Helper()
	out, err := f.sqs.ListMessageMoveTasks(f.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: new(f.QueueARN("dead")), MaxResults: new(int32(10))})
	if err != nil {
		f.Fatal(err)
	}
	return out.Results
}

func TestMoveTask_BackToTheSource(t *testing.T) {
	f := start(t, server.Config{})
	url, dead := f.dead(3)
	before, _ := f.Contents("dead")
	if _, err := f.startTask(func(*sqs.StartMessageMoveTaskInput) {}); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	task := f.tasks()[0]
	if *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 3 || *task.ApproximateNumberOfMessagesToMove != 3 || task.DestinationArn != nil {
		t.Errorf("task %s: %d of %d moved", *task.Status, task.ApproximateNumberOfMessagesMoved, *task.ApproximateNumberOfMessagesToMove)
	}
	f.counts(dead, "0", "0", "0")
	for i, m := range f.gets(url, "0", "1", "2") {
		if m.Attributes["ApproximateReceiveCount"] != "1" || m.Attributes["DeadLetterQueueSourceArn"] != "" || *m.MessageId == before.Ready[i].ID {
			t.Errorf("a moved message is no new one: %v", m.Attributes)
		}
	}
}

func TestMoveTask_AtARateUntilItIsCancelled(t *testing.T) {
	f := start(t, server.Config{})
	_, dead := f.dead(5)
	other := f.queue("other")
	out, err := f.startTask(func(in *sqs.StartMessageMoveTaskInput) {
		in.DestinationArn, in.MaxNumberOfMessagesPerSecond = new(f.QueueARN("other")), new(int32(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.startTask(func(*sqs.StartMessageMoveTaskInput) {})
	f.fails(err, "InvalidParameterValue")
	f.Advance(2 * time.Second)
	f.counts(other, "2", "0", "0")
	if task := f.tasks()[0]; *task.Status != "RUNNING" || *task.TaskHandle != *out.TaskHandle || *task.DestinationArn != f.QueueARN("other") {
		t.Errorf("task %v", task)
	}
	cancelled, err := f.sqs.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: out.TaskHandle})
	if err != nil || cancelled.ApproximateNumberOfMessagesMoved != 2 {
		t.Errorf("cancelled: %v, %v, want 2 moved", cancelled, err)
	}
	f.Advance(time.Minute)
	f.counts(dead, "3", "0", "0")
	if task := f.tasks()[0]; *task.Status != "CANCELLED" || task.TaskHandle != nil {
		t.Errorf("task %v", task)
	}
	_, err = f.sqs.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: out.TaskHandle})
	f.fails(err, "AWS.SimpleQueueService.UnsupportedOperation")
}

func TestMoveTask_FailsWhereTheDestinationIsGone(t *testing.T) {
	f := start(t, server.Config{})
	f.dead(3)
	other := f.queue("other")
	if _, err := f.startTask(func(in *sqs.StartMessageMoveTaskInput) {
		in.DestinationArn, in.MaxNumberOfMessagesPerSecond = new(f.QueueARN("other")), new(int32(1))
	}); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	if _, err := f.sqs.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &other}); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	if task := f.tasks()[0]; *task.Status != "FAILED" || deref(task.FailureReason) != "AWS.SimpleQueueService.NonExistentQueue" {
		t.Errorf("task %s: %s", *task.Status, deref(task.FailureReason))
	}
}

func TestMoveTask_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	f.dead(1)
	f.queue("plain")
	_, err := f.startTask(func(in *sqs.StartMessageMoveTaskInput) { in.SourceArn = new(f.QueueARN("plain")) })
	f.fails(err, "InvalidParameterValue")
	_, err = f.startTask(func(in *sqs.StartMessageMoveTaskInput) { in.SourceArn = new(f.QueueARN("none")) })
	if !is[*types.ResourceNotFoundException](err) {
		t.Errorf("without source: %v, want ResourceNotFoundException", err)
	}
	_, err = f.startTask(func(in *sqs.StartMessageMoveTaskInput) { in.DestinationArn = new(f.QueueARN("none")) })
	f.fails(err, "ResourceNotFoundException")
	_, err = f.startTask(func(in *sqs.StartMessageMoveTaskInput) { in.MaxNumberOfMessagesPerSecond = new(int32(501)) })
	f.fails(err, "InvalidParameterValue")
	_, err = f.sqs.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: new("nonsense")})
	f.fails(err, "InvalidParameterValue")
}
