//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// browse returns the messages of all pages.
func browse(t *testing.T, b queues.Browser, r queues.Request) (all []queues.Message, pages int) {
	t.Helper()
	for {
		page, err := b.Browse(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all, pages
		}
		if len(page.Messages) == 0 {
			t.Fatal("an empty page has a next one")
		}
		r.After = page.Next
	}
}

func bodiesOf(messages []queues.Message) (bodies []string) {
	for _, m := range messages {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

func TestBrowse_ShowsEveryStateAndTakesNothing(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "parked")
	foreign := s.client(t)
	r, err := foreign.NewReceiverForQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	parked, err := r.ReceiveMessages(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.DeferMessage(t.Context(), parked[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "delayed", Queue: "q", Body: []byte("delayed"), Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	send(t, transport, "q", "locked")
	locked := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	send(t, transport, "q", "ready")
	for range 2 {
		all, _ := browse(t, transport, queues.Request{Queue: "q", Limit: 3})
		if got := bodiesOf(all); !slices.Equal(got, []string{"parked", "delayed", "locked", "ready"}) {
			t.Fatalf("%q are shown", got)
		}
		for i, want := range []queues.State{queues.Parked, queues.Delayed, queues.Ready, queues.Ready} {
			if all[i].State != want {
				t.Errorf("%q is %v, want %v", all[i].Body, all[i].State, want)
			}
		}
		if left := time.Until(all[1].DueAt); left < 58*time.Minute || left > 62*time.Minute || !all[3].DueAt.IsZero() {
			t.Errorf("the delayed message is due in %v, the ready one at %v", left, all[3].DueAt)
		}
		if id := locked.Incoming().NativeID; all[2].NativeID != id || all[2].DeliveryCount != 0 {
			t.Errorf("the locked message has the native id %q and %d deliveries, want %q and 0", all[2].NativeID, all[2].DeliveryCount, id)
		}
	}
	if err := locked.Complete(t.Context()); err != nil {
		t.Errorf("the lock is gone: %v", err)
	}
}

// client returns a client of the SDK.
func (s *site) client(t *testing.T) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func TestBrowse_Pages(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "other", "empty")
	const n = 600 // more than two requests bring
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprintf("%03d", i) + strings.Repeat("x", 1000)
	}
	for chunk := range slices.Chunk(want, 100) {
		send(t, transport, "q", chunk...)
	}
	tests := []struct {
		name               string
		r                  queues.Request
		minPages, maxPages int
	}{
		{"one", queues.Request{Limit: 1000}, 1, 2},
		{"by number", queues.Request{Limit: 7}, 86, 87},
		{"by bytes", queues.Request{Limit: n, MaxBytes: 100_000}, 6, 12},
		{"less than a message", queues.Request{Limit: n, MaxBytes: 1}, n, n + 1},
		{"no bodies", queues.Request{Limit: n, MaxBytes: 100_000, WithoutBody: true}, 1, 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.r.Queue = "Q" // the service ignores case
			all, pages := browse(t, transport, test.r)
			if pages < test.minPages || pages > test.maxPages {
				t.Errorf("%d pages, want %d to %d", pages, test.minPages, test.maxPages)
			}
			if len(all) != n {
				t.Fatalf("%d messages, want %d", len(all), n)
			}
			for i, m := range all {
				switch {
				case m.BodyBytes != len(want[i]):
					t.Fatalf("message %d has %d bytes, want %d", i, m.BodyBytes, len(want[i]))
				case test.r.WithoutBody:
					if native := m.Native.(*azservicebus.ReceivedMessage); m.Body != nil || native.Body != nil || native.RawAMQPMessage.Body.Data != nil {
						t.Fatal("a body was not asked for")
					}
				case string(m.Body) != want[i]:
					t.Fatalf("message %d is %.10q, want %.10q", i, m.Body, want[i])
				}
			}
		})
	}
	if page, err := transport.Browse(t.Context(), queues.Request{Queue: "empty", Limit: 1}); err != nil || len(page.Messages) > 0 || page.Next != "" {
		t.Errorf("the empty queue: %+v, %v", page, err)
	}
	first, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.open(t, asb.Config{}).Browse(t.Context(), queues.Request{Queue: "q", Limit: 1, After: first.Next})
	if err != nil || len(second.Messages) != 1 || string(second.Messages[0].Body) != want[10] {
		t.Errorf("in another process the look continues with %d messages, %v", len(second.Messages), err)
	}
	for _, after := range []string{"other" + first.Next[1:], first.Next + "0x", "q", "q#", "q#-1", "q#+1", "q#01", "#5", "5", "q#9223372036854775807", "q$deadletterqueue#1"} {
		if _, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1, After: after}); err == nil {
			t.Errorf("After %q is accepted", after)
		}
	}
	if page, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1, After: fmt.Sprintf("q#%d", math.MaxInt64-1)}); err != nil || len(page.Messages) > 0 || page.Next != "" {
		t.Errorf("a cursor at the end: %v, %v", page, err)
	}
}

