//go:build darwin || linux

package asb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestSend_BatchesBySize(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	msgs := make([]core.Outgoing, 10)
	for i := range msgs {
		msgs[i] = core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Body: make([]byte, 100<<10)}
	}
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(sbserver.OpSend, "q"); n != 5 {
		t.Errorf("ten messages of 100 KiB went out in %d requests of up to 256 KiB, want 5", n)
	}
	small := make([]string, 100)
	for i := range small {
		small[i] = fmt.Sprint(i)
	}
	send(t, transport, "q", small...)
	if n := s.Count(sbserver.OpSend, "q"); n != 6 {
		t.Errorf("a hundred small messages went out in %d requests, want 1", n-5)
	}
}

// A batch has 1 MiB at most also where a message may have more
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-premium-messaging#large-messages-support).
func TestSend_LargeMessagesOfThePremiumTier(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Broker: broker.Config{Tier: properties.Premium}})
	transport := s.provisioned(t, asb.Config{MaxMessageBytes: 2 << 20, CustomizeQueue: func(_ string, p *admin.QueueProperties) {
		p.MaxMessageSizeInKilobytes = new(int64(2 << 10))
	}}, "q")
	sizes := []int{600 << 10, 600 << 10, 1500 << 10, 300 << 10, 300 << 10}
	msgs := make([]core.Outgoing, len(sizes))
	for i, size := range sizes {
		msgs[i] = core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Body: bytes.Repeat([]byte{byte(i)}, size)}
	}
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(sbserver.OpSend, "q"); n != 4 {
		t.Errorf("the messages went out in %d requests, want 4: batches of up to 1 MiB, and the largest one alone", n)
	}
	missing := map[string][]byte{}
	for _, m := range msgs {
		missing[m.ID] = m.Body
	}
	// In any order: the SDK releases messages that arrive between two calls, and they come again.
	for _, d := range take(t, openReceiver(t, transport, "q", len(sizes)), len(sizes)) {
		in := d.Incoming()
		if want := missing[in.ID]; !bytes.Equal(in.Body, want) {
			t.Errorf("message %s came with a body of %d bytes, want its %d", in.ID, len(in.Body), len(want))
		}
		delete(missing, in.ID)
		complete(t, d)
	}
	if len(missing) > 0 {
		t.Errorf("%d messages did not come", len(missing))
	}
	err := transport.Send(t.Context(), core.Outgoing{ID: "larger", Queue: "q", Body: make([]byte, 2<<20)})
	if !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("a message that is larger than the queue allows: %v", err)
	}
}

// Messages of one queue and group keep their order wherever they are in a call. The service takes no batch of several sessions
// in a partitioned queue.
func TestSend_RequestsOfACallWithSeveralDestinations(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"ordered"}}, "plain", "other", "ordered")
	var msgs []core.Outgoing
	for i := range 3 {
		for _, to := range []core.Outgoing{{ID: "1", Queue: "plain"}, {ID: "1", Queue: "other"}, {ID: "1", Queue: "ordered", GroupKey: "a"}, {ID: "1", Queue: "ordered", GroupKey: "b"}} {
			to.ID = fmt.Sprint(to.Queue, to.GroupKey, i)
			msgs = append(msgs, to)
		}
	}
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]int{"plain": 1, "other": 1, "ordered": 2} {
		if n := s.Count(sbserver.OpSend, queue); n != want {
			t.Errorf("%s got %d requests, want %d", queue, n, want)
		}
	}
}

