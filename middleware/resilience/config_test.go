package resilience_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
)

func TestNew_RefusesInvalidConfigurations(t *testing.T) {
	retry := resilience.Retry{Tries: 2}
	for _, test := range []struct {
		config resilience.Config
		says   string
	}{
		{resilience.Config{Name: "bank"}, `resilience: policy "bank": there is no strategy; set Breaker.Failures`},
		{resilience.Config{Retry: retry}, "Name is empty"},
		{resilience.Config{Name: "x", Timeout: -1}, "Timeout is -1ns; it cannot be negative"},
		{resilience.Config{Name: "x", Retry: retry, Bulkhead: resilience.Bulkhead{RefuseFor: -1}}, "Bulkhead.RefuseFor is -1ns"},
		{resilience.Config{Name: "x", Retry: retry, Refusal: 7}, "Refusal is 7, which is none of Defer, RetryAfter, Fail"},
		{resilience.Config{Name: "x", Breaker: resilience.Breaker{Failures: -1}}, "Breaker.Failures is -1"},
		{resilience.Config{Name: "x", Breaker: resilience.Breaker{OpenFor: time.Second}}, "Breaker is configured without Failures"},
		{resilience.Config{Name: "x", Breaker: resilience.Breaker{Failures: 3, Of: 2}}, "Breaker.Of is 2, of which there are never 3 Failures"},
		{resilience.Config{Name: "x", Breaker: resilience.Breaker{Failures: 1, Of: 2, Within: 3}}, "Breaker has Of 2 and Within 3ns; remove one of the two"},
		{resilience.Config{Name: "x", RateLimit: resilience.RateLimit{Burst: true}}, "RateLimit is configured without Messages"},
		{resilience.Config{Name: "x", RateLimit: resilience.RateLimit{Messages: 10, Per: 9}}, "RateLimit is 10 messages in 9ns, which is no limit"},
		{resilience.Config{Name: "x", Bulkhead: resilience.Bulkhead{MaxWait: 1}}, "Bulkhead is configured without Concurrency"},
		{resilience.Config{Name: "x", Retry: resilience.Retry{Delay: 1}}, "Retry is configured without Tries"},
		{resilience.Config{Name: "x", Retry: resilience.Retry{Tries: 1}}, "Retry.Tries is 1, the first try included"},
		{resilience.Config{Name: "x", Retry: resilience.Retry{Tries: 2, Factor: 0.5}}, "Retry.Factor is 0.5"},
		{resilience.Config{Name: "x", Retry: resilience.Retry{Tries: 2, Jitter: 2}}, "Retry.Jitter is 2"},
		{resilience.Config{Name: "x", Retry: resilience.Retry{Tries: 2, Delay: 3, MaxDelay: 2}}, "Retry.MaxDelay is 2ns, below Delay 3ns"},
		{resilience.Config{Name: "x", Timeout: 2, TryTimeout: 2}, "TryTimeout is 2ns, which Timeout 2ns never lets end"},
	} {
		if p, err := resilience.New(test.config); err == nil || p != nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v, want %q in it", test.config, err, test.says)
		}
	}
	_, err := resilience.New(resilience.Config{Timeout: -1, TryTimeout: -1})
	for _, text := range []string{"Name", "Timeout is", "TryTimeout is"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say all: %s", err, text)
		}
	}
}

func TestNew_Defaults(t *testing.T) {
	p, err := resilience.New(resilience.Config{Name: "x", Retry: resilience.Retry{Tries: 2, Delay: time.Minute, Jitter: core.Off}})
	if err != nil || p.State() != resilience.Closed {
		t.Errorf("%v, %v", p, err)
	}
}

func TestPerType_RefusesInvalidConfigurations(t *testing.T) {
	right := func(string) resilience.Config { return resilience.Config{TryTimeout: 1} }
	for _, test := range []struct {
		factory func(string) resilience.Config
		types   []string
		says    string
	}{
		{right, nil, "PerType was called without message types"},
		{right, []string{"a", "b", "a"}, `PerType has message type "a" twice`},
		{func(string) resilience.Config { return resilience.Config{} }, []string{"a"}, `policy "a": there is no strategy`},
	} {
		if ps, err := resilience.PerType(test.factory, test.types...); err == nil || ps != nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v, want %q in it", test.types, err, test.says)
		}
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		resilience.Defer.String() + resilience.RetryAfter.String() + resilience.Fail.String() + resilience.Refusal(9).String():                               "DeferRetryAfterFailRefusal(9)",
		resilience.Closed.String() + resilience.Open.String() + resilience.HalfOpen.String():                                                                 "closedopenhalf-open",
		resilience.StrategyBreaker.String() + resilience.StrategyRateLimit.String() + resilience.StrategyBulkhead.String() + resilience.Strategy(9).String(): "circuit breakerrate limiterbulkheadStrategy(9)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
