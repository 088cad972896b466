package core

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/internal/errortype"
)

// namedTransport has capabilities and checks names; it is connected to nothing.
type namedTransport struct {
	Transport
	caps Capabilities
}

func (t *namedTransport) Capabilities() Capabilities { return t.caps }

func (t *namedTransport) Address(queue string) (string, error) {
	if strings.Contains(queue, "#") {
		return "", errors.New("'#' is not allowed")
	}
	return strings.ToLower(queue), nil
}

// provisioningTransport is a namedTransport that can create queues.
type provisioningTransport struct{ *namedTransport }

func (provisioningTransport) Provision(context.Context, Topology) error { return nil }

func capableTransport() *namedTransport { return &namedTransport{caps: fullCapabilities()} }

func TestNew_ReportsEveryWrongField(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		says   []string // field, value, remedy
	}{
		{"Concurrency", Config{Concurrency: -1}, []string{"Concurrency is -1", "cannot be negative (0 is the default)"}},
		{"DrainTimeout", Config{DrainTimeout: -time.Second}, []string{"DrainTimeout is -1s", "cannot be negative (0 is the default, core.Off is none)"}},
		{"QueueExpiry", Config{QueueExpiry: -time.Second}, []string{"QueueExpiry is -1s", "cannot be negative (0 is the default, core.Off is none)"}},
		{"HandlerTimeout", Config{HandlerTimeout: -time.Second}, []string{"HandlerTimeout is -1s", "cannot be negative (0 is the default, core.Off is none)"}},
		{"OutageLimit", Config{OutageLimit: -time.Second}, []string{"OutageLimit is -1s", "cannot be negative (0 is the default, core.Off is none)"}},
		{"HandlerTimeout of a type", Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {HandlerTimeout: -2}}}}, []string{`MessageTypes["order"].HandlerTimeout is -2ns`}},
		{"Provision", Config{Provision: 7}, []string{"Provision is Provisioning(7)", "ProvisionAuto, ProvisionAlways, ProvisionNever"}},
		{"Instance", Config{Instance: "a\xffb"}, []string{`Instance is "a\xffb"`, "UTF-8"}},
		{"InputQueue that the transport refuses", Config{InputQueue: "a#b"}, []string{`InputQueue "a#b" cannot be a queue's name`, "'#' is not allowed"}},
		{"InputQueue with white space", Config{InputQueue: "orders "}, []string{`InputQueue is "orders "`, "white space"}},
		{"InputQueue that is the error queue", Config{InputQueue: "ERROR"}, []string{`Recoverability.ErrorQueue is "error"`, "the endpoint's own queue"}},
		{"AuditQueue of a send-only endpoint", Config{SendOnly: true, AuditQueue: "audit"}, []string{"AuditQueue is set on a send-only endpoint", "remove it, or SendOnly"}},
		{"AuditQueue that is the input queue", Config{AuditQueue: "Billing"}, []string{`AuditQueue is "billing"`, "the endpoint's own queue"}},
		{"AuditQueue that the transport refuses", Config{AuditQueue: "a#b"}, []string{`AuditQueue "a#b" cannot be a queue's name`, "'#' is not allowed"}},
		{"Middleware", Config{Middleware: []Middleware{MiddlewareFunc(func(next HandlerFunc) HandlerFunc { return next }), nil}}, []string{"Middleware[1] is nil", "remove it"}},
		{"Middleware that returns nothing", Config{Middleware: []Middleware{MiddlewareFunc(func(HandlerFunc) HandlerFunc { return nil })}}, []string{"Middleware[0] returned no handler"}},
		{"an Observer without functions", Config{Observers: []Observer{{Recovered: func(context.Context, Recovery) {}}, {}}}, []string{"Observers[1] has no function; set one, or remove it"}},
		{"ErrorQueue that is the input queue", Config{Recoverability: Recoverability{ErrorQueue: "BILLING"}}, []string{`Recoverability.ErrorQueue is "billing"`, "the endpoint's own queue"}},
		{"ErrorQueue that the transport refuses", Config{Recoverability: Recoverability{ErrorQueue: "#"}}, []string{`Recoverability.ErrorQueue "#" cannot be a queue's name`}},
		{"MaxRetryAge", Config{Recoverability: Recoverability{MaxRetryAge: -2}}, []string{"Recoverability.MaxRetryAge is -2ns", "cannot be negative"}},
		{"RequeueDelay", Config{Recoverability: Recoverability{RequeueDelay: -1}}, []string{"Recoverability.RequeueDelay is -1ns", "cannot be negative"}},
		{"RequeueLimit", Config{Recoverability: Recoverability{RequeueLimit: -2}}, []string{"Recoverability.RequeueLimit is -2", "cannot be negative"}},
		{"UnacceptableMessageLimit", Config{Recoverability: Recoverability{UnacceptableMessageLimit: UnacceptableMessageLimit{Count: -1}}}, []string{"Recoverability.UnacceptableMessageLimit.Count is -1"}},
		{"UnacceptableMessageLimit.Window", Config{Recoverability: Recoverability{UnacceptableMessageLimit: UnacceptableMessageLimit{Count: 1, Window: -1}}}, []string{"Recoverability.UnacceptableMessageLimit.Window is -1ns"}},
		{"UnacceptableMessageLimit.Window alone", Config{Recoverability: Recoverability{UnacceptableMessageLimit: UnacceptableMessageLimit{Window: time.Minute}}}, []string{"Recoverability.UnacceptableMessageLimit.Window is 1m0s, but without Count there is no limit; set Count to 1 or more, or remove it"}},
		{"UnacceptableMessageLimit.OnReached alone", Config{Recoverability: Recoverability{UnacceptableMessageLimit: UnacceptableMessageLimit{OnReached: func(context.Context, error) {}}}}, []string{"Recoverability.UnacceptableMessageLimit.OnReached is set, but without Count there is no limit"}},
		{"R34 MaxDeliveries", Config{Recoverability: Recoverability{MaxDeliveries: -2}}, []string{"Recoverability.MaxDeliveries is -2; it cannot be negative (0 is the default, core.Off is none)"}},
		{"R34 MaxDeliveries below a round", Config{Recoverability: Recoverability{MaxDeliveries: 5}}, []string{"Recoverability.MaxDeliveries is 5", "5 immediate retries", "use more than that"}},
		{"Unrecoverable type", Config{Recoverability: Recoverability{Unrecoverable: []error{errortype.Type{Name: "*fs.PathError"}, errortype.Type{Name: "PathError"}}}}, []string{`Recoverability.Unrecoverable[1] is set for errors of the type "PathError"`, "with the package"}},
		{"Unrecoverable", Config{Recoverability: Recoverability{Unrecoverable: []error{errFailed, nil}}}, []string{"Recoverability.Unrecoverable[1] is nil", "remove it"}},
		{"R40 ConsecutiveFailures", Config{Recoverability: Recoverability{RateLimit: RateLimit{ConsecutiveFailures: -1}}}, []string{"Recoverability.RateLimit.ConsecutiveFailures is -1"}},
		{"R40 TimeToWait", Config{Recoverability: Recoverability{RateLimit: RateLimit{ConsecutiveFailures: 9, TimeToWait: -1}}}, []string{"Recoverability.RateLimit.TimeToWait is -1ns"}},
		{"R40 TimeToWait alone", Config{Recoverability: Recoverability{RateLimit: RateLimit{TimeToWait: time.Second}}}, []string{"Recoverability.RateLimit.TimeToWait is 1s, but without ConsecutiveFailures", "set ConsecutiveFailures to 1 or more"}},
		{"R40 Filter alone", Config{Recoverability: Recoverability{RateLimit: RateLimit{Filter: func(error) bool { return true }}}}, []string{"without ConsecutiveFailures"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ep, err := New("billing", capableTransport(), test.config)
			if err == nil || ep != nil {
				t.Fatalf("accepted: %v", ep)
			}
			for _, text := range append(test.says, `core: new endpoint "billing" on *core.namedTransport: `) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is missing in: %v", text, err)
				}
			}
		})
	}
}

