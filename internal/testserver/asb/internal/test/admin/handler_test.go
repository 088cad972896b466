package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/admin"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

const connection = "Endpoint=sb://test.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=a2V5"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A service is a broker with the SDK's client of its administration API.
type service struct {
	*sdk.Client
	t       *testing.T
	broker  *broker.Broker
	handler *admin.Handler
}

// A redirect sends requests to a server, and ignores the host of their URL.
type redirect struct {
	client *http.Client
	host   string
}

func (r redirect) Do(req *http.Request) (*http.Response, error) {
	req.URL.Host = r.host
	return r.client.Do(req)
}

func newService(t *testing.T, tier properties.Tier) *service {
	t.Helper()
	b, err := broker.New(broker.Config{Clock: clock.NewFake(start), Tier: tier, Namespace: "test.servicebus.windows.net"})
	if err != nil {
		t.Fatal(err)
	}
	h := &admin.Handler{Broker: b}
	server := httptest.NewTLSServer(h)
	t.Cleanup(func() {
		server.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	options := &sdk.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: redirect{server.Client(), server.Listener.Addr().String()}, Retry: policy.RetryOptions{MaxRetries: -1},
	}}
	c, err := sdk.NewClientFromConnectionString(connection, options)
	if err != nil {
		t.Fatal(err)
	}
	return &service{Client: c, t: t, broker: b, handler: h}
}

func (s *service) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// refuses fails the test unless an error is the SDK's for a status.
func (s *service) refuses(err error, status int) {
	s.t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		s.t.Fatalf("got the error %v, want the status %d", err, status)
	}
}

func equal[T comparable](t *testing.T, subject string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", subject, got, want)
	}
}

func TestQueue_Defaults(t *testing.T) {
	s := newService(t, properties.Standard)
	created, err := s.CreateQueue(t.Context(), "q", nil)
	s.must(err)
	equal(t, "the name", created.QueueName, "q")
	got, err := s.GetQueue(t.Context(), "Q", nil)
	s.must(err)
	for _, p := range []sdk.QueueProperties{created.QueueProperties, got.QueueProperties} {
		equal(t, "LockDuration", *p.LockDuration, "PT1M")
		equal(t, "MaxSizeInMegabytes", *p.MaxSizeInMegabytes, 1024)
		equal(t, "RequiresDuplicateDetection", *p.RequiresDuplicateDetection, false)
		equal(t, "RequiresSession", *p.RequiresSession, false)
		equal(t, "DefaultMessageTimeToLive", *p.DefaultMessageTimeToLive, "P10675199DT2H48M5.4775807S")
		equal(t, "DeadLetteringOnMessageExpiration", *p.DeadLetteringOnMessageExpiration, false)
		equal(t, "DuplicateDetectionHistoryTimeWindow", *p.DuplicateDetectionHistoryTimeWindow, "PT10M")
		equal(t, "MaxDeliveryCount", *p.MaxDeliveryCount, 10)
		equal(t, "EnableBatchedOperations", *p.EnableBatchedOperations, true)
		equal(t, "Status", *p.Status, sdk.EntityStatusActive)
		equal(t, "AutoDeleteOnIdle", *p.AutoDeleteOnIdle, "P10675199DT2H48M5.4775807S")
		equal(t, "EnablePartitioning", *p.EnablePartitioning, false)
		equal(t, "MaxMessageSizeInKilobytes", *p.MaxMessageSizeInKilobytes, 256)
		if p.ForwardTo != nil || p.ForwardDeadLetteredMessagesTo != nil || p.UserMetadata != nil {
			t.Errorf("properties that were not set have values: %+v", p)
		}
	}
}

