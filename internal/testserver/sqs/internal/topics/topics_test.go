package topics

import (
	"net/url"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
)

// newTestStore returns a store of topics and its store of queues, which has the queue q.
func newTestStore(t *testing.T) (*Store, *queues.Store) {
	t.Helper()
	q := queues.New(queues.Config{Region: "r", Account: "1", MaxInFlight: 10, Clock: clock.New(time.Now)})
	create := queues.Operations["CreateQueue"]
	r, err := create.Decode([]byte(`{"QueueName":"q"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create.Run(q, &api.Call{Context: t.Context(), Account: "1"}, r); err != nil {
		t.Fatal(err)
	}
	return New(q), q
}

// run executes an operation with parameters, and fails unless it has the error.
func run(t *testing.T, st *Store, operation, failure string, parameters ...string) api.AnswerXML {
	t.Helper()
	f := api.Form{Values: url.Values{}}
	for i := 0; i+1 < len(parameters); i += 2 {
		f.Set(parameters[i], parameters[i+1])
	}
	answer, err := Operations[operation].Run(st, &api.Call{Context: t.Context(), Account: "1"}, f)
	got := ""
	if err != nil {
		got = err.Query
	}
	if got != failure {
		t.Fatalf("%s of %v: the error %q (%v), want %q", operation, parameters, got, err, failure)
	}
	return answer
}

// bodies returns the bodies of the messages in the queue.
func bodies(q *queues.Store) (all []string) {
	c, _ := q.Contents("q")
	for _, m := range c.Ready {
		all = append(all, m.Body)
	}
	return all
}

func TestPublish_ReachesSubscribedQueues(t *testing.T) {
	t.Parallel()
	st, q := newTestStore(t)
	arn := st.TopicARN("t")
	run(t, st, "Publish", "NotFound", "TopicArn", arn, "Message", "no topic")
	run(t, st, "CreateTopic", "", "Name", "t")
	run(t, st, "Publish", "", "TopicArn", arn, "Message", "no subscription")
	if st.SubscribeQueue("t", "none") || st.SubscribeQueue("none", "q") || !st.SubscribeQueue("t", "q") {
		t.Error("exactly the topic and the queue that exist can be subscribed")
	}
	run(t, st, "Publish", "", "TopicArn", arn, "Message", "all")
	subscription := ""
	for _, s := range run(t, st, "ListSubscriptionsByTopic", "", "TopicArn", arn).(*subscriptionsResult).Subscriptions {
		subscription = s.SubscriptionArn
	}
	run(t, st, "SetSubscriptionAttributes", "", "SubscriptionArn", subscription, "AttributeName", "FilterPolicy", "AttributeValue", `{"color":["red"]}`)
	for _, color := range []string{"red", "blue"} {
		run(t, st, "Publish", "", "TopicArn", arn, "Message", color, "MessageAttributes.entry.1.Name", "color",
			"MessageAttributes.entry.1.Value.DataType", "String", "MessageAttributes.entry.1.Value.StringValue", color)
	}
	run(t, st, "Unsubscribe", "", "SubscriptionArn", subscription)
	run(t, st, "Publish", "", "TopicArn", arn, "Message", "no longer")
	if got := bodies(q); len(got) != 2 || got[0] != "all" || got[1] != "red" {
		t.Errorf("the queue has %q", got)
	}
}

func TestPublish_NeedsAPolicyThatAllowsIt(t *testing.T) {
	t.Parallel()
	st, q := newTestStore(t)
	run(t, st, "CreateTopic", "", "Name", "t")
	run(t, st, "Subscribe", "", "TopicArn", st.TopicARN("t"), "Protocol", "sqs", "Endpoint", q.QueueARN("q"))
	run(t, st, "Publish", "", "TopicArn", st.TopicARN("t"), "Message", "x")
	if got := bodies(q); len(got) != 0 {
		t.Errorf("the queue has %q", got)
	}
}

func TestApply_RestoresTopics(t *testing.T) {
	t.Parallel()
	st, q := newTestStore(t)
	for _, tt := range []struct {
		entry string
		known bool
	}{
		{`{"do":"topic","topic":{"name":"gone","arn":"arn:aws:sns:r:1:gone","attributes":{}}}`, true},
		{`{"do":"-topic","arn":"arn:aws:sns:r:1:gone"}`, true},
		{`{"do":"topic","topic":{"name":"t","arn":"arn:aws:sns:r:1:t","attributes":{}}}`, true},
		{`{"do":"subscribe","sub":{"arn":"arn:aws:sns:r:1:t:1","endpoint":"x","attributes":{}}}`, true},
		{`{"do":"-subscribe","arn":"arn:aws:sns:r:1:t:1"}`, true},
		{`{"do":"subscribe","sub":{"arn":"arn:aws:sns:r:1:t:2","endpoint":"` + q.QueueARN("q") + `","attributes":{"RawMessageDelivery":"true"}}}`, true},
		{`{"do":"queue"}`, false},
	} {
		if known, err := st.Apply([]byte(tt.entry)); known != tt.known || err != nil {
			t.Errorf("%s: %t, %v", tt.entry, known, err)
		}
	}
	if _, err := st.Apply([]byte(`{"do":"subscribe","sub":{"arn":"arn:aws:sns:r:1:none:1"}}`)); err == nil {
		t.Error("a subscription without topic is restored")
	}
	run(t, st, "GetTopicAttributes", "NotFound", "TopicArn", "arn:aws:sns:r:1:gone")
	all := run(t, st, "ListSubscriptions", "").(*subscriptionsResult).Subscriptions
	if len(all) != 1 || all[0].Endpoint != q.QueueARN("q") {
		t.Errorf("the subscriptions are %+v", all)
	}
}
