//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func TestLongPoll_WakesOnASend(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	first := f.poll(t.Context(), "q", 1, 20, 10)
	second := f.poll(t.Context(), "q", 2, 20, 10)
	f.send(url, "a")
	if got := f.answer(first); len(got) != 1 || *got[0].Body != "a" {
		t.Fatalf("the poll that came first got %q", bodies(got))
	}
	f.send(url, "b")
	if got := f.answer(second); len(got) != 1 || *got[0].Body != "b" {
		t.Fatalf("the poll that came second got %q", bodies(got))
	}
}

func TestLongPoll_WakesForADelayedMessage(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "delayed", func(in *sqs.SendMessageInput) { in.DelaySeconds = 5 })
	poll := f.poll(t.Context(), "q", 1, 20, 10)
	f.Advance(5 * time.Second)
	m := f.answer(poll)[0]

	poll = f.poll(t.Context(), "q", 1, 20, 10)
	f.setVisibility(url, m, 10)
	f.Advance(9 * time.Second)
	if err := f.AwaitPolls(f.shortContext(), "q", 1); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	m = f.answer(poll)[0]

	poll = f.poll(t.Context(), "q", 1, 20, 10)
	f.setVisibility(url, m, 0)
	if m = f.answer(poll)[0]; m.Attributes["ApproximateReceiveCount"] != "3" {
		t.Errorf("the third receive is number %s", m.Attributes["ApproximateReceiveCount"])
	}
}

func TestLongPoll_WakesOnTheMachinesClock(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a second: not in short runs")
	}
	f := start(t, server.Config{Now: time.Now})
	url := f.queue("q")
	f.send(url, "delayed", func(in *sqs.SendMessageInput) { in.DelaySeconds = 1 })
	if got := f.answer(f.poll(t.Context(), "q", 0, 20, 10)); len(got) != 1 {
		t.Errorf("a poll ended with %q before its time", bodies(got))
	}
}

func TestLongPoll_EndsEmpty(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("q")
	poll := f.poll(t.Context(), "q", 1, 20, 10)
	f.Advance(20*time.Second - 1)
	if err := f.AwaitPolls(f.shortContext(), "q", 1); err != nil {
		t.Fatal(err)
	}
	f.Advance(1)
	if got := f.answer(poll); len(got) != 0 {
		t.Errorf("got %q", bodies(got))
	}

	f.queue("patient", "ReceiveMessageWaitTimeSeconds", "15") // by the queue's attribute
	poll = f.poll(t.Context(), "patient", 1, 0, 10)
	f.Advance(15 * time.Second)
	f.answer(poll)
}

func TestLongPoll_ShorterOneEndsBefore(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("q")
	long := f.poll(t.Context(), "q", 1, 20, 10)
	short := f.poll(t.Context(), "q", 2, 5, 10)
	f.Advance(5 * time.Second)
	f.answer(short)
	if err := f.AwaitPolls(f.shortContext(), "q", 1); err != nil {
		t.Fatal(err)
	}
	f.Advance(15 * time.Second)
	f.answer(long)
}

func TestAdvance_EndsPollsAfterReadyMessages(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "after 5 seconds", func(in *sqs.SendMessageInput) { in.DelaySeconds = 5 })
	f.send(url, "after 50 seconds", func(in *sqs.SendMessageInput) { in.DelaySeconds = 50 })
	first := f.poll(t.Context(), "q", 1, 20, 10)
	second := f.poll(t.Context(), "q", 2, 20, 10)
	f.Advance(time.Hour)
	if got := f.answer(first); len(got) != 1 || *got[0].Body != "after 5 seconds" {
		t.Errorf("the first got %q", bodies(got))
	}
	if got := f.answer(second); len(got) != 0 {
		t.Errorf("the second got %q", bodies(got))
	}
}

func TestReceiveMessage_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	for name, change := range map[string]func(*sqs.ReceiveMessageInput){
		"a wait of 21 seconds":          waiting(21),
		"11 messages":                   maxMessages(11),
		"a visibility timeout of 43201": func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = 43201 },
		"an attempt with a space":       func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = new("a b") },
	} {
		in := &sqs.ReceiveMessageInput{QueueUrl: &url}
		change(in)
		_, err := f.sqs.ReceiveMessage(t.Context(), in)
		if codeOf(err) != "InvalidParameterValue" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := f.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"Nonsense"},
	})
	f.fails(err, "InvalidAttributeName")
}

