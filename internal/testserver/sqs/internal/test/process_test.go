//go:build darwin || linux

package sqs_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// childVariable makes this test program a server with the journal that it names, until it
// is killed or its standard input ends.
const childVariable = "REPRISE_TEST_SQS_CHILD"

func child(journal string) int {
	s, err := server.Start(server.Config{File: journal})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.URL())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0
}

// startChild starts a server in a separate process and returns clients of it, and a
// function that kills it. It has the machine's clock.
func startChild(t *testing.T, journal string) (f *fixture, kill func()) {
	t.Helper()
	command := exec.Command(os.Args[0]) //nolint:gosec // it is this program
	command.Env = append(os.Environ(), childVariable+"="+journal)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = command.Process.Kill() // it may have ended
		_ = command.Wait()         // killed
		_ = in.Close()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := line[:len(line)-1]
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &fixture{T: t, sqs: newSQS(url, transport), sns: newSNS(url, transport), transport: transport}, kill
}

func TestProcess_ItsDeathLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a process: not in short runs")
	}
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal")
	f, kill := startChild(t, journal)
	url := f.queue("q", "VisibilityTimeout", "1000")
	f.send(url, "in flight")
	held := f.one(url)
	const n = 100
	sent := make(chan int)
	go func() {
		defer close(sent)
		for i := range n {
			if f.trySend(url, fmt.Sprint(i)) != nil {
				return // it was killed
			}
			sent <- i
		}
	}()
	for i := range sent {
		if i == n/2 {
			kill() // while others are sent
		}
	}
	second, _ := startChild(t, journal)
	// The URL has the port of the first process, which the server does not look at.
	seen := map[string]bool{}
	for {
		got := second.receive(url)
		for _, m := range got {
			seen[*m.Body] = true
		}
		if len(got) == 0 {
			break
		}
	}
	for i := range n/2 + 1 {
		if !seen[fmt.Sprint(i)] {
			t.Errorf("message %d was lost", i)
		}
	}
	second.setVisibility(url, held, 0) // its handle is still good
	if m := second.one(url); *m.Body != "in flight" || m.Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("received %q for the %s. time", *m.Body, m.Attributes["ApproximateReceiveCount"])
	}
}

func TestRestart_KeepsTheMessagesOfTheJournal(t *testing.T) {
	f := start(t, server.Config{File: filepath.Join(t.TempDir(), "journal")})
	url := f.queue("q", "VisibilityTimeout", "100", "MessageRetentionPeriod", "7200")
	dead := f.queue("dead", "RedriveAllowPolicy", `{"redrivePermission":"allowAll"}`)
	source := f.queue("source", "RedrivePolicy", f.redrive("dead", 1))
	fifo := f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	gone := f.queue("gone")
	topic, fifoTopic := f.topic("t", "DisplayName", "D"), f.topic("t.fifo", "FifoTopic", "true", "ContentBasedDeduplication", "true")
	f.SubscribeQueue("t", "q")
	f.subscribe(topic, "dead", "FilterPolicy", `{"a":["b"]}`)
	f.Advance(time.Hour)

	f.send(url, "in flight")
	held := f.one(url)
	f.setVisibility(url, held, 50)
	f.send(url, "deleted")
	f.delete(url, f.one(url))
	f.send(url, "delayed", func(in *sqs.SendMessageInput) { in.DelaySeconds = 900 })
	f.publish(topic, "ready", withAttributes("n", "Number", "7"))
	f.send(source, "dead")
	f.receive(source)
	f.Advance(30 * time.Second)
	f.gets(source)
	f.send(fifo, "0", toGroup("g", ""))
	first := f.one(fifo)
	f.send(fifo, "1", toGroup("g", ""))
	group := func(in *sns.PublishInput) { in.MessageGroupId = new("g") }
	published := f.publish(fifoTopic, "once", group)
	if _, err := f.sqs.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &gone}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sqs.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: &url, Tags: map[string]string{"k": "v"}}); err != nil {
		t.Fatal(err)
	}
	before := map[string]server.Contents{}
	for _, q := range f.Queues() {
		before[q], _ = f.Contents(q)
	}
	if err := f.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.trySend(url, "x"); err == nil {
		t.Error("a killed server answers")
	}
	f.restart()
	if len(f.Queues()) != 4 {
		t.Errorf("queues %q", f.Queues())
	}
	for name, want := range before {
		if got, _ := f.Contents(name); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s has\n%+v, want\n%+v", name, got, want)
		}
	}
	if a := f.attributes(url); a["VisibilityTimeout"] != "100" || a["Policy"] == "" {
		t.Errorf("attributes %v", a)
	}
	tags, err := f.sqs.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: &url})
	if err != nil || tags.Tags["k"] != "v" {
		t.Errorf("tags %v, %v", tags, err)
	}
	_, err = f.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("gone")})
	f.fails(err, "AWS.SimpleQueueService.QueueDeletedRecently")
	f.counts(dead, "1", "0", "0")

	if second := f.publish(fifoTopic, "once", group); *second.MessageId != *published.MessageId {
		t.Error("the topic has forgotten a deduplication id")
	}
	f.send(fifo, "0", toGroup("g", ""))
	f.gets(fifo) // a duplicate, and the group is locked
	f.delete(fifo, first)
	f.gets(fifo, "1")
	f.publish(topic, "to a subscription that was kept")
	f.gets(url, "ready", "to a subscription that was kept")
	f.Advance(20 * time.Second) // 50 in all
	if m := f.one(url); *m.Body != "in flight" || m.Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("received %q with %v", *m.Body, m.Attributes)
	}
}

func TestKill_WithoutAJournalLosesAll(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("q")
	poll := f.poll(t.Context(), "q", 1, 20, 1)
	if err := f.Kill(); err != nil {
		t.Fatal(err)
	}
	if p := <-poll; p.err == nil || codeOf(p.err) != "" {
		t.Errorf("the poll got %v, %v, want an error of the connection", bodies(p.messages), p.err)
	}
	if err := f.Kill(); err != nil { // the second time is no error
		t.Error(err)
	}
	f.Advance(time.Minute)
	f.restart()
	if q := f.Queues(); len(q) != 0 {
		t.Errorf("queues %q", q)
	}
	f.queue("q")
	f.restart() // also of one that runs
	if q := f.Queues(); len(q) != 0 {
		t.Errorf("queues %q", q)
	}
}

func TestRestart_TasksGoOn(t *testing.T) {
	f := start(t, server.Config{File: filepath.Join(t.TempDir(), "journal")})
	_, dead := f.dead(3)
	other := f.queue("other")
	if _, err := f.startTask(func(in *sqs.StartMessageMoveTaskInput) {
		in.DestinationArn, in.MaxNumberOfMessagesPerSecond = new(f.QueueARN("other")), new(int32(1))
	}); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	f.restart()
	f.counts(other, "1", "0", "0")
	f.Advance(10 * time.Second)
	f.counts(other, "3", "0", "0")
	f.counts(dead, "0", "0", "0")
	if task := f.tasks()[0]; *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 3 {
		t.Errorf("task %s: %d moved", *task.Status, task.ApproximateNumberOfMessagesMoved)
	}
}