func TestQueue_AllProperties(t *testing.T) {
	s := newService(t, properties.Premium)
	_, err := s.CreateQueue(t.Context(), "target", nil)
	s.must(err)
	want := sdk.QueueProperties{
		LockDuration: new("PT45S"), MaxSizeInMegabytes: new(int32(2048)), RequiresDuplicateDetection: new(true), RequiresSession: new(true),
		DefaultMessageTimeToLive: new("P1DT2H3M4.5S"), DeadLetteringOnMessageExpiration: new(true), DuplicateDetectionHistoryTimeWindow: new("PT1H"),
		MaxDeliveryCount: new(int32(100)), EnableBatchedOperations: new(false), Status: new(sdk.EntityStatusSendDisabled), AutoDeleteOnIdle: new("P14D"),
		EnablePartitioning: new(true), ForwardDeadLetteredMessagesTo: new("sb://test.servicebus.windows.net/target"), UserMetadata: new("<&>"),
		MaxMessageSizeInKilobytes: new(int64(2048)),
	}
	created, err := s.CreateQueue(t.Context(), "a/b", &sdk.CreateQueueOptions{Properties: &want})
	s.must(err)
	equal(t, "the name", created.QueueName, "a/b")
	got, err := s.GetQueue(t.Context(), "a/b", nil)
	s.must(err)
	equal(t, "the properties", describe(got.QueueProperties), describe(want))
	info, err := s.broker.Queue("a/b")
	s.must(err)
	equal(t, "the time to live", info.Properties.DefaultMessageTimeToLive, 26*time.Hour+3*time.Minute+4500*time.Millisecond)

	// Properties that were read can be sent back.
	got.Status, got.MaxDeliveryCount = new(sdk.EntityStatusActive), new(int32(5))
	updated, err := s.UpdateQueue(t.Context(), "a/b", got.QueueProperties, nil)
	s.must(err)
	equal(t, "the status", *updated.Status, sdk.EntityStatusActive)
	equal(t, "the maximum of deliveries", *updated.MaxDeliveryCount, 5)
}

// describe shows what the pointers of a structure point to.
func describe(p sdk.QueueProperties) string {
	return fmt.Sprintln(*p.LockDuration, *p.MaxSizeInMegabytes, *p.RequiresDuplicateDetection, *p.RequiresSession, *p.DefaultMessageTimeToLive,
		*p.DeadLetteringOnMessageExpiration, *p.DuplicateDetectionHistoryTimeWindow, *p.MaxDeliveryCount, *p.EnableBatchedOperations, *p.Status,
		*p.AutoDeleteOnIdle, *p.EnablePartitioning, *p.ForwardDeadLetteredMessagesTo, *p.UserMetadata, *p.MaxMessageSizeInKilobytes)
}

func TestQueue_UpdateKeepsPropertiesOfItsCreation(t *testing.T) {
	s := newService(t, properties.Standard)
	_, err := s.CreateQueue(t.Context(), "q", &sdk.CreateQueueOptions{Properties: &sdk.QueueProperties{RequiresSession: new(true)}})
	s.must(err)
	updated, err := s.UpdateQueue(t.Context(), "q", sdk.QueueProperties{LockDuration: new("PT5S")}, nil)
	s.must(err)
	equal(t, "sessions", *updated.RequiresSession, true)
	updated.RequiresSession = new(false)
	_, err = s.UpdateQueue(t.Context(), "q", updated.QueueProperties, nil)
	s.refuses(err, http.StatusBadRequest)
}

