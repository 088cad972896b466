package core

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// refusedBecause checks that a configuration is refused with all these texts.
func refusedBecause(t *testing.T, c Config, caps Capabilities, texts ...string) {
	t.Helper()
	_, err := resolve(c, caps)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in: %v", text, err)
		}
	}
}

// Rule R10.
func TestUnsupportedSettings_AreRefused(t *testing.T) {
	able := fullCapabilities()
	undelayed, short, letterless, receiveOnly := able, able, able, able
	undelayed.DelayedDelivery = false
	short.MaxDelay = 15 * time.Minute
	letterless.DeadLetter = false
	receiveOnly.Transactions = []TransactionMode{TransactionReceiveOnly}
	for _, test := range []struct {
		name   string
		config Config
		caps   Capabilities
		says   []string // option, capability, remedy
	}{
		{
			"immediate retries in mode None",
			Config{Transactions: TransactionNone, Recoverability: Recoverability{Immediate: Immediate{NumberOfRetries: 3}, Delayed: Delayed{NumberOfRetries: Off}}}, able,
			[]string{"Recoverability.Immediate.NumberOfRetries is 3", "transaction mode is None", "set it to core.Off, or use a transaction mode above None"},
		},
		{
			"delayed retries in mode None",
			Config{Transactions: TransactionNone, Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: 2}}}, able,
			[]string{"Recoverability.Delayed asks for 2 retries", "transaction mode is None", "set Recoverability.Delayed.NumberOfRetries to core.Off"},
		},
		{
			"delayed retries without delayed delivery",
			Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: 2}}}, undelayed,
			[]string{"Recoverability.Delayed asks for 2 retries", "Capabilities.DelayedDelivery", "set Recoverability.Delayed.NumberOfRetries to core.Off"},
		},
		{
			"listed delays without delayed delivery",
			Config{Recoverability: Recoverability{Delayed: Delayed{Delays: []time.Duration{time.Second}}}}, undelayed,
			[]string{"Recoverability.Delayed asks for 1 retries", "Capabilities.DelayedDelivery"},
		},
		{
			"an increase alone, on which three default retries would be built",
			Config{Recoverability: Recoverability{Delayed: Delayed{TimeIncrease: 10 * time.Minute}}}, short,
			[]string{"Recoverability.Delayed asks for 3 retries", "longest delay would be 30m0s", "Capabilities.MaxDelay is 15m0s"},
		},
		{
			"a delay longer than the transport's",
			Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: 3, TimeIncrease: 6 * time.Minute}}}, short,
			[]string{"Recoverability.Delayed", "longest delay would be 18m0s", "Capabilities.MaxDelay is 15m0s", "choose retries that the transport can make"},
		},
		{
			"a listed delay longer than the transport's",
			Config{Recoverability: Recoverability{Delayed: Delayed{Delays: []time.Duration{16 * time.Minute, time.Second}}}}, short,
			[]string{"longest delay would be 16m0s", "Capabilities.MaxDelay"},
		},
		{
			"jitter that exceeds it",
			Config{Recoverability: Recoverability{Delayed: Delayed{Delays: []time.Duration{10 * time.Minute}, Jitter: 0.6}}}, short,
			[]string{"longest delay would be 16m0s", "Capabilities.MaxDelay"},
		},
		{
			"a delay a little longer than the transport's",
			Config{Recoverability: Recoverability{Delayed: Delayed{Delays: []time.Duration{15*time.Minute + 1}}}}, short,
			[]string{"Capabilities.MaxDelay is 15m0s"},
		},
		{
			"a requeue delay longer than the transport's",
			Config{Recoverability: Recoverability{RequeueDelay: time.Hour}}, short,
			[]string{"Recoverability.RequeueDelay is 1h0m0s", "Capabilities.MaxDelay is 15m0s", "use no more"},
		},
		{
			"a requeue delay without delayed delivery",
			Config{Recoverability: Recoverability{RequeueDelay: time.Second}}, undelayed,
			[]string{"Recoverability.RequeueDelay is 1s", "Capabilities.DelayedDelivery", "remove it"},
		},
		{
			"a requeue delay in mode None",
			Config{Transactions: TransactionNone, Recoverability: Recoverability{RequeueDelay: time.Second}}, able,
			[]string{"Recoverability.RequeueDelay is 1s", "transaction mode None", "remove it"},
		},
		{
			"retries of one message type",
			Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {Delayed: Delayed{NumberOfRetries: 1}}}}}, undelayed,
			[]string{`Recoverability.MessageTypes["order"].Delayed asks for 1 retries`, "Capabilities.DelayedDelivery", `set Recoverability.MessageTypes["order"].Delayed.NumberOfRetries to core.Off`},
		},
		{
			"dead-lettering",
			Config{Recoverability: Recoverability{DeadLetter: true}}, letterless,
			[]string{"Recoverability.DeadLetter", "Capabilities.DeadLetter", "remove it"},
		},
		{
			"a transaction mode",
			Config{Transactions: TransactionSendsAtomicWithReceive}, receiveOnly,
			[]string{"Transactions is SendsAtomicWithReceive", "the transport does not have", "it has [ReceiveOnly]"},
		},
		{
			"a transaction mode that is none",
			Config{Transactions: 99}, able,
			[]string{"Transactions is TransactionMode(99)", "it has [None ReceiveOnly SendsAtomicWithReceive]"},
		},
	} {
		t.Run(test.name, func(t *testing.T) { refusedBecause(t, test.config, test.caps, test.says...) })
	}
	t.Run("but not the largest possible value", func(t *testing.T) {
		if _, err := resolve(Config{Recoverability: Recoverability{
			RequeueDelay: 15 * time.Minute, Delayed: Delayed{Delays: []time.Duration{15 * time.Minute}},
		}}, short); err != nil {
			t.Error(err)
		}
	})
}