// A partitioned queue takes no batch of several sessions, and one with duplicate detection no batch of several messages.
func TestSend_PartitionedQueues(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	for name, p := range map[string]properties.Queue{
		"sessions":   {EnablePartitioning: true, RequiresSession: true},
		"duplicates": {EnablePartitioning: true, RequiresDuplicateDetection: true},
		"plain":      {EnablePartitioning: true},
	} {
		if err := s.Broker().CreateQueue(name, p); err != nil {
			t.Fatal(err)
		}
	}
	transport := s.open(t, asb.Config{SessionQueues: []string{"sessions"}})
	for queue, want := range map[string]int{"sessions": 3 + 2*3 + 2*1, "duplicates": 3 + 2*3 + 2*3, "plain": 4} {
		for range 2 {
			for _, key := range []string{"", "group"} {
				if key != "" && queue == "duplicates" {
					key = "" // which all of them have
				}
				var msgs []core.Outgoing
				for i := range 3 {
					msgs = append(msgs, core.Outgoing{ID: fmt.Sprint(queue, key, i), Queue: queue, GroupKey: key, Reason: core.ReasonForward})
				}
				if err := transport.Send(t.Context(), msgs...); err != nil {
					t.Fatalf("%s: %v", queue, err)
				}
			}
		}
		if info, err := s.Broker().Queue(queue); err != nil || info.Runtime.Active != 12 {
			t.Errorf("%s has %d messages, %v; want 12", queue, info.Runtime.Active, err)
		}
		if n := s.Count(sbserver.OpSend, queue); n > want {
			t.Errorf("%s got %d requests, want %d at most: it refuses a batch once", queue, n, want)
		}
	}
}

// skewed is a clock that is ahead of the machine's.
type skewed struct {
	clock.System
	offset time.Duration
}

func (c skewed) Now() time.Time { return c.System.Now().Add(c.offset) }

func TestSend_DelayIsByTheClockOfTheService(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: skewed{offset: time.Hour}}})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "tells the time")
	complete(t, take(t, openReceiver(t, transport, "q", 1), 1)[0])
	if err := transport.Send(t.Context(), core.Outgoing{ID: "delayed", Queue: "q", Delay: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Scheduled != 1 {
		t.Errorf("%d messages are scheduled, %v; want the one that is due in ten minutes", info.Runtime.Scheduled, err)
	}
}

func TestSend_MessageThatServiceBusDoesNotTake(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{MaxMessageBytes: 1 << 20}, "q") // in the standard tier
	err := transport.Send(t.Context(), core.Outgoing{ID: "large", Queue: "q", Body: make([]byte, 300<<10)}, core.Outgoing{ID: "small", Queue: "q"})
	sendErr, ok := errors.AsType[*core.SendError](err)
	if !ok || sendErr.Results[0].State != core.SendRefused || !errors.Is(sendErr.Results[0].Err, core.ErrTooLarge) {
		t.Errorf("the error is %v", err)
	}
	send(t, transport, "q", "after it")
}

func TestSend_LostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "before")
	for _, taken := range []bool{true, false} {
		s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, TakesEffect: taken, Action: sbserver.Cut})
		err := transport.Send(t.Context(), core.Outgoing{ID: "lost", Queue: "q"})
		if sendErr, ok := errors.AsType[*core.SendError](err); !ok || sendErr.Results[0].State != core.SendUnknown {
			t.Errorf("the connection was lost before the answer, taken %v: %v", taken, err)
		}
		send(t, transport, "q", "after it") // on another connection
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Active != 4 {
		t.Errorf("the queue has %d messages, %v; want 4: a message whose fate is unknown must not be sent again", info.Runtime.Active, err)
	}
}

func TestSend_LinkThatIsClosedByABusyServiceIsUnknown(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	// The SDK sends the message once more by itself.
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Times: 2, TakesEffect: true, Action: sbserver.Detach, Error: sbserver.ServerBusy})
	err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q"})
	if sendErr, ok := errors.AsType[*core.SendError](err); !ok || sendErr.Results[0].State != core.SendUnknown {
		t.Errorf("the service had accepted the message: %v", err)
	}
	await(t, "a message is accepted", func() bool { return transport.Send(t.Context(), core.Outgoing{ID: "after it", Queue: "q"}) == nil })
}