func TestErrors(t *testing.T) {
	s := newService(t, properties.Standard)
	_, err := s.CreateQueue(t.Context(), "q", nil)
	s.must(err)
	_, err = s.CreateTopic(t.Context(), "t", nil)
	s.must(err)
	_, err = s.CreateSubscription(t.Context(), "t", "s", nil)
	s.must(err)
	queue := func(p sdk.QueueProperties) error {
		_, err := s.CreateQueue(t.Context(), "new", &sdk.CreateQueueOptions{Properties: &p})
		return err
	}
	second := func(_ any, err error) error { return err }
	ctx := t.Context()
	tests := []struct {
		name   string
		err    error
		status int
	}{
		{"the queue exists", second(s.CreateQueue(ctx, "Q", nil)), 409},
		{"the topic exists", second(s.CreateTopic(ctx, "q", nil)), 409},
		{"the subscription exists", second(s.CreateSubscription(ctx, "t", "S", nil)), 409},
		{"the rule exists", second(s.CreateRule(ctx, "t", "s", &sdk.CreateRuleOptions{Name: new("$Default")})), 409},
		{"a rule without a name exists", second(s.CreateRule(ctx, "t", "s", &sdk.CreateRuleOptions{})), 409},
		{"no queue to update", second(s.UpdateQueue(ctx, "missing", sdk.QueueProperties{}, nil)), 404},
		{"no topic to update", second(s.UpdateTopic(ctx, "missing", sdk.TopicProperties{}, nil)), 404},
		{"no subscription to update", second(s.UpdateSubscription(ctx, "t", "missing", sdk.SubscriptionProperties{}, nil)), 404},
		{"no rule to update", second(s.UpdateRule(ctx, "t", "s", sdk.RuleProperties{Name: "missing"})), 404},
		{"no queue to delete", second(s.DeleteQueue(ctx, "missing", nil)), 404},
		{"no topic to delete", second(s.DeleteTopic(ctx, "missing", nil)), 404},
		{"no subscription to delete", second(s.DeleteSubscription(ctx, "t", "missing", nil)), 404},
		{"no rule to delete", second(s.DeleteRule(ctx, "t", "s", "missing", nil)), 404},
		{"no topic for a subscription", second(s.CreateSubscription(ctx, "missing", "s", nil)), 404},
		{"forwards to nowhere", queue(sdk.QueueProperties{ForwardTo: new("missing")}), 404},
		{"bad duration", queue(sdk.QueueProperties{LockDuration: new("60 s")}), 400},
		{"long lock", queue(sdk.QueueProperties{LockDuration: new("PT6M")}), 400},
		{"bad filter", second(s.CreateRule(ctx, "t", "s", &sdk.CreateRuleOptions{Name: new("r"), Filter: &sdk.SQLFilter{Expression: "a ="}})), 400},
		{"bad action", second(s.CreateRule(ctx, "t", "s", &sdk.CreateRuleOptions{Name: new("r"), Action: &sdk.SQLAction{Expression: "a"}})), 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			s.refuses(test.err, test.status)
			if !strings.Contains(test.err.Error(), fmt.Sprintf("SubCode=%d00", test.status)) {
				t.Errorf("the error %v has no sub-code", test.err)
			}
		})
	}
}

// A get of an entity that does not exist is nil without an error.
func TestGet_Missing(t *testing.T) {
	s := newService(t, properties.Standard)
	_, err := s.CreateTopic(t.Context(), "t", nil)
	s.must(err)
	_, err = s.CreateSubscription(t.Context(), "t", "s", nil)
	s.must(err)
	ctx := t.Context()
	if got, err := s.GetQueue(ctx, "missing", nil); got != nil || err != nil {
		t.Errorf("queue: %v, %v", got, err)
	}
	if got, err := s.GetQueueRuntimeProperties(ctx, "missing", nil); got != nil || err != nil {
		t.Errorf("queue at runtime: %v, %v", got, err)
	}
	if got, err := s.GetTopic(ctx, "missing", nil); got != nil || err != nil {
		t.Errorf("topic: %v, %v", got, err)
	}
	if got, err := s.GetSubscription(ctx, "t", "missing", nil); got != nil || err != nil {
		t.Errorf("subscription: %v, %v", got, err)
	}
	if got, err := s.GetRule(ctx, "t", "s", "missing", nil); got != nil || err != nil {
		t.Errorf("rule: %v, %v", got, err)
	}
}

