package queues

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/journal"
)

// newTestStore returns a store whose clock stands still until Advance.
func newTestStore() *Store {
	now := time.Unix(1_000_000, 0)
	return New(Config{Region: "r", Account: "1", MaxInFlight: 10, Clock: clock.New(func() time.Time { return now })})
}

// run executes an operation, and returns the fields of its answer, or fails unless it has the error.
func run(t *testing.T, st *Store, operation, request, failure string) map[string]any {
	t.Helper()
	op := Operations[operation]
	r, err := op.Decode([]byte(request))
	if err != nil {
		t.Fatalf("%s: %v", operation, err)
	}
	answer, wrong := op.Run(st, &api.Call{Context: t.Context(), Host: "h", Account: "1"}, r)
	got := ""
	if wrong != nil {
		got = wrong.Shape
	}
	if got != failure {
		t.Fatalf("%s of %s: the error %q (%v), want %q", operation, request, got, wrong, failure)
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

const url = `{"QueueUrl":"http://h/1/q"`

// received returns the handles of the messages in an answer.
func received(answer map[string]any) (handles []string) {
	messages, _ := answer["Messages"].([]any)
	for _, m := range messages {
		handles = append(handles, m.(map[string]any)["ReceiptHandle"].(string))
	}
	return handles
}

func TestOperations_LifeOfAMessage(t *testing.T) {
	t.Parallel()
	st := newTestStore()
	run(t, st, "SendMessage", url+`,"MessageBody":"x"}`, "QueueDoesNotExist")
	run(t, st, "CreateQueue", `{"QueueName":"q","Attributes":{"VisibilityTimeout":"30"}}`, "")
	run(t, st, "SendMessage", url+`}`, "MissingRequiredParameterException")
	run(t, st, "SendMessage", url+`,"MessageBody":"x","DelaySeconds":5}`, "")
	if got := received(run(t, st, "ReceiveMessage", url+`}`, "")); len(got) != 0 {
		t.Error("a delayed message is received")
	}
	st.Advance(5 * time.Second)
	first := received(run(t, st, "ReceiveMessage", url+`}`, ""))
	if len(first) != 1 || len(received(run(t, st, "ReceiveMessage", url+`}`, ""))) != 0 {
		t.Fatalf("received %q, and again", first)
	}
	st.Advance(30 * time.Second)
	second := received(run(t, st, "ReceiveMessage", url+`}`, ""))
	if len(second) != 1 || second[0] == first[0] {
		t.Fatalf("received %q after %q", second, first)
	}
	run(t, st, "DeleteMessage", url+`,"ReceiptHandle":"`+first[0]+`"}`, "") // deletes nothing
	if c, ok := st.Contents("q"); !ok || len(c.InFlight) != 1 || c.InFlight[0].ReceiveCount != 2 {
		t.Errorf("the queue has %+v", c)
	}
	run(t, st, "DeleteMessage", url+`,"ReceiptHandle":"`+second[0]+`"}`, "")
	if c, _ := st.Contents("q"); len(c.Ready)+len(c.Delayed)+len(c.InFlight) != 0 {
		t.Errorf("the queue has %+v", c)
	}
}

func TestReceiveMessage_AfterTooManyGoesToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	st := newTestStore()
	run(t, st, "CreateQueue", `{"QueueName":"dead"}`, "")
	run(t, st, "CreateQueue", `{"QueueName":"q","Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:r:1:dead\",\"maxReceiveCount\":1}"}}`, "")
	run(t, st, "SendMessage", url+`,"MessageBody":"x"}`, "")
	run(t, st, "ReceiveMessage", url+`,"VisibilityTimeout":0}`, "")
	if got := received(run(t, st, "ReceiveMessage", url+`}`, "")); len(got) != 0 {
		t.Error("the message is received twice")
	}
	if c, _ := st.Contents("dead"); len(c.Ready) != 1 || c.Ready[0].SourceARN != st.QueueARN("q") {
		t.Errorf("the dead-letter queue has %+v", c)
	}
}

func TestReplay_RestoresTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	// restored returns the store in the journal.
	restored := func() (*Store, *journal.Journal) {
		st := newTestStore()
		r := NewReplay(st)
		log, err := journal.Open(path, func(entry []byte) error {
			known, err := r.Apply(entry)
			if !known {
				t.Errorf("the entry %s is not known", entry)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r.End(log)
		return st, log
	}
	st, log := restored()
	run(t, st, "CreateQueue", `{"QueueName":"gone"}`, "")
	run(t, st, "DeleteQueue", `{"QueueUrl":"http://h/1/gone"}`, "")
	run(t, st, "CreateQueue", `{"QueueName":"q"}`, "")
	for _, body := range []string{"deleted", "in flight", "ready"} {
		run(t, st, "SendMessage", url+`,"MessageBody":"`+body+`"}`, "")
	}
	run(t, st, "SendMessage", url+`,"MessageBody":"delayed","DelaySeconds":60}`, "")
	handles := received(run(t, st, "ReceiveMessage", url+`,"MaxNumberOfMessages":2}`, ""))
	run(t, st, "DeleteMessage", url+`,"ReceiptHandle":"`+handles[0]+`"}`, "")
	run(t, st, "ChangeMessageVisibility", url+`,"VisibilityTimeout":90,"ReceiptHandle":"`+handles[1]+`"}`, "")
	st.Advance(time.Second)
	want, _ := st.Contents("q")
	if err := st.Flush(); err != nil {
		t.Fatal(err)
	}
	log.Close()

	second, log := restored()
	defer log.Close()
	got, _ := second.Contents("q")
	for name, pair := range map[string][2][]Message{"ready": {got.Ready, want.Ready}, "in flight": {got.InFlight, want.InFlight}, "delayed": {got.Delayed, want.Delayed}} {
		if len(pair[0]) != 1 || len(pair[1]) != 1 || pair[0][0].Body != name || !pair[0][0].Due.Equal(pair[1][0].Due) || pair[0][0].ReceiveCount != pair[1][0].ReceiveCount {
			t.Errorf("%s: %+v, want %+v", name, pair[0], pair[1])
		}
	}
	if names := second.QueueNames(); !slices.Equal(names, []string{"q"}) {
		t.Errorf("the queues are %q", names)
	}
	run(t, second, "DeleteMessage", url+`,"ReceiptHandle":"`+handles[1]+`"}`, "") // an old handle is valid
	if c, _ := second.Contents("q"); len(c.InFlight) != 0 {
		t.Errorf("the message of an old handle is still there: %+v", c.InFlight)
	}
}