// Rule R10.
func TestUnsupportedSettings_DefaultsAreReduced(t *testing.T) {
	able := fullCapabilities()
	undelayed, short := able, able
	undelayed.DelayedDelivery = false
	short.MaxDelay = 20 * time.Second
	brief := able
	brief.MaxDelay = time.Millisecond
	off := map[string]TypeRecoverability{"order": {Delayed: Delayed{NumberOfRetries: Off}}}
	for _, test := range []struct {
		name               string
		config             Config
		caps               Capabilities
		immediate, delayed int
		logged             []string
	}{
		{"nothing on an able transport", Config{}, able, 5, 3, nil},
		{"both levels in mode None", Config{Transactions: TransactionNone}, able, 0, 0,
			[]string{"Recoverability.Immediate: transaction mode None", "Recoverability.Delayed: the transaction mode is None"}},
		{"the delayed level without delayed delivery", Config{}, undelayed, 5, 0,
			[]string{"Recoverability.Delayed: the transport has no delayed delivery (Capabilities.DelayedDelivery)"}},
		{"the delayed level above MaxDelay", Config{}, short, 5, 0,
			[]string{"Recoverability.Delayed: the longest delay would be 30s and the transport's Capabilities.MaxDelay is 20s"}},
		{"a level once, though message types inherit it", Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{
			"order": {HandlerTimeout: 1}, "price": {Immediate: Immediate{NumberOfRetries: 1}},
		}}}, undelayed, 5, 0, []string{"Recoverability.Delayed: the transport has no delayed delivery"}},
		{"a default requeue delay is never told of", Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: 1, TimeIncrease: time.Millisecond}}}, brief, 5, 1, nil},
		{"nothing that is off anyway", Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: Off}, MessageTypes: off}}, undelayed, 5, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := resolve(test.config, test.caps)
			if err != nil {
				t.Fatal(err)
			}
			c := r.rules.config
			if c.Immediate.MaxNumberOfRetries != test.immediate || c.Delayed.MaxNumberOfRetries != test.delayed {
				t.Errorf("immediate %d, delayed %d", c.Immediate.MaxNumberOfRetries, c.Delayed.MaxNumberOfRetries)
			}
			if len(r.reducedDefaults) != len(test.logged) {
				t.Errorf("reduced: %q", r.reducedDefaults)
			}
			var text bytes.Buffer
			r.logWarnings(slog.New(slog.NewTextHandler(&text, nil)), test.caps, []string{"order"})
			for _, line := range test.logged {
				if n := strings.Count(text.String(), `msg="default retries are off" reason="`+line); n != 1 {
					t.Errorf("%q is logged %d times: %s", line, n, text.String())
				}
			}
		})
	}
}

