//go:build darwin || linux

package sqs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

func TestDepth(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{QueuePrefix: "app-"}, "q")
	depth := func(want queues.Depth) {
		t.Helper()
		want.Receivers = -1
		if got, err := transport.Depth(t.Context(), "q"); err != nil || got != want {
			t.Errorf("Depth is %+v, %v; want %+v", got, err, want)
		}
	}
	depth(queues.Depth{})
	for i, delay := range []time.Duration{0, 0, 0, time.Minute, time.Hour, 24 * time.Hour} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Delay: delay}); err != nil {
			t.Fatal(err)
		}
	}
	depth(queues.Depth{Ready: 3, Delayed: 3})
	r := openReceiver(t, s.open(t, sqs.Config{QueuePrefix: "app-", NoLongDelays: true}), "q", 1) // which leaves the queue of long delays alone
	take(t, r, 1)
	depth(queues.Depth{Ready: 2, Locked: 1, Delayed: 3})
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	depth(queues.Depth{Ready: 3, Delayed: 3})

	if got, err := s.open(t, sqs.Config{QueuePrefix: "app-", NoLongDelays: true}).Depth(t.Context(), "q"); err != nil || got.Delayed != 1 {
		t.Errorf("with NoLongDelays Depth is %+v, %v; want 1 delayed message", got, err)
	}
	s.Reject(testserver.Match{Operation: "GetQueueAttributes", Name: "app-q-delay.fifo"}, testserver.KmsAccessDenied)
	depth(queues.Depth{Ready: 3, Delayed: -1})
	if _, err := transport.Depth(t.Context(), "missing"); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Depth of a missing queue: %v", err)
	}
	if _, err := s.sqs.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: aws.String(s.QueueURL("app-q"))}); err != nil {
		t.Fatal(err)
	}
	if _, err := transport.Depth(t.Context(), "q"); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Depth of a deleted queue: %v", err)
	}
}

func TestListQueues(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{NoLongDelays: true}, "outside", "ap")
	var many []string
	for i := range 1005 { // more than a page has
		many = append(many, fmt.Sprintf("x%04d", i))
	}
	s.provisioned(t, sqs.Config{QueuePrefix: "app-", NoLongDelays: true}, many...)
	transport := s.provisioned(t, sqs.Config{QueuePrefix: "app-"}, "b.c", "a", "ordered.fifo")
	tooLong := "app-y" + strings.Repeat("z", 75) // without room for the name of its long delays
	for _, name := range []string{"app-alone-delay.fifo", tooLong} {
		input := &awssqs.CreateQueueInput{QueueName: &name}
		if strings.HasSuffix(name, ".fifo") {
			input.Attributes = map[string]string{"FifoQueue": "true"}
		}
		if _, err := s.sqs.CreateQueue(t.Context(), input); err != nil {
			t.Fatal(err)
		}
	}
	want := append([]string{"a", "alone-delay.fifo", "b-c", "ordered.fifo"}, many...)
	got, err := transport.ListQueues(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d queues are listed: %.10q, %v; want %d: %.10q", len(got), got, err, len(want), want)
	}
	for _, address := range got[:4] {
		if _, err := transport.Depth(t.Context(), address); err != nil {
			t.Errorf("a listed queue cannot be opened: %v", err)
		}
	}
	s.Reject(testserver.Match{Operation: "ListQueues"}, testserver.KmsAccessDenied)
	if _, err := transport.ListQueues(t.Context()); err == nil || errors.Is(err, core.ErrUnavailable) {
		t.Errorf("ListQueues without the right: %v", err)
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, counted := transport.Depth(t.Context(), "a")
	_, listed := transport.ListQueues(t.Context())
	if !errors.Is(counted, core.ErrClosed) || !errors.Is(listed, core.ErrClosed) {
		t.Errorf("after Close: %v, %v", counted, listed)
	}
}