func TestSend_WaitsWhileTheServiceIsBusy(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]sbserver.Fault{
		"messages are refused": {Ops: []sbserver.Op{sbserver.OpSend}, Times: 2, Action: sbserver.Refuse},
		"the link is refused":  {Ops: []sbserver.Op{sbserver.OpAttachSender}, Times: 2, Action: sbserver.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q")
			s.Inject(busy)
			bodies := []string{"a", "b", "c", "d"}
			send(t, transport, "q", bodies[:3]...)
			send(t, transport, "q", bodies[3])
			messages, err := s.Broker().Peek("q", 0, 10, nil)
			if err != nil {
				t.Fatal(err)
			}
			var sent []string
			for _, m := range messages {
				sent = append(sent, string(m.Body()))
			}
			if !slices.Equal(sent, bodies) {
				t.Errorf("the queue has %q, want %q", sent, bodies)
			}
		})
	}
}

func TestSend_ServiceThatStaysBusyRefuses(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Times: -1, Action: sbserver.Refuse})
	await(t, "a message whose call ends between two attempts is refused", func() bool {
		before := s.Count(sbserver.OpSend, "q")
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan error, 1)
		go func() { sent <- transport.Send(ctx, core.Outgoing{ID: "id", Queue: "q"}) }()
		await(t, "the message is sent again", func() bool { return s.Count(sbserver.OpSend, "q") >= before+2 })
		cancel()
		err := <-sent
		sendErr, ok := errors.AsType[*core.SendError](err)
		if !ok || !errors.Is(err, context.Canceled) {
			t.Fatalf("Send returned %v", err)
		}
		// An attempt that the context ends has no answer, and its message is unknown.
		return sendErr.Results[0].State == core.SendRefused && strings.Contains(err.Error(), "busy")
	})
	remove()
	send(t, transport, "q", "after it")
}

func TestSend_DuplicateDetectionDropsTheApplicationsDuplicatesAlone(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{RequiresDuplicateDetection: true}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{})
	for _, reason := range []core.SendReason{
		core.ReasonApplication, core.ReasonApplication, core.ReasonDelayedRetry, core.ReasonDelayedRetry, core.ReasonMoveToError, core.ReasonForward, core.ReasonReturn,
	} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: "the same", Queue: "q", Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Active != 6 {
		t.Errorf("of two sends and five copies of a message the queue has %d, %v; want 6", info.Runtime.Active, err)
	}
}

func TestSend_MessageThatExpiresBeforeItIsDueIsNotSent(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Delay: time.Minute, TimeToBeReceived: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(sbserver.OpSend, ""); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

func TestPublish_MissingTopic(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	event := core.Outgoing{ID: "id", Topic: "Shop.OrderPlaced"}
	err := s.open(t, asb.Config{}).Send(t.Context(), event)
	if err == nil || !strings.Contains(err.Error(), `"Shop.OrderPlaced"`) || !strings.Contains(err.Error(), "to fix") || errors.Is(err, core.ErrQueueNotFound) || !errors.Is(err, core.ErrNoSubscriber) {
		t.Errorf("the error is %v", err)
	}
	ignoring := s.open(t, asb.Config{IgnoreMissingTopics: true})
	if err := ignoring.Send(t.Context(), event); err != nil {
		t.Errorf("with IgnoreMissingTopics: %v", err)
	}
	event.RequireSubscriber = true
	if err := ignoring.Send(t.Context(), event); !errors.Is(err, core.ErrNoSubscriber) {
		t.Errorf("an event that requires a subscriber: %v", err)
	}
}

func TestSubscribe_ForwardsToTheQueueWithItsPrefix(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{QueuePrefix: "test/", TopicPrefix: "test/"}, "q")
	for range 2 { // the second time it is there
		if err := transport.Subscribe(t.Context(), "q", "Shop.Placed"); err != nil {
			t.Fatal(err)
		}
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Topic: "Shop.Placed"}); err != nil {
		t.Fatal(err)
	}
	take(t, openReceiver(t, transport, "q", 1), 1)
}

