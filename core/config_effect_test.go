package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// pointerCodec is used by pointer, which may be nil.
type pointerCodec struct{ contentType string }

func (c *pointerCodec) ContentType() string              { return c.contentType }
func (c *pointerCodec) Encode(any) ([]byte, error)       { return nil, nil }
func (c *pointerCodec) Decode(string, []byte, any) error { return nil }

func perType(name string, own TypeRecoverability) Config {
	return Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{name: own}}}
}

// A setting that would have no effect, or not the one that it promises, is
// refused by New with the field, the value and the way out.
func TestNew_RefusesSettingsWithoutEffect(t *testing.T) {
	undelayed, letterless := fullCapabilities(), fullCapabilities()
	undelayed.DelayedDelivery = false
	letterless.Transactions = []TransactionMode{TransactionNone}
	delayed := func(d Delayed) Config { return Config{Recoverability: Recoverability{Delayed: d}} }
	for _, test := range []struct {
		name   string
		config Config
		caps   Capabilities
		says   []string
	}{
		{"audit queue that is the error queue", Config{AuditQueue: "Error"}, fullCapabilities(), []string{`AuditQueue is "error"`, "which is Recoverability.ErrorQueue too", "name another queue"}},
		{
			"audit queue that is the error queue of a type",
			Config{AuditQueue: "bad", Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {ErrorQueue: "BAD"}}}},
			fullCapabilities(), []string{`AuditQueue is "bad"`, `which is Recoverability.MessageTypes["order"].ErrorQueue too`},
		},
		{"blank error queue", Config{Recoverability: Recoverability{ErrorQueue: " "}}, fullCapabilities(), []string{`Recoverability.ErrorQueue is " "`, "white space"}},
		{"audit queue with white space", Config{AuditQueue: "audit\n"}, fullCapabilities(), []string{`AuditQueue is "audit\n"`, "white space"}},
		{"concurrency without bounds", Config{Concurrency: 1 << 40}, fullCapabilities(), []string{"Concurrency is 1099511627776", "use at most 10000"}},
		{"an endless pause", Config{Recoverability: Recoverability{RateLimit: RateLimit{ConsecutiveFailures: 9, TimeToWait: 1000 * time.Hour}}}, fullCapabilities(), []string{"Recoverability.RateLimit.TimeToWait is 1000h0m0s", "use at most 1h0m0s"}},
		{"Off and Increase", delayed(Delayed{NumberOfRetries: Off, TimeIncrease: time.Second}), fullCapabilities(), []string{"Recoverability.Delayed has TimeIncrease, but NumberOfRetries is Off", "remove one"}},
		{"Off and the rest", delayed(Delayed{NumberOfRetries: Off, Factor: 2, Jitter: 0.5, MaxDelay: time.Hour}), fullCapabilities(), []string{"Recoverability.Delayed has Factor, MaxDelay, Jitter, but NumberOfRetries is Off"}},
		{"Off twice", delayed(Delayed{NumberOfRetries: Off, Jitter: Off}), fullCapabilities(), []string{"Recoverability.Delayed has Jitter, but NumberOfRetries is Off", "remove one"}},
		{"jitter without delayed delivery", delayed(Delayed{Jitter: Off}), undelayed, []string{"Recoverability.Delayed asks for 3 retries, but the transport has no delayed delivery"}},
		{"a wrong field beside MaxRetryAge", Config{Recoverability: Recoverability{MaxRetryAge: time.Hour, Delayed: Delayed{Factor: 0.5}}}, fullCapabilities(), []string{"Recoverability.Delayed.Factor is 0.5", "use 1 or more"}},
		{
			"a mistake that types inherit",
			Config{Recoverability: Recoverability{Delayed: Delayed{TimeIncrease: time.Minute, MaxDelay: time.Second}, MessageTypes: map[string]TypeRecoverability{"a": {Delayed: Delayed{Jitter: 0.1}}, "b": {Delayed: Delayed{Jitter: 0.1}}}}},
			fullCapabilities(), []string{"Recoverability.Delayed has MaxDelay 1s below its TimeIncrease"},
		},
		{"RequeueDelay without delayed delivery, beyond MaxDelay", Config{Recoverability: Recoverability{RequeueDelay: 100 * time.Hour}}, undelayed, []string{"Recoverability.RequeueDelay is 100h0m0s, but nothing can be deferred"}},
		{"a transaction mode that is none", Config{Transactions: -1}, fullCapabilities(), []string{"Transactions is", "which the transport does not have"}},
		{"a ceiling below the first delay", delayed(Delayed{TimeIncrease: time.Minute, MaxDelay: time.Second}), fullCapabilities(), []string{"Recoverability.Delayed has MaxDelay 1s below its TimeIncrease of 1m0s", "raise MaxDelay or lower TimeIncrease"}},
		{"a ceiling below the default increase", delayed(Delayed{MaxDelay: 5 * time.Second}), fullCapabilities(), []string{"MaxDelay 5s below its TimeIncrease of 10s"}},
		{"an empty list of delays", delayed(Delayed{Delays: []time.Duration{}}), fullCapabilities(), []string{"Recoverability.Delayed.Delays is empty", "set Recoverability.Delayed.NumberOfRetries to core.Off"}},
		{"MaxRetryAge and no delayed retries", Config{Recoverability: Recoverability{MaxRetryAge: time.Hour, Delayed: Delayed{NumberOfRetries: Off}}}, fullCapabilities(), []string{"Recoverability.MaxRetryAge is 1h0m0s", "no delayed retries", "remove it"}},
		{"MaxRetryAge in mode None", Config{Transactions: TransactionNone, Recoverability: Recoverability{MaxRetryAge: time.Hour}}, fullCapabilities(), []string{"Recoverability.MaxRetryAge is 1h0m0s"}},
		{"MaxRetryAge where None is all there is", Config{Recoverability: Recoverability{MaxRetryAge: time.Hour}}, letterless, []string{"Recoverability.MaxRetryAge is 1h0m0s"}},
		{"MaxRetryAge without delayed delivery", Config{Recoverability: Recoverability{MaxRetryAge: time.Hour}}, undelayed, []string{"Recoverability.MaxRetryAge is 1h0m0s"}},
		{"MaxRetryAge of a type without delayed retries", perType("order", TypeRecoverability{MaxRetryAge: time.Hour, Delayed: Delayed{NumberOfRetries: Off}}), fullCapabilities(), []string{`Recoverability.MessageTypes["order"].MaxRetryAge is 1h0m0s`}},
		{"RequeueLimit in mode None", Config{Transactions: TransactionNone, Recoverability: Recoverability{RequeueLimit: 3}}, fullCapabilities(), []string{"Recoverability.RequeueLimit is 3", "nothing can be deferred", "remove it"}},
		{"RequeueLimit without delayed delivery", Config{Recoverability: Recoverability{RequeueLimit: 3}}, undelayed, []string{"Recoverability.RequeueLimit is 3", "Capabilities.DelayedDelivery"}},
		{"RequeueLimit of a type without delayed delivery", perType("order", TypeRecoverability{RequeueLimit: 3}), undelayed, []string{`Recoverability.MessageTypes["order"].RequeueLimit is 3`}},
		{"RequeueDelay of a type without delayed delivery", perType("order", TypeRecoverability{RequeueDelay: 3}), undelayed, []string{`Recoverability.MessageTypes["order"].RequeueDelay is 3ns`}},
		{"MaxDeliveries in mode None", Config{Transactions: TransactionNone, Recoverability: Recoverability{MaxDeliveries: 60}}, fullCapabilities(), []string{"Recoverability.MaxDeliveries is 60", "delivered once", "remove it"}},
		{"a type without a name", perType("", TypeRecoverability{HandlerTimeout: 1}), fullCapabilities(), []string{`Recoverability.MessageTypes: "" cannot be a message type`}},
		{"two types in one", perType("a;b", TypeRecoverability{HandlerTimeout: 1}), fullCapabilities(), []string{`"a;b" cannot be a message type`, "without ';'"}},
		{"a type with white space", perType(" a", TypeRecoverability{HandlerTimeout: 1}), fullCapabilities(), []string{`" a" cannot be a message type`}},
		{"a type without settings", perType("order", TypeRecoverability{}), fullCapabilities(), []string{`Recoverability.MessageTypes["order"] has no settings`, "remove it"}},
		{"a negative timeout of a type", perType("order", TypeRecoverability{HandlerTimeout: -2}), fullCapabilities(), []string{`MessageTypes["order"].HandlerTimeout is -2ns`}},
		{"an error of a type that is nil", perType("order", TypeRecoverability{Unrecoverable: []error{nil}}), fullCapabilities(), []string{`MessageTypes["order"].Unrecoverable[0] is nil`}},
		{"an instance on two lines", Config{Instance: "a\nb"}, fullCapabilities(), []string{`Instance is "a\nb"`, "control characters"}},
		{"an instance with NUL", Config{Instance: "a\x00"}, fullCapabilities(), []string{`Instance is "a\x00"`}},
		{"a nil pointer as codec", Config{Codec: (*pointerCodec)(nil)}, fullCapabilities(), []string{"Codec is a nil *core.pointerCodec", "remove it"}},
		{"middleware that panics", Config{Middleware: []Middleware{MiddlewareFunc(func(HandlerFunc) HandlerFunc { panic("no database") })}}, fullCapabilities(), []string{"Middleware[0] panicked", "no database"}},
		{"a send middleware that panics", Config{SendMiddleware: []SendMiddleware{func(SendFunc) SendFunc { panic("no key") }}}, fullCapabilities(), []string{"SendMiddleware[0] panicked", "no key"}},
		{"a send middleware that returns nothing", Config{SendMiddleware: []SendMiddleware{func(SendFunc) SendFunc { return nil }}}, fullCapabilities(), []string{"SendMiddleware[0] returned no function"}},
		{"a send middleware that is nil", Config{SendMiddleware: []SendMiddleware{nil}}, fullCapabilities(), []string{"SendMiddleware[0] is nil", "remove it"}},
		{"ProvisionAlways without a Provisioner", Config{Provision: ProvisionAlways}, fullCapabilities(), []string{"Provision is Always", "cannot create queues", "remove it"}},
		{"QueueExpiry without a Provisioner", Config{QueueExpiry: time.Hour}, fullCapabilities(), []string{"QueueExpiry is 1h0m0s", "cannot create queues", "remove it"}},
		{"an error queue of a type that the transport refuses", perType("order", TypeRecoverability{ErrorQueue: "#"}), fullCapabilities(), []string{`Recoverability.MessageTypes["order"].ErrorQueue "#" cannot be a queue's name`}},
		{"an error queue of a type that is the input queue", perType("order", TypeRecoverability{ErrorQueue: "BILLING"}), fullCapabilities(), []string{`MessageTypes["order"].ErrorQueue is "billing"`, "own queue"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New("billing", &namedTransport{caps: test.caps}, test.config)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, text := range test.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is missing in: %v", text, err)
				}
			}
			if n := strings.Count(err.Error(), "\n"); n > 0 {
				t.Errorf("one mistake, %d errors: %v", n+1, err)
			}
		})
	}
}