func TestNew_ReportsAllErrorsTogether(t *testing.T) {
	_, err := New("", capableTransport(), Config{
		Concurrency: -1, DrainTimeout: -2, Provision: -1, Transactions: 9, AuditQueue: "#",
		Recoverability: Recoverability{
			Immediate: Immediate{NumberOfRetries: -2}, Delayed: Delayed{NumberOfRetries: Off, MaxDelay: 1}, RequeueLimit: -2, MaxRetryAge: -2,
			MessageTypes: map[string]TypeRecoverability{"b": {Immediate: Immediate{NumberOfRetries: -2}}, "a": {Delayed: Delayed{Factor: -2}}},
			RateLimit:    RateLimit{ConsecutiveFailures: -1},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{
		"the name \"\"", "Concurrency", "DrainTimeout", "Provision", "Transactions", "AuditQueue", "Recoverability.Immediate.NumberOfRetries",
		"Recoverability.Delayed has", "Recoverability.RequeueLimit", "Recoverability.MaxRetryAge", "ConsecutiveFailures",
		`MessageTypes["b"].Immediate.NumberOfRetries`, `MessageTypes["a"].Delayed.Factor`,
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is missing in:\n%v", field, err)
		}
	}
}

func TestNew_ChecksNameAndTransport(t *testing.T) {
	for _, test := range []struct {
		name, endpoint string
		transport      Transport
		says           string
	}{
		{"no name", "", capableTransport(), "is empty or not UTF-8"},
		{"a name that is not UTF-8", "a\xff", capableTransport(), "is empty or not UTF-8"},
		{"a name that the transport refuses", "a#b", capableTransport(), `the name "a#b" cannot be a queue's name: '#' is not allowed`},
		{"no transport", "billing", nil, "the transport is nil"},
		{"a nil pointer as transport", "billing", (*namedTransport)(nil), "the transport is nil"},
		{"a transport without transaction modes", "billing", &namedTransport{}, "lists no transaction mode in its Capabilities"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(test.endpoint, test.transport, Config{}); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want it to say %q", err, test.says)
			}
		})
	}
	t.Run("a transport whose Capabilities panics", func(t *testing.T) {
		defer func() {
			if value := recover(); value != "no config file" {
				t.Errorf("New panicked with %v", value)
			}
		}()
		_, err := New("billing", panickingTransport{}, Config{})
		t.Errorf("New returned %v", err)
	})
	t.Run("R10 the transport is named", func(t *testing.T) {
		_, err := New("billing", capableTransport(), Config{Concurrency: -1})
		if err == nil || !strings.Contains(err.Error(), "namedTransport") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a send-only endpoint needs no transaction mode", func(t *testing.T) {
		if _, err := New("billing", &namedTransport{}, Config{SendOnly: true}); err != nil {
			t.Error(err)
		}
	})
}