func TestTopicAndSubscription(t *testing.T) {
	s := newService(t, properties.Standard)
	ctx := t.Context()
	_, err := s.CreateQueue(ctx, "q", nil)
	s.must(err)
	topic, err := s.CreateTopic(ctx, "t", &sdk.CreateTopicOptions{Properties: &sdk.TopicProperties{
		DefaultMessageTimeToLive: new("PT1H"), RequiresDuplicateDetection: new(true), SupportOrdering: new(true), UserMetadata: new("x"),
	}})
	s.must(err)
	equal(t, "the time to live", *topic.DefaultMessageTimeToLive, "PT1H")
	equal(t, "duplicate detection", *topic.RequiresDuplicateDetection, true)
	equal(t, "ordering", *topic.SupportOrdering, true)
	topic.AutoDeleteOnIdle = new("PT11M")
	updated, err := s.UpdateTopic(ctx, "t", topic.TopicProperties, nil)
	s.must(err)
	equal(t, "the idle time", *updated.AutoDeleteOnIdle, "PT11M")

	sub, err := s.CreateSubscription(ctx, "t", "s", &sdk.CreateSubscriptionOptions{Properties: &sdk.SubscriptionProperties{
		LockDuration: new("PT5M"), MaxDeliveryCount: new(int32(2147483647)), ForwardTo: new("q"), UserMetadata: new("y"),
		EnableDeadLetteringOnFilterEvaluationExceptions: new(false),
		DefaultRule: &sdk.RuleProperties{Name: "first", Filter: &sdk.CorrelationFilter{Subject: new("l")}},
	}})
	s.must(err)
	equal(t, "the lock duration", *sub.LockDuration, "PT5M")
	equal(t, "the maximum of deliveries", *sub.MaxDeliveryCount, 2147483647)
	equal(t, "the target", *sub.ForwardTo, "sb://test.servicebus.windows.net/q")
	equal(t, "dead-lettering of filter errors", *sub.EnableDeadLetteringOnFilterEvaluationExceptions, false)
	rule, err := s.GetRule(ctx, "t", "s", "first", nil)
	s.must(err)
	equal(t, "the label", *rule.Filter.(*sdk.CorrelationFilter).Subject, "l")
	label := "l"
	s.must(s.broker.Send("t", broker.Message{AMQP: &amqp10.Message{Data: [][]byte{nil}, Properties: &amqp10.MessageProperties{Subject: &label}}}))
	info, err := s.broker.Queue("q")
	s.must(err)
	equal(t, "the number of forwarded messages", info.Runtime.Active, 1)

	s.must(s.broker.SetStatus("t/Subscriptions/s", properties.StatusDisabled))
	sub.UserMetadata = new("z")
	changed, err := s.UpdateSubscription(ctx, "t", "s", sub.SubscriptionProperties, nil)
	s.must(err)
	equal(t, "the metadata", *changed.UserMetadata, "z")
	equal(t, "the status", *changed.Status, sdk.EntityStatusDisabled)

	_, err = s.DeleteSubscription(ctx, "t", "s", nil)
	s.must(err)
	_, err = s.DeleteTopic(ctx, "t", nil)
	s.must(err)
	_, err = s.broker.Topic("t")
	equal(t, "the topic", condition.Of(err), condition.NotFound)
}

func TestRules(t *testing.T) {
	s := newService(t, properties.Standard)
	ctx := t.Context()
	_, err := s.CreateTopic(ctx, "t", nil)
	s.must(err)
	_, err = s.CreateSubscription(ctx, "t", "s", nil)
	s.must(err)
	values := map[string]any{"@s": "x", "@b": true, "@i": int64(5), "@d": 2.5, "@t": start}
	tests := []struct {
		name   string
		filter sdk.RuleFilter
		action sdk.RuleAction
		want   string
	}{
		{"none", nil, nil, "&{} <nil>"},
		{"true", &sdk.TrueFilter{}, nil, "&{} <nil>"},
		{"false", &sdk.FalseFilter{}, nil, "&{} <nil>"},
		{"sql", &sdk.SQLFilter{Expression: "a < @i AND b > 'x'", Parameters: values}, nil,
			fmt.Sprint(&sdk.SQLFilter{Expression: "a < @i AND b > 'x'", Parameters: values}, nil)},
		{"correlation", &sdk.CorrelationFilter{ApplicationProperties: map[string]any{"Ns.Type": "true", "n": int64(1)}}, nil,
			fmt.Sprint(&sdk.CorrelationFilter{ApplicationProperties: map[string]any{"Ns.Type": "true", "n": int64(1)}}, nil)},
		{"action", &sdk.TrueFilter{}, &sdk.SQLAction{Expression: "SET a = @i", Parameters: map[string]any{"@i": int64(5)}},
			fmt.Sprint(&sdk.TrueFilter{}, &sdk.SQLAction{Expression: "SET a = @i", Parameters: map[string]any{"@i": int64(5)}})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			created, err := s.CreateRule(ctx, "t", "s", &sdk.CreateRuleOptions{Name: &test.name, Filter: test.filter, Action: test.action})
			s.must(err)
			equal(t, "the rule that was created", fmt.Sprint(created.Filter, created.Action), test.want)
			got, err := s.GetRule(ctx, "t", "s", strings.ToUpper(test.name), nil)
			s.must(err)
			equal(t, "the rule", fmt.Sprint(got.Filter, got.Action), test.want)
			if test.filter != nil {
				equal(t, "the type", fmt.Sprintf("%T", got.Filter), fmt.Sprintf("%T", test.filter))
			}
		})
	}
	s.t = t
	updated, err := s.UpdateRule(ctx, "t", "s", sdk.RuleProperties{Name: "true", Filter: &sdk.SQLFilter{Expression: "a = 1"}})
	s.must(err)
	equal(t, "the expression", updated.Filter.(*sdk.SQLFilter).Expression, "a = 1")
	_, err = s.DeleteRule(ctx, "t", "s", "$Default", nil)
	s.must(err)
	var names []string
	for pager := s.NewListRulesPager("t", "s", &sdk.ListRulesOptions{MaxPageSize: 4}); pager.More(); {
		page, err := pager.NextPage(ctx)
		s.must(err)
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
	}
	equal(t, "the rules", fmt.Sprint(names), "[none true false sql correlation action]")
	counts, err := s.GetTopicRuntimeProperties(ctx, "t", nil)
	s.must(err)
	equal(t, "the number of subscriptions", counts.SubscriptionCount, 1)
	equal(t, "the number of SQL filters", counts.SQLFilterCount, 5)
	equal(t, "the number of correlation filters", counts.CorrelationFilterCount, 1)
}