func TestStart_Warnings(t *testing.T) {
	counting := fullCapabilities()
	counting.NativeDeliveryCount = true
	const one = "rate limiting can be triggered by a single message"
	const many = "attempts multiply by their number"
	limit := func(n int, immediate Immediate) Config {
		return Config{Recoverability: Recoverability{Immediate: immediate, RateLimit: RateLimit{ConsecutiveFailures: n}}}
	}
	for _, test := range []struct {
		name      string
		config    Config
		caps      Capabilities
		says, not []string
	}{
		{"R40 a limit as low as the immediate retries", limit(5, Immediate{}), counting, []string{one}, []string{many}},
		{"R40 a limit above them", limit(6, Immediate{}), counting, nil, []string{one}},
		{"R40 any limit without immediate retries", limit(1, Immediate{NumberOfRetries: Off}), counting, nil, []string{one}},
		{"R40 no limit", Config{}, counting, nil, []string{one}},
		{"a transport that counts in memory", Config{}, fullCapabilities(), []string{many}, nil},
		{"but there is nothing to count", Config{Recoverability: Recoverability{Immediate: Immediate{NumberOfRetries: Off}}}, fullCapabilities(), nil, []string{many}},
		{"nor in mode None", Config{Transactions: TransactionNone}, fullCapabilities(), nil, []string{many}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := resolve(test.config, test.caps)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			r.logWarnings(slog.New(slog.NewTextHandler(&text, nil)), test.caps, []string{"order"})
			for _, line := range test.says {
				if !strings.Contains(text.String(), line) {
					t.Errorf("%q is missing in %s", line, text.String())
				}
			}
			for _, line := range test.not {
				if strings.Contains(text.String(), line) {
					t.Errorf("%q is not wanted in %s", line, text.String())
				}
			}
		})
	}
}

func TestCapabilities_Transactions(t *testing.T) {
	for _, test := range []struct {
		modes []TransactionMode
		want  TransactionMode
	}{
		{nil, TransactionDefault},
		{[]TransactionMode{TransactionNone}, TransactionNone},
		{[]TransactionMode{TransactionReceiveOnly, TransactionNone}, TransactionReceiveOnly},
		{[]TransactionMode{TransactionSendsAtomicWithReceive, TransactionNone}, TransactionSendsAtomicWithReceive},
	} {
		caps := Capabilities{Transactions: test.modes}
		if got := caps.HighestTransaction(); got != test.want {
			t.Errorf("highest of %v is %v", test.modes, got)
		}
		for mode := TransactionDefault; mode <= TransactionSendsAtomicWithReceive; mode++ {
			listed := false
			for _, m := range test.modes {
				listed = listed || m == mode
			}
			if caps.Supports(mode) != listed {
				t.Errorf("%v supports %v: %v", test.modes, mode, !listed)
			}
		}
	}
	t.Run("the default mode is the highest", func(t *testing.T) {
		r, err := resolve(Config{}, fullCapabilities())
		if err != nil || r.mode != TransactionSendsAtomicWithReceive || r.rules.mode != r.mode {
			t.Errorf("%v, %v", r.mode, err)
		}
	})
}
