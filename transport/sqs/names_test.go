//go:build darwin || linux

package sqs_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		cfg         sqs.Config
		queue, want string
		refused     string // is in the error
		fifo        bool
	}{
		"plain":                           {queue: "billing_v2-A", want: "billing_v2-A"},
		"dots":                            {queue: "My.Company.Billing", want: "My-Company-Billing"},
		"FIFO":                            {queue: "billing.fifo", want: "billing.fifo", fifo: true},
		"FIFO with dots":                  {queue: "My.Billing.fifo", want: "My-Billing.fifo", fifo: true},
		"no suffix at the end":            {queue: "billing.fifo.x", want: "billing-fifo-x"},
		"prefix is not in it":             {cfg: sqs.Config{QueuePrefix: "test-"}, queue: "billing", want: "billing"},
		"69 characters":                   {queue: long(69), want: long(69)},
		"70 characters":                   {queue: long(70), refused: "81 characters"},
		"69 characters and FIFO":          {queue: long(69) + ".fifo", want: long(69) + ".fifo", fifo: true},
		"70 characters and FIFO":          {queue: long(70) + ".fifo", refused: "81 characters"},
		"80 characters, no long delays":   {cfg: sqs.Config{NoLongDelays: true}, queue: long(80), want: long(80)},
		"81 characters, no long delays":   {cfg: sqs.Config{NoLongDelays: true}, queue: long(81), refused: "81 characters"},
		"75 and FIFO, no long delays":     {cfg: sqs.Config{NoLongDelays: true}, queue: long(75) + ".fifo", want: long(75) + ".fifo", fifo: true},
		"76 and FIFO, no long delays":     {cfg: sqs.Config{NoLongDelays: true}, queue: long(76) + ".fifo", refused: "81 characters"},
		"64 characters and a prefix of 5": {cfg: sqs.Config{QueuePrefix: "test-"}, queue: long(64), want: long(64)},
		"65 characters and a prefix of 5": {cfg: sqs.Config{QueuePrefix: "test-"}, queue: long(65), refused: `Config.QueuePrefix, which is "test-"`},
		"empty":                           {queue: "", refused: "empty"},
		"suffix alone":                    {queue: ".fifo", refused: "suffix"},
		"space":                           {queue: "bill ing", refused: `' '`},
		"slash":                           {queue: "a/b", refused: `'/'`},
		"colon":                           {queue: "a:b", refused: `':'`},
		"plus":                            {queue: "a+b", refused: `'+'`},
		"letter that is not ASCII":        {queue: "büro", refused: `'ü'`},
		"not UTF-8":                       {queue: "a\xffb", refused: "AWS does not allow"},
		"control character":               {queue: "a\nb", refused: `'\n'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := openConfigured(t, configured(c.cfg, "http://127.0.0.1:1"))
			got, err := transport.Address(c.queue)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("the address is %q, and the error: %v", got, err)
				}
				if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: c.queue}); c.queue != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
					t.Errorf("the error of Send is: %v", err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("the address is %q, want %q; the error: %v", got, c.want, err)
			}
			if same, err := transport.Address(got); err != nil || same != got {
				t.Errorf("the address of the address is %q: %v", same, err)
			}
			if transport.KeepsGroups(c.queue) != c.fifo {
				t.Errorf("KeepsGroups is %v", !c.fifo)
			}
		})
	}
}

func TestCheckTopic(t *testing.T) {
	t.Parallel()
	transport := openConfigured(t, configured(sqs.Config{TopicPrefix: "test-"}, "http://127.0.0.1:1"))
	for topic, refused := range map[string]string{
		"Order": "", "My.Outer+Order": "", "Order.fifo": "", strings.Repeat("x", 251): "", strings.Repeat("x", 246) + ".fifo": "",
		"": "empty", "My Order": `' '`, "List`1[Order]": "'`'", "Büro": `'ü'`, "a:b": `':'`,
		strings.Repeat("x", 252): "257 characters", strings.Repeat("x", 247) + ".fifo": "257 characters",
	} {
		err := transport.CheckTopic(topic)
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("the error of the topic %q is: %v", topic, err)
		}
	}
}

// Prefixes keep environments of one account apart.
func TestNames_InTheService(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{QueuePrefix: "test-", TopicPrefix: "topics-"}, "My.Billing", "error")
	if err := transport.Subscribe(t.Context(), "My.Billing", "My.Order"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(s.Queues(), " "), "test-My-Billing test-My-Billing-delay.fifo test-error"; got != want {
		t.Errorf("the queues are %s, want %s", got, want)
	}
	if requests := s.Requests("topics-My-Order"); requests["CreateTopic"] != 1 || requests["Subscribe"] != 1 {
		t.Errorf("there were these requests for the topic: %v", requests)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "My.Order"}); err != nil {
		t.Fatal(err)
	}
	s.get(t, "test-My-Billing")
}

func TestNew_RefusesPrefixes(t *testing.T) {
	t.Parallel()
	for said, cfg := range map[string]sqs.Config{
		`Config.QueuePrefix "a.b" has '.'`: {QueuePrefix: "a.b"},
		`Config.TopicPrefix "a b" has ' '`: {TopicPrefix: "a b"},
		"at most 68":                       {QueuePrefix: strings.Repeat("x", 69)},
		"at most 255":                      {TopicPrefix: strings.Repeat("x", 256)},
	} {
		if _, err := sqs.New(configured(cfg, "http://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("the error is %v, want %s", err, said)
		}
	}
}