func TestBrowse_ByKeys(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	var bodies []string
	for i := range 300 {
		bodies = append(bodies, fmt.Sprint(i))
	}
	send(t, transport, "q", bodies...)
	all, _ := browse(t, transport, queues.Request{Queue: "q", Limit: 500})
	for _, d := range take(t, openReceiver(t, transport, "q", 2), 2) { // 0 and 1 leave the queue
		complete(t, d)
	}
	before := s.Count(sbserver.OpPeek, "q")
	for _, want := range [][]int{{2}, {299, 2, 150}, {5, 5, 6}, {0}, {0, 1, 2, 3, 4, 200, 201, 299}, nil} {
		keys := []string{}
		for _, i := range want {
			keys = append(keys, all[i].Key)
		}
		page, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 8, Keys: keys})
		if err != nil || page.Next != "" {
			t.Fatalf("%v: next %q, %v", want, page.Next, err)
		}
		slices.Sort(want)
		var there []string
		for _, i := range slices.Compact(want) {
			if i > 1 {
				there = append(there, bodies[i])
			}
		}
		if got := bodiesOf(page.Messages); !slices.Equal(got, there) {
			t.Errorf("for %v came %q, want %q", want, got, there)
		}
	}
	if requests := s.Count(sbserver.OpPeek, "q") - before; requests > 12 {
		t.Errorf("%d requests", requests)
	}
	for name, r := range map[string]queues.Request{
		"too many keys": {Limit: 1, Keys: []string{"5", "6"}},
		"with After":    {Limit: 1, Keys: []string{"5"}, After: "q#1"},
		"no limit":      {},
		"no bytes":      {Limit: 1, MaxBytes: -1},
	} {
		r.Queue = "q"
		if _, err := transport.Browse(t.Context(), r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBrowse_DeadLetterQueue(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{QueuePrefix: "test."}, "q")
	send(t, transport, "q", "dead")
	if err := take(t, openReceiver(t, transport, "q", 1), 1)[0].DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	const dead = "q/$DeadLetterQueue"
	if err := take(t, openReceiver(t, transport, dead, 1), 1)[0].Abandon(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	all, _ := browse(t, transport, queues.Request{Queue: dead, Limit: 10})
	if len(all) != 1 || string(all[0].Body) != "dead" || all[0].Headers.Get("DeadLetterReason") != "a reason" || all[0].DeliveryCount != 1 {
		t.Errorf("it has %+v", all)
	}
	if depth, err := transport.Depth(t.Context(), dead); err != nil || depth != (queues.Depth{Ready: 1, Locked: -1, Receivers: -1}) {
		t.Errorf("its depth is %+v, %v", depth, err)
	}
}

// A look goes on when its connection was lost.
func TestBrowse_AfterALostConnection(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "a", "b")
	first, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.CutConnections()
	second, err := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1, After: first.Next})
	if err != nil || len(second.Messages) != 1 || string(second.Messages[0].Body) != "b" {
		t.Errorf("the second page has %q, %v", bodiesOf(second.Messages), err)
	}
}