func TestList_Pages(t *testing.T) {
	s := newService(t, properties.Standard)
	ctx := t.Context()
	for i := range 5 {
		_, err := s.CreateQueue(ctx, fmt.Sprint("q", i), nil)
		s.must(err)
		_, err = s.CreateTopic(ctx, fmt.Sprint("t", i), nil)
		s.must(err)
		_, err = s.CreateSubscription(ctx, "t0", fmt.Sprint("s", i), nil)
		s.must(err)
	}
	for _, size := range []int32{0, 2, 5, 10} {
		var names []string
		for pager := s.NewListQueuesPager(&sdk.ListQueuesOptions{MaxPageSize: size}); pager.More(); {
			page, err := pager.NextPage(ctx)
			s.must(err)
			for _, q := range page.Queues {
				names = append(names, q.QueueName)
			}
		}
		for pager := s.NewListTopicsPager(&sdk.ListTopicsOptions{MaxPageSize: size}); pager.More(); {
			page, err := pager.NextPage(ctx)
			s.must(err)
			for _, x := range page.Topics {
				names = append(names, x.TopicName)
			}
		}
		for pager := s.NewListSubscriptionsPager("t0", &sdk.ListSubscriptionsOptions{MaxPageSize: size}); pager.More(); {
			page, err := pager.NextPage(ctx)
			s.must(err)
			for _, x := range page.Subscriptions {
				names = append(names, x.SubscriptionName)
			}
		}
		equal(t, fmt.Sprint("the names in pages of ", size), fmt.Sprint(names), "[q0 q1 q2 q3 q4 t0 t1 t2 t3 t4 s0 s1 s2 s3 s4]")
	}
}