// What looks like the above, and has an effect.
func TestNew_AcceptsSettingsWithAnEffect(t *testing.T) {
	undelayed := fullCapabilities()
	undelayed.DelayedDelivery = false
	policy := policyOf(MoveToError(""))
	for name, test := range map[string]struct {
		config Config
		caps   Capabilities
	}{
		"MaxRetryAge of a policy, which reads it":          {Config{Recoverability: Recoverability{MaxRetryAge: 1, Delayed: Delayed{NumberOfRetries: Off}, Policy: policy}}, fullCapabilities()},
		"MaxRetryAge that a type inherits":                 {Config{Recoverability: Recoverability{MaxRetryAge: 1, Delayed: Delayed{NumberOfRetries: Off}, MessageTypes: map[string]TypeRecoverability{"a": {Delayed: Delayed{NumberOfRetries: 1}}}}}, fullCapabilities()},
		"RequeueLimit beside Off, which Defer ignores":     {Config{Recoverability: Recoverability{RequeueLimit: 3, Delayed: Delayed{NumberOfRetries: Off}}}, fullCapabilities()},
		"MaxDeliveries beside Off, for processes that die": {Config{Recoverability: Recoverability{MaxDeliveries: 1, Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}}}, fullCapabilities()},
		"as many slots as there can be":                    {Config{Concurrency: 10_000}, fullCapabilities()},
		"Off where it is the default":                      {Config{QueueExpiry: Off, HandlerTimeout: Off, Recoverability: Recoverability{MaxRetryAge: Off, RequeueLimit: Off, Delayed: Delayed{Factor: Off, MaxDelay: Off, Jitter: Off}}}, fullCapabilities()},
		"Off where nothing can be deferred":                {Config{Recoverability: Recoverability{RequeueLimit: Off}}, undelayed},
		"one error queue of several types":                 {Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{"a": {ErrorQueue: "bad"}, "b": {ErrorQueue: "bad"}, "c": {ErrorQueue: "error"}}}}, fullCapabilities()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New("billing", &namedTransport{caps: test.caps}, test.config); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSendOnly_RefusesSettingsForReceiving(t *testing.T) {
	for field, c := range map[string]Config{
		"Concurrency":    {Concurrency: 2},
		"Transactions":   {Transactions: 99},
		"Recoverability": {Recoverability: Recoverability{RateLimit: RateLimit{ConsecutiveFailures: 1}}},
		"InputQueue":     {InputQueue: "orders"},
		"QueueExpiry":    {QueueExpiry: time.Hour},
		"AuditQueue":     {AuditQueue: "audit"},
		"Provision":      {Provision: ProvisionAlways},
		"HandlerTimeout": {HandlerTimeout: 1},
		"DrainTimeout":   {DrainTimeout: 1},
		"OutageLimit":    {OutageLimit: Off},
		"MessageID":      {MessageID: func(*Incoming) string { return "" }},
		"Middleware":     {Middleware: []Middleware{MiddlewareFunc(func(next HandlerFunc) HandlerFunc { return next })}},
	} {
		c.SendOnly = true
		if _, err := New("website", capableTransport(), c); err == nil || !strings.Contains(err.Error(), field+" is set on a send-only endpoint") {
			t.Errorf("%s: %v", field, err)
		}
	}
	recovered := func(context.Context, Recovery) {}
	_, err := New("website", capableTransport(), Config{SendOnly: true, Observers: []Observer{{Recovered: recovered}}})
	if err == nil || !strings.Contains(err.Error(), "Observers[0] has no function that a send-only endpoint calls") {
		t.Errorf("an observer that would never be called: %v", err)
	}
	ep, err := New("website", capableTransport(), Config{
		SendOnly: true, Instance: "one", Codec: &pointerCodec{"text/x"}, Observers: []Observer{{Recovered: recovered, ConnectionChanged: func(ConnectionChange) {}}, {CriticalError: func(context.Context, *Endpoint, error) {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ep.RecoverabilityConfig("order"); got.Immediate.MaxNumberOfRetries != 0 || got.Delayed.MaxNumberOfRetries != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHandleEvent_NeedsATransportWithEvents(t *testing.T) {
	transport := capableTransport()
	transport.caps.PublishSubscribe = false
	ep, err := New("billing", transport, Config{})
	if err != nil {
		t.Fatal(err)
	}
	HandleEvent(ep, placedEvent, func(context.Context, *Message, string) error { return nil })
	if err := ep.Err(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `HandleEvent "orders.placed": the transport has no events`) {
		t.Errorf("%v", err)
	}
	if err := ep.Run(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Run: %v", err)
	}
}

func TestErrorQueue_OfATypeIsProvisioned(t *testing.T) {
	ep, err := New("billing", capableTransport(), Config{AuditQueue: "audit", Recoverability: Recoverability{
		MessageTypes: map[string]TypeRecoverability{"b": {ErrorQueue: "bad.b"}, "a": {ErrorQueue: "bad.a"}, "c": {ErrorQueue: "BAD.A"}, "d": {ErrorQueue: "error"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := ep.resolved.topology().Queues; !slices.Equal(got, []string{"billing", "error", "bad.a", "bad.b", "audit"}) {
		t.Errorf("%v", got)
	}
}

func TestSetConcurrency_HasTheBoundsOfTheSetting(t *testing.T) {
	ep, err := New("billing", capableTransport(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n, fine := range map[int]bool{0: false, 1: true, 10_000: true, 10_001: false, math.MaxInt: false} {
		if err := ep.SetConcurrency(n); (err == nil) != fine {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Rule R13.
func TestSettings_OverridesMergeFieldByField(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	base := Recoverability{Immediate: Immediate{NumberOfRetries: 2}, Delayed: Delayed{NumberOfRetries: 10, TimeIncrease: m, Jitter: 0.1}}
	off := Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}}
	listed := Recoverability{Delayed: Delayed{Delays: []time.Duration{s, m}, Jitter: 0.5}}
	exponential := Recoverability{Delayed: Delayed{NumberOfRetries: 4, TimeIncrease: s, Factor: 2, MaxDelay: 3 * s, Jitter: 0.5}}
	for _, test := range []struct {
		name      string
		base      Recoverability
		own       TypeRecoverability
		immediate Immediate // in force; Retries 0 is none
		delayed   Delayed
	}{
		{"a ceiling", base, TypeRecoverability{Delayed: Delayed{MaxDelay: 5 * m}}, Immediate{NumberOfRetries: 2}, Delayed{NumberOfRetries: 10, TimeIncrease: m, MaxDelay: 5 * m, Jitter: 0.1}},
		{"retries", base, TypeRecoverability{Delayed: Delayed{NumberOfRetries: 3}}, Immediate{NumberOfRetries: 2}, Delayed{NumberOfRetries: 3, TimeIncrease: m, Jitter: 0.1}},
		{"an increase", base, TypeRecoverability{Delayed: Delayed{TimeIncrease: h}}, Immediate{NumberOfRetries: 2}, Delayed{NumberOfRetries: 10, TimeIncrease: h, Jitter: 0.1}},
		{"a factor", exponential, TypeRecoverability{Delayed: Delayed{Factor: 3}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 4, TimeIncrease: s, Factor: 3, MaxDelay: 3 * s, Jitter: 0.5}},
		{"jitter", base, TypeRecoverability{Delayed: Delayed{Jitter: 1}}, Immediate{NumberOfRetries: 2}, Delayed{NumberOfRetries: 10, TimeIncrease: m, Jitter: 1}},
		{"everything off that can be", exponential, TypeRecoverability{Delayed: Delayed{Factor: Off, MaxDelay: Off, Jitter: Off}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 4, TimeIncrease: s}},
		{"over the defaults", Recoverability{}, TypeRecoverability{Delayed: Delayed{MaxDelay: 20 * s}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 3, TimeIncrease: 10 * s, MaxDelay: 20 * s}},
		{"a list over growing delays", exponential, TypeRecoverability{Delayed: Delayed{Delays: []time.Duration{h}}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 1, TimeIncrease: 10 * s, Delays: []time.Duration{h}, Jitter: 0.5}},
		{"growing delays over a list", listed, TypeRecoverability{Delayed: Delayed{NumberOfRetries: 5, TimeIncrease: h}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 5, TimeIncrease: h, Jitter: 0.5}},
		{"jitter over a list", listed, TypeRecoverability{Delayed: Delayed{Jitter: 0.2}}, Immediate{NumberOfRetries: 5}, Delayed{NumberOfRetries: 2, TimeIncrease: 10 * s, Delays: []time.Duration{s, m}, Jitter: 0.2}},
		{"a level off", base, TypeRecoverability{Delayed: Delayed{NumberOfRetries: Off}}, Immediate{NumberOfRetries: 2}, Delayed{TimeIncrease: 10 * s}},
		{"the other level off", base, TypeRecoverability{Immediate: Immediate{NumberOfRetries: Off}}, Immediate{}, Delayed{NumberOfRetries: 10, TimeIncrease: m, Jitter: 0.1}},
		{"levels on by retries", off, TypeRecoverability{Immediate: Immediate{NumberOfRetries: 1}, Delayed: Delayed{NumberOfRetries: 7}}, Immediate{NumberOfRetries: 1}, Delayed{NumberOfRetries: 7, TimeIncrease: 10 * s}},
		{"a level on by delays", off, TypeRecoverability{Delayed: Delayed{Delays: []time.Duration{s}}}, Immediate{}, Delayed{NumberOfRetries: 1, TimeIncrease: 10 * s, Delays: []time.Duration{s}}},
		{"something else", base, TypeRecoverability{HandlerTimeout: 1}, Immediate{NumberOfRetries: 2}, Delayed{NumberOfRetries: 10, TimeIncrease: m, Jitter: 0.1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.base.MessageTypes = map[string]TypeRecoverability{"order": test.own}
			c := rulesOf(t, test.base).configFor("order")
			got := Delayed{
				NumberOfRetries: c.Delayed.MaxNumberOfRetries, TimeIncrease: c.schedule.Increase, Factor: c.schedule.Factor,
				MaxDelay: c.schedule.Ceiling, Delays: c.schedule.List, Jitter: c.schedule.Jitter,
			}
			if !reflect.DeepEqual(got, test.delayed) || c.Delayed.TimeIncrease != test.delayed.TimeIncrease {
				t.Errorf("delayed\n%+v, want\n%+v", got, test.delayed)
			}
			if c.Immediate.MaxNumberOfRetries != test.immediate.NumberOfRetries {
				t.Errorf("%d immediate, want %d", c.Immediate.MaxNumberOfRetries, test.immediate.NumberOfRetries)
			}
		})
	}
	for _, test := range []struct {
		name string
		base Recoverability
		own  Delayed
		says string
	}{
		{"a ceiling of a level that is off", off, Delayed{MaxDelay: m}, "has MaxDelay, but NumberOfRetries is Off; remove one of the two (the fields that it leaves 0 are those of Recoverability.Delayed)"},
		{"another number of listed delays", listed, Delayed{NumberOfRetries: 5}, ".NumberOfRetries is 5, but Delays lists 2; remove NumberOfRetries (the fields"},
		{"an increase beside a list", listed, Delayed{TimeIncrease: h}, "has Delays, with which TimeIncrease, Factor and MaxDelay mean nothing"},
		{"a ceiling below the inherited increase", base, Delayed{MaxDelay: s}, "has MaxDelay 1s below its TimeIncrease of 1m0s"},
		{"a factor and off", base, Delayed{NumberOfRetries: Off, Factor: 2}, "has Factor, but NumberOfRetries is Off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.base.MessageTypes = map[string]TypeRecoverability{"order": {Delayed: test.own}}
			refusedBecause(t, Config{Recoverability: test.base}, fullCapabilities(), `Recoverability.MessageTypes["order"].Delayed`, test.says)
		})
	}
}

// Rule R13.
func TestSettings_OthersOfAMessageType(t *testing.T) {
	errOwn := errors.New("of the type")
	r := rulesOf(t, Recoverability{
		ErrorQueue: "failed", MaxRetryAge: time.Hour, RequeueDelay: 2 * time.Second, RequeueLimit: 3,
		Unrecoverable: []error{errListed, ErrorOfType[codeError]()},
		MessageTypes: map[string]TypeRecoverability{
			"own": {
				ErrorQueue: "bad", MaxRetryAge: time.Minute, RequeueDelay: time.Minute, RequeueLimit: 1,
				Unrecoverable: []error{errOwn, ErrorOfType[*statusError]()},
			},
			"endless": {MaxRetryAge: Off, RequeueLimit: Off},
		},
	})
	at := func(messageType string, err error, change func(*failure)) decision {
		f := failureAfter(1, 0, err)
		f.messageType = messageType
		if change != nil {
			change(&f)
		}
		return r.decide(t.Context(), f)
	}
	aged := func(age time.Duration) func(*failure) {
		return func(f *failure) { f.ImmediateProcessingFailures, f.FirstFailure = 6, f.FailedAt.Add(-age) }
	}
	deferred := func(n int) func(*failure) { return func(f *failure) { f.deferrals = n } }
	retry := DelayedRetry(10 * time.Second)
	for _, test := range []struct {
		name        string
		messageType string
		err         error
		change      func(*failure)
		want        Action
	}{
		{"an error of a type that the endpoint names", "own", codeError{1}, nil, MoveToError("bad")},
		{"an error of a type that the type names", "own", &statusError{}, nil, MoveToError("bad")},
		{"an error of a type that another type names", "endless", &statusError{}, nil, ImmediateRetry()},
		{"the endpoint's error queue", "other", errListed, nil, MoveToError("failed")},
		{"its own error queue", "own", errListed, nil, MoveToError("bad")},
		{"its own error queue for a verdict", "own", GiveUp(errFailed), nil, MoveToError("bad")},
		{"its own error queue where an action cannot be done", "own", GiveUpTo(errFailed, ""), nil, MoveToError("bad")},
		{"the endpoint's error is no error of the type's", "other", errOwn, nil, ImmediateRetry()},
		{"its own unrecoverable error", "own", errOwn, nil, MoveToError("bad")},
		{"the endpoint's requeue delay", "other", Defer(errors.New("not yet"), 0), nil, Action{Kind: ActionDefer, Delay: 2 * time.Second}},
		{"its own requeue delay", "own", Defer(errors.New("not yet"), 0), nil, Action{Kind: ActionDefer, Delay: time.Minute}},
		{"the endpoint's requeue limit", "other", Defer(errors.New("not yet"), 1), deferred(3), MoveToError("failed")},
		{"its own requeue limit", "own", Defer(errors.New("not yet"), 1), deferred(1), MoveToError("bad")},
		{"no requeue limit", "endless", Defer(errors.New("not yet"), 1), deferred(1000), Action{Kind: ActionDefer, Delay: 1}},
		{"the endpoint's age", "other", errFailed, aged(2 * time.Hour), MoveToError("failed")},
		{"younger than it", "other", errFailed, aged(2 * time.Minute), retry},
		{"its own age", "own", errFailed, aged(2 * time.Minute), MoveToError("bad")},
		{"no age", "endless", errFailed, aged(2 * time.Hour), retry},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := at(test.messageType, test.err, test.change); got.action != test.want || got.reason.text != "" {
				t.Errorf("%+v, want %v", got, test.want)
			}
		})
	}
	t.Run("a policy sees them", func(t *testing.T) {
		for messageType, want := range map[string]time.Duration{"other": time.Hour, "own": time.Minute, "endless": 0} {
			if got := r.configFor(messageType); got.MaxRetryAge != want || (got.Failed.ErrorQueue == "bad") != (messageType == "own") {
				t.Errorf("%s: %+v", messageType, got)
			}
		}
	})
}

// New accepts the result of Endpoint.Config, with the same effect.
func TestConfig_EffectiveOneIsAFixedPoint(t *testing.T) {
	undelayed, brief := fullCapabilities(), fullCapabilities()
	undelayed.DelayedDelivery = false
	brief.MaxDelay = time.Millisecond
	types := func(own ...TypeRecoverability) map[string]TypeRecoverability {
		m := map[string]TypeRecoverability{}
		for i, each := range own {
			m[fmt.Sprint("type", i)] = each
		}
		return m
	}
	for name, test := range map[string]struct {
		config Config
		caps   Capabilities
	}{
		"defaults":            {Config{}, fullCapabilities()},
		"mode None":           {Config{Transactions: TransactionNone}, fullCapabilities()},
		"no delays":           {Config{}, undelayed},
		"delays too short":    {Config{}, brief},
		"send-only":           {Config{SendOnly: true, Instance: "one"}, fullCapabilities()},
		"off":                 {Config{DrainTimeout: Off, OutageLimit: Off, HandlerTimeout: Off, QueueExpiry: Off, Recoverability: Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}, MaxDeliveries: Off}}, fullCapabilities()},
		"retries without end": {Config{Recoverability: Recoverability{Immediate: Immediate{NumberOfRetries: math.MaxInt}}}, fullCapabilities()},
		"everything": {Config{
			Concurrency: 3, InputQueue: "orders", QueueExpiry: time.Hour, Instance: "one", AuditQueue: "audit", HandlerTimeout: time.Minute, Provision: ProvisionNever,
			Recoverability: Recoverability{
				Delayed:    Delayed{NumberOfRetries: 4, TimeIncrease: time.Second, Factor: 2, MaxDelay: time.Minute, Jitter: 0.5},
				ErrorQueue: "failed", MaxRetryAge: time.Hour, RequeueLimit: 9, RateLimit: RateLimit{ConsecutiveFailures: 20},
				MessageTypes: types(
					TypeRecoverability{Delayed: Delayed{Factor: Off, MaxDelay: Off, Jitter: Off}, MaxRetryAge: Off, RequeueLimit: Off, HandlerTimeout: Off},
					TypeRecoverability{Delayed: Delayed{Delays: []time.Duration{1, 2}}, Immediate: Immediate{NumberOfRetries: Off}, ErrorQueue: "bad"},
					TypeRecoverability{Delayed: Delayed{NumberOfRetries: Off}},
					TypeRecoverability{RequeueDelay: 5},
				),
			},
		}, fullCapabilities()},
		"a list": {Config{Recoverability: Recoverability{
			Delayed:      Delayed{Delays: []time.Duration{1, 2}, Jitter: 1},
			MessageTypes: types(TypeRecoverability{Delayed: Delayed{Jitter: Off}}, TypeRecoverability{Delayed: Delayed{NumberOfRetries: 4, TimeIncrease: 7}}),
		}}, fullCapabilities()},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := New("billing", provisioningTransport{&namedTransport{caps: test.caps}}, test.config)
			if err != nil {
				t.Fatal(err)
			}
			second, err := New("billing", provisioningTransport{&namedTransport{caps: test.caps}}, first.Config())
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(second.Config(), first.Config()) {
				t.Errorf("\n%+v becomes\n%+v", first.Config(), second.Config())
			}
			for _, messageType := range []string{"", "type0", "type1", "type2", "type3"} {
				a, b := first.rules.configFor(messageType), second.rules.configFor(messageType)
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%q\n%+v becomes\n%+v", messageType, a, b)
				}
			}
			if first.suspects.maxDeliveries != second.suspects.maxDeliveries {
				t.Errorf("MaxDeliveries %d becomes %d", first.suspects.maxDeliveries, second.suspects.maxDeliveries)
			}
		})
	}
	t.Run("shows defaults", func(t *testing.T) {
		ep, err := New("billing", capableTransport(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		want := Config{
			Concurrency: 16, Transactions: TransactionSendsAtomicWithReceive, DrainTimeout: 20 * time.Second, OutageLimit: 2 * time.Minute,
			RetryAckQueues: []string{"Particular.ServiceControl", "reprise.outcomes"},
			Recoverability: Recoverability{
				Immediate: Immediate{NumberOfRetries: 5}, Delayed: Delayed{NumberOfRetries: 3, TimeIncrease: 10 * time.Second},
				ErrorQueue: "error", RetryAfterLimit: time.Hour, MaxDeliveries: 50, RequeueDelay: time.Second,
			},
		}
		if got := ep.Config(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want\n%+v", got, want)
		}
	})
	t.Run("is a copy", func(t *testing.T) {
		types := types(TypeRecoverability{Delayed: Delayed{Delays: []time.Duration{1}}})
		ep, err := New("billing", capableTransport(), Config{Recoverability: Recoverability{MessageTypes: types}})
		if err != nil {
			t.Fatal(err)
		}
		delete(types, "type0")
		c := ep.Config()
		c.Recoverability.MessageTypes["type0"].Delayed.Delays[0] = 9
		delete(c.Recoverability.MessageTypes, "type0")
		if got := ep.Config().Recoverability.MessageTypes["type0"].Delayed.Delays; !slices.Equal(got, []time.Duration{1}) {
			t.Errorf("%v", got)
		}
	})
}