func TestReceiveCount_AndSystemAttributes(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	sent := f.Now()
	id := f.send(url, "x")
	f.Advance(time.Minute)
	received := f.Now()
	for n := range 3 {
		m := f.one(url)
		a := m.Attributes
		if a["ApproximateReceiveCount"] != strconv.Itoa(n+1) || *m.MessageId != id || a["SenderId"] == "" {
			t.Errorf("receive %d: message %s with %v", n+1, *m.MessageId, a)
		}
		for name, since := range map[string]time.Time{"SentTimestamp": sent, "ApproximateFirstReceiveTimestamp": received} {
			ms, err := strconv.ParseInt(a[name], 10, 64)
			if at := time.UnixMilli(ms); err != nil || at.Before(since.Truncate(time.Millisecond)) || at.After(since.Add(30*time.Second)) {
				t.Errorf("%s %s, want %d or somewhat later", name, a[name], since.UnixMilli())
			}
		}
		f.Advance(30 * time.Second)
	}
	m := f.one(url, func(in *sqs.ReceiveMessageInput) {
		in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"ApproximateReceiveCount"}
	})
	if len(m.Attributes) != 1 || m.Attributes["ApproximateReceiveCount"] != "4" {
		t.Errorf("asked for one attribute, got %v", m.Attributes)
	}
	f.Advance(30 * time.Second)
	m = f.one(url, func(in *sqs.ReceiveMessageInput) {
		in.MessageSystemAttributeNames, in.AttributeNames = nil, []types.QueueAttributeName{"All"} //nolint:staticcheck // the former name works
	})
	if m.Attributes["ApproximateReceiveCount"] != "5" {
		t.Errorf("asked by the former name, got %v", m.Attributes)
	}
}

func TestVisibility_EndsAndIsGivenPerReceive(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q", "VisibilityTimeout", "10")
	f.send(url, "x")
	f.gets(url, "x")
	f.counts(url, "0", "1", "0")
	f.Advance(9 * time.Second)
	f.gets(url)
	f.Advance(time.Second)
	f.counts(url, "1", "0", "0")
	f.one(url, func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = 100 })
	f.Advance(99 * time.Second)
	f.gets(url)
	f.Advance(time.Second)
	f.gets(url, "x")
}

func TestInFlight_HasALimit(t *testing.T) {
	f := start(t, server.Config{MaxInFlight: 3})
	url, fifo := f.queue("q"), f.fifo("q.fifo", "ContentBasedDeduplication", "true")
	for i := range 5 {
		f.send(url, strconv.Itoa(i))
		f.send(fifo, strconv.Itoa(i), toGroup(strconv.Itoa(i), ""))
	}
	got := f.receive(url)
	if len(got) != 3 {
		t.Fatalf("received %q, want 3", bodies(got))
	}
	_, err := f.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
	if !is[*types.OverLimit](err) {
		t.Errorf("a short poll over the limit: %v, want OverLimit", err)
	}
	poll := f.poll(t.Context(), "q", 1, 20, 10) // which answers no error
	f.delete(url, got[0])
	if got := f.answer(poll); len(got) != 1 {
		t.Errorf("a long poll got %q after one was deleted, want one", bodies(got))
	}
	if got := f.receive(fifo); len(got) != 3 {
		t.Errorf("received %q of the FIFO queue, want 3", bodies(got))
	}
	f.gets(fifo) // without error
}

func TestManyClients_LoseAndRepeatNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("sends many messages: not in short runs")
	}
	f := start(t, server.Config{})
	url := f.queue("q", "VisibilityTimeout", "43200")
	const senders, receivers, each = 4, 8, 250
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				body := fmt.Sprintf("%d-%d", s, i)
				if _, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range receivers {
		all.Go(func() {
			for ctx.Err() == nil {
				out, err := f.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				for _, m := range out.Messages {
					if _, err := f.sqs.DeleteMessage(context.WithoutCancel(ctx), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					seen[*m.Body]++
					if len(seen) == senders*each {
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for body, n := range seen {
		if n != 1 {
			t.Errorf("%s was received %d times", body, n)
		}
	}
	f.counts(url, "0", "0", "0")
}

func TestCancelledPoll_TakesNothingOrTheNextMessage(t *testing.T) {
	for _, takes := range []bool{false, true} {
		t.Run(fmt.Sprintf("takes=%t", takes), func(t *testing.T) {
			f := start(t, server.Config{CancelledPollsReceive: !takes})
			f.SetCancelledPollsReceive(takes)
			url := f.queue("q")
			ctx, cancel := context.WithCancel(t.Context())
			// The client closes the connection of a request that is cancelled.
			poll := f.poll(ctx, "q", 1, 20, 10)
			cancel()
			if p := <-poll; !errors.Is(p.err, context.Canceled) {
				t.Fatalf("the cancelled poll ended with %v", p.err)
			}
			if !takes {
				if err := f.AwaitPolls(f.shortContext(), "q", 0); err != nil {
					t.Fatal(err)
				}
				f.send(url, "x")
				f.gets(url, "x")
				return
			}
			f.send(url, "x")
			f.counts(url, "0", "1", "0")
			f.gets(url)
			f.Advance(30 * time.Second)
			if m := f.one(url); m.Attributes["ApproximateReceiveCount"] != "2" {
				t.Errorf("the receive after that of the cancelled poll is number %s", m.Attributes["ApproximateReceiveCount"])
			}
		})
	}
}

func TestPolls_OfOneConnectionAfterAnother(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := newSQS(f.URL(), transport)
	for range 3 {
		f.send(url, "x")
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
		if err != nil || len(out.Messages) != 1 {
			t.Fatalf("received %v, %v", out, err)
		}
	}
	if n := f.Requests("q")["ReceiveMessage"]; n != 3 {
		t.Errorf("%d requests to receive, want 3", n)
	}
}