func TestRuntimeProperties(t *testing.T) {
	s := newService(t, properties.Standard)
	ctx := t.Context()
	_, err := s.CreateQueue(ctx, "q", nil)
	s.must(err)
	_, err = s.CreateTopic(ctx, "t", nil)
	s.must(err)
	_, err = s.CreateSubscription(ctx, "t", "s", nil)
	s.must(err)
	scheduled := amqp10.Annotations{"x-opt-scheduled-enqueue-time": start.Add(time.Hour)}
	for _, path := range []string{"q", "t"} {
		for range 3 {
			s.must(s.broker.Send(path, broker.Message{AMQP: &amqp10.Message{Data: [][]byte{[]byte("a")}}}))
		}
		s.must(s.broker.Send(path, broker.Message{AMQP: &amqp10.Message{Annotations: scheduled, Data: [][]byte{[]byte("b")}}}))
	}
	for _, path := range []string{"q", "t/Subscriptions/s"} {
		c, err := s.broker.Consume(context.Background(), path, broker.ConsumerConfig{})
		s.must(err)
		s.must(c.Settle(c.Next(1)[0].LockToken, broker.Settlement{Outcome: broker.DeadLetter}))
	}
	q, err := s.GetQueueRuntimeProperties(ctx, "q", nil)
	s.must(err)
	equal(t, "the active messages", q.ActiveMessageCount, 2)
	equal(t, "the dead-lettered messages", q.DeadLetterMessageCount, 1)
	equal(t, "the scheduled messages", q.ScheduledMessageCount, 1)
	equal(t, "all messages", q.TotalMessageCount, 4)
	equal(t, "the size", q.SizeInBytes > 0, true)
	equal(t, "the time of creation", q.CreatedAt, start)
	sub, err := s.GetSubscriptionRuntimeProperties(ctx, "t", "s", nil)
	s.must(err)
	equal(t, "the active messages of the subscription", sub.ActiveMessageCount, 2)
	equal(t, "the dead-lettered messages of the subscription", sub.DeadLetterMessageCount, 1)
	topic, err := s.GetTopicRuntimeProperties(ctx, "t", nil)
	s.must(err)
	equal(t, "the scheduled messages of the topic", topic.ScheduledMessageCount, 1)
	for pager := s.NewListQueuesRuntimePropertiesPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		s.must(err)
		for _, x := range page.QueueRuntimeProperties {
			equal(t, "the active messages in the list", x.ActiveMessageCount, 2)
		}
	}
}

func TestNamespaceProperties(t *testing.T) {
	for _, tier := range []properties.Tier{properties.Standard, properties.Premium} {
		s := newService(t, tier)
		got, err := s.GetNamespaceProperties(t.Context(), nil)
		s.must(err)
		equal(t, "the tier", got.SKU, string(tier))
		equal(t, "the name", got.Name, "test.servicebus.windows.net")
		equal(t, "the time of creation", got.CreatedTime, start)
		equal(t, "whether there are messaging units", got.MessagingUnits != nil, tier == properties.Premium)
	}
}

func TestRefuse(t *testing.T) {
	s := newService(t, properties.Standard)
	s.handler.Refuse = func(r *http.Request) (int, string) {
		if strings.HasPrefix(r.Header.Get("Authorization"), "SharedAccessSignature ") && r.Method == http.MethodPut {
			return http.StatusUnauthorized, "SubCode=40100. Unauthorized : Unauthorized access for 'CreateQueue'."
		}
		return 0, ""
	}
	_, err := s.CreateQueue(t.Context(), "q", nil)
	s.refuses(err, http.StatusUnauthorized)
	got, err := s.GetQueue(t.Context(), "q", nil)
	s.must(err)
	if got != nil {
		t.Error("the queue was created")
	}
}

func TestBadRequests(t *testing.T) {
	s := newService(t, properties.Standard)
	tests := []struct {
		method, path, body string
		authorized         bool
		status             int
	}{
		{"GET", "/q", "", false, 401},
		{"POST", "/q", "", true, 405},
		{"PUT", "/q", "<entry", true, 400},
		{"PUT", "/q", "<entry><content></content></entry>", true, 400},
		{"PUT", "/t/Subscriptions/s", "<entry><content><QueueDescription/></content></entry>", true, 400},
		{"PUT", "/q", "<entry><content><QueueDescription><MaxDeliveryCount>x</MaxDeliveryCount></QueueDescription></content></entry>", true, 400},
		{"GET", "/", "", true, 400},
		{"GET", "/$Resources/Nonsense", "", true, 400},
		{"GET", "/$Resources/Queues?$top=x", "", true, 400},
		{"GET", "/t/Subscriptions/s/Nonsense", "", true, 400},
		{"GET", "/t/Subscriptions", "", true, 404},
		{"DELETE", "/$Resources/Queues", "", true, 400},
		{"DELETE", "/t/Subscriptions", "", true, 400},
		{"PUT", "/q", "<entry>" + strings.Repeat(" ", 2<<20) + "</entry>", true, 400},
	}
	for _, test := range tests {
		r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
		if test.authorized {
			r.Header.Set("Authorization", "x")
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		equal(t, test.method+" "+test.path, w.Code, test.status)
	}
}