func TestSubscribe_RefusesASubscriptionThatForwardsElsewhere(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "elsewhere", "elsewhere/q")
	for topic, forward := range map[string]string{"Shop.Placed": "elsewhere", "Shop.Paid": "elsewhere/q"} {
		if err := errors.Join(
			s.Broker().CreateTopic(topic, properties.Topic{}),
			s.Broker().CreateSubscription(topic, "q", properties.Subscription{ForwardTo: forward}, rules.Rule{}),
		); err != nil {
			t.Fatal(err)
		}
		if err := transport.Subscribe(t.Context(), "q", topic); err == nil || !strings.Contains(err.Error(), forward) {
			t.Errorf("of one that forwards to %s, Subscribe returned %v", forward, err)
		}
	}
}

func TestProvision_QueuesThatExist(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"ordered*"}}, "q", "elsewhere")
	if err := s.Broker().CreateQueue("forwards", properties.Queue{ForwardTo: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "forwards", Queues: []string{"forwards"}}); err == nil || !strings.Contains(err.Error(), "ForwardTo") {
		t.Errorf("of a queue that forwards: %v", err)
	}
}

func TestSubscribe_RefusesEventsWhoseNamesDifferInCase(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	if err := transport.Subscribe(t.Context(), "q", "Shop.Placed"); err != nil {
		t.Fatal(err)
	}
	if err := transport.Subscribe(t.Context(), "q", "shop.placed"); err == nil || !strings.Contains(err.Error(), `"Shop.Placed"`) {
		t.Errorf("the error is %v", err)
	}
}

// In the resource manager, which az talks to, a slash separates resources.
func TestNoAdmin_CommandsHaveNoSlashes(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.open(t, asb.Config{NoAdmin: true, QueuePrefix: "test/", TopicPrefix: "test/"})
	commands := []string{
		transport.Provision(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}).Error(),
		transport.Unsubscribe(t.Context(), "q", "Shop.Placed", "Shop.Paid").Error(),
	}
	if err := transport.Subscribe(t.Context(), "q", "Shop.Placed", "Shop.Paid"); err != nil {
		t.Fatal(err)
	}
	for _, text := range append(commands, transport.Warnings()...) {
		_, command, found := strings.Cut(text, "az servicebus ")
		command, _, _ = strings.Cut(command, "(docs/")
		if !found || strings.Contains(command, "/") || !strings.Contains(command, "test~") {
			t.Errorf("there is no command, or one with slashes: %s", text)
		}
	}
}

func TestNoAdmin_ErrorNamesTheCommands(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.open(t, asb.Config{NoAdmin: true, SessionQueues: []string{"ordered"}})
	for _, queue := range []string{"plain", "ordered"} {
		err := transport.Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}})
		if err == nil || !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "az servicebus queue create") ||
			strings.Contains(err.Error(), "--enable-session true") != (queue == "ordered") {
			t.Errorf("Provision of %s: %v", queue, err)
		}
	}
	if err := transport.Subscribe(t.Context(), "plain", "Shop.Placed"); err != nil {
		t.Errorf("Subscribe: %v", err)
	}
	if warnings := transport.Warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "--topic-name Shop.Placed --name plain --forward-to plain") {
		t.Errorf("the warnings are %q", warnings)
	}
	err := transport.Unsubscribe(t.Context(), "plain", "Shop.Placed")
	if err == nil || !strings.Contains(err.Error(), "az servicebus topic subscription delete") || !strings.Contains(err.Error(), "--topic-name Shop.Placed --name plain") {
		t.Errorf("Unsubscribe: %v", err)
	}
	if n := s.Count(sbserver.OpAdministration, ""); n != 0 {
		t.Errorf("there were %d requests that need the right Manage", n)
	}
}