func TestQueues_AreRefused(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"ordered"}}, "q", "ordered")
	if _, err := transport.Browse(t.Context(), queues.Request{Queue: "ordered", Limit: 1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Browse of a queue with sessions: %v", err)
	}
	if _, err := transport.Browse(t.Context(), queues.Request{Queue: "missing", Limit: 1}); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Browse of a missing queue: %v", err)
	}
	noAdmin := s.open(t, asb.Config{NoAdmin: true})
	for name, transport := range map[string]*asb.Transport{"": transport, "NoAdmin": noAdmin} {
		if _, err := transport.Depth(t.Context(), "missing"); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("%s: Depth of a missing queue: %v", name, err)
		}
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, browsed := transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1})
	_, counted := transport.Depth(t.Context(), "q")
	_, listed := transport.ListQueues(t.Context())
	for _, err := range []error{browsed, counted, listed} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestDepthAndListQueues(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{}, "outside", "app") // of others
	var many []string
	for i := range 120 { // more than a page has
		many = append(many, fmt.Sprintf("x%03d", i))
	}
	transport := s.provisioned(t, asb.Config{QueuePrefix: "App."}, append([]string{"b", "A/c"}, many...)...)
	send(t, transport, "b", "1", "2")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "3", Queue: "b", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if depth, err := transport.Depth(t.Context(), "B"); err != nil || depth != (queues.Depth{Ready: 2, Locked: -1, Delayed: 1, Receivers: -1}) {
		t.Errorf("Depth is %+v, %v", depth, err)
	}
	if got, err := transport.ListQueues(t.Context()); err != nil || !slices.Equal(got, append([]string{"a/c", "b"}, many...)) {
		t.Errorf("ListQueues is %q, %v", got, err)
	}
	unknown := queues.Depth{Ready: -1, Locked: -1, Delayed: -1, Receivers: -1}
	noAdmin := s.open(t, asb.Config{QueuePrefix: "app.", NoAdmin: true})
	if depth, err := noAdmin.Depth(t.Context(), "b"); err != nil || depth != unknown {
		t.Errorf("Depth with NoAdmin is %+v, %v", depth, err)
	}
	if _, err := noAdmin.ListQueues(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ListQueues with NoAdmin: %v", err)
	}
	refused := s.open(t, asb.Config{QueuePrefix: "app.", Admin: adminOptions(unauthorized{})})
	if depth, err := refused.Depth(t.Context(), "b"); err != nil || depth != unknown {
		t.Errorf("Depth without the right is %+v, %v", depth, err)
	}
	if _, err := refused.ListQueues(t.Context()); err == nil || !strings.Contains(err.Error(), "Manage") {
		t.Errorf("ListQueues without the right: %v", err)
	}
}

func adminOptions(p policy.Policy) (o admin.ClientOptions) {
	o.PerCallPolicies = []policy.Policy{p}
	return o
}

// A message is shown with the same time at which it expires as a delivery has.
func TestBrowse_ExpiresAt(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "lasting")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "short", Queue: "q", TimeToBeReceived: time.Hour}); err != nil {
		t.Fatal(err)
	}
	all, _ := browse(t, transport, queues.Request{Queue: "q", Limit: 2})
	for i, d := range take(t, openReceiver(t, transport, "q", 2), 2) {
		if want := d.Incoming().ExpiresAt; !all[i].ExpiresAt.Equal(want) || want.IsZero() != (i == 0) {
			t.Errorf("message %d is shown to expire at %v, its delivery at %v", i, all[i].ExpiresAt, want)
		}
	}
}

// wholeQueue asks for the whole of a short queue.
func wholeQueue(queue string) queues.Request { return queues.Request{Queue: queue, Limit: 1000} }

// counted is how often the service has counted a delivery of a message.
func counted(in *core.Incoming) int {
	return int(in.Native.(*azservicebus.ReceivedMessage).RawAMQPMessage.Header.DeliveryCount)
}