type panickingTransport struct{ Transport }

func (panickingTransport) Capabilities() Capabilities { panic("no config file") }

func TestConfig_Defaults(t *testing.T) {
	r, err := resolve(Config{}, fullCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	c := r.config
	if c.Concurrency != 16 || c.DrainTimeout != 20*time.Second || c.OutageLimit != 2*time.Minute || c.HandlerTimeout != 0 || c.Recoverability.ErrorQueue != "error" ||
		r.rules.config.settings.RequeueDelay != time.Second || c.Recoverability.RateLimit.TimeToWait != time.Second ||
		c.Recoverability.RateLimit.ConsecutiveFailures != 0 || r.rules.config.settings.RequeueLimit != 0 || r.maxDeliveries != 50 {
		t.Errorf("%+v", r)
	}
	t.Run("set values are kept", func(t *testing.T) {
		r, err := resolve(Config{Concurrency: 3, DrainTimeout: time.Minute, Recoverability: Recoverability{
			ErrorQueue: "failed", RequeueDelay: time.Hour, RequeueLimit: 4, RateLimit: RateLimit{ConsecutiveFailures: 6, TimeToWait: 2},
		}}, fullCapabilities())
		if err != nil {
			t.Fatal(err)
		}
		c := r.config
		if c.Concurrency != 3 || c.DrainTimeout != time.Minute || c.Recoverability.ErrorQueue != "failed" ||
			r.rules.config.settings.RequeueDelay != time.Hour || r.rules.config.settings.RequeueLimit != 4 || c.Recoverability.RateLimit.TimeToWait != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// Rule R34.
func TestMaxDeliveries_Default(t *testing.T) {
	perType := map[string]TypeRecoverability{"order": {Immediate: Immediate{NumberOfRetries: 99}}}
	for _, test := range []struct {
		name   string
		config Recoverability
		want   int
	}{
		{"50 for few immediate retries", Recoverability{Immediate: Immediate{NumberOfRetries: 11}}, 50},
		{"four rounds for more", Recoverability{Immediate: Immediate{NumberOfRetries: 12}}, 52},
		{"of the message type with the most", Recoverability{MessageTypes: perType}, 400},
		{"as configured", Recoverability{MaxDeliveries: 6}, 6},
		{"without limit when off", Recoverability{MaxDeliveries: Off}, 0},
		{"never below the retries, however many", Recoverability{Immediate: Immediate{NumberOfRetries: math.MaxInt}}, math.MaxInt},
		{"nor when four rounds of them are no number", Recoverability{Immediate: Immediate{NumberOfRetries: math.MaxInt/4 + 5}}, math.MaxInt},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := resolve(Config{Recoverability: test.config}, fullCapabilities())
			if err != nil {
				t.Fatal(err)
			}
			if r.maxDeliveries != test.want {
				t.Errorf("%d, want %d", r.maxDeliveries, test.want)
			}
		})
	}
	t.Run("a count below endless retries is refused", func(t *testing.T) {
		refusedBecause(t, Config{Recoverability: Recoverability{Immediate: Immediate{NumberOfRetries: math.MaxInt}, MaxDeliveries: 60}},
			fullCapabilities(), "MaxDeliveries is 60")
	})
}

func TestConfig_HandlerTimeout(t *testing.T) {
	const s = time.Second
	perType := map[string]TypeRecoverability{"long": {HandlerTimeout: time.Hour}, "endless": {HandlerTimeout: Off}, "other": {Immediate: Immediate{NumberOfRetries: 1}}}
	for _, test := range []struct {
		name   string
		config Config
		want   map[string]time.Duration // by message type
	}{
		{"none is the default", Config{}, map[string]time.Duration{"": 0, "order": 0}},
		{"of the endpoint", Config{HandlerTimeout: s}, map[string]time.Duration{"": s, "order": s}},
		{"of some types", Config{Recoverability: Recoverability{MessageTypes: perType}}, map[string]time.Duration{"": 0, "long": time.Hour, "endless": 0, "other": 0}},
		{"of both", Config{HandlerTimeout: s, Recoverability: Recoverability{MessageTypes: perType}}, map[string]time.Duration{"": s, "long": time.Hour, "endless": 0, "other": s}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := resolve(test.config, fullCapabilities())
			if err != nil {
				t.Fatal(err)
			}
			for messageType, want := range test.want {
				if got := r.rules.handlerTimeout(messageType); got != want {
					t.Errorf("%q: %v, want %v", messageType, got, want)
				}
			}
		})
	}
}
