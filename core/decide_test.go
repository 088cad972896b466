package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

var (
	errFailed = errors.New("handler failed")
	day       = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// fullCapabilities can do everything that recoverability needs.
func fullCapabilities() Capabilities {
	return Capabilities{
		Transactions: []TransactionMode{TransactionNone, TransactionReceiveOnly, TransactionSendsAtomicWithReceive},
		Abilities:    Abilities{DelayedDelivery: true, PublishSubscribe: true, DeadLetter: true},
	}
}

// rulesOf returns the rules that New makes of a configuration on a transport with all capabilities.
func rulesOf(t *testing.T, c Recoverability) *rules {
	t.Helper()
	r, err := resolve(Config{Recoverability: c}, fullCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	return &r.rules
}

// unsettledDelivery is a delivery that is not settled.
type unsettledDelivery struct {
	Delivery
	in *Incoming
}

func (d unsettledDelivery) Incoming() *Incoming { return d.in }

// failureOf describes a failed delivery the way the engine does.
func failureOf(in *Incoming, messageType string, err error, at time.Time) failure {
	r := &rules{ownAddress: "input"}
	a := &attempt{delivery: unsettledDelivery{in: in}, message: Message{selected: selection{messageType: messageType}}}
	f := r.describe(a, err)
	f.FailedAt, f.Message = at, a.failedMessage(in)
	return *f
}

// failureAfter is a failure that was delivered n times in this round, after some
// delayed retries.
func failureAfter(deliveries, delayed int, err error) failure {
	return failure{messageID: "m1", messageType: "order", ErrorContext: ErrorContext{
		Err: err, ReceiveQueue: "input", FailedAt: day,
		ImmediateProcessingFailures: deliveries, DelayedDeliveriesPerformed: delayed,
	}}
}

// decisionsUntilMoved lets a message fail until it is given up and returns what was
// decided after each attempt.
func decisionsUntilMoved(t *testing.T, r *rules, err error) []Action {
	t.Helper()
	in, now := &Incoming{ID: "m1", DeliveryCount: 1}, day
	var actions []Action
	for range 10_000 {
		f := failureOf(in, "order", err, now)
		d := r.decide(t.Context(), f)
		actions = append(actions, d.action)
		switch d.action.Kind {
		case ActionImmediateRetry:
			copied := *in
			copied.DeliveryCount++
			in = &copied
		case ActionDelayedRetry:
			in = &Incoming{ID: in.ID, Headers: copyForRetry(&f, d.action), DeliveryCount: 1}
			now = now.Add(d.action.Delay)
		default:
			return actions
		}
	}
	t.Fatal("the message is never given up")
	return nil
}

// Rule R1.
func TestAttempts_TotalOfBothKindsOfRetries(t *testing.T) {
	for _, row := range []struct{ immediate, delayed, attempts int }{
		{0, 0, 1}, {1, 0, 2}, {2, 0, 3}, {3, 0, 4},
		{0, 1, 2}, {1, 1, 4}, {2, 1, 6}, {3, 1, 8},
		{1, 2, 6}, {2, 2, 9}, {1, 3, 8}, {5, 3, 24},
	} {
		t.Run(fmt.Sprintf("%d immediate and %d delayed are %d attempts", row.immediate, row.delayed, row.attempts), func(t *testing.T) {
			actions := decisionsUntilMoved(t, rulesOf(t, Recoverability{
				Immediate: Immediate{NumberOfRetries: cmp.Or(row.immediate, Off)},
				Delayed:   Delayed{NumberOfRetries: cmp.Or(row.delayed, Off)},
			}), errFailed)
			if len(actions) != row.attempts {
				t.Errorf("%d attempts, want %d: %v", len(actions), row.attempts, actions)
			}
		})
	}
	t.Run("the defaults are 24 attempts", func(t *testing.T) {
		if actions := decisionsUntilMoved(t, rulesOf(t, Recoverability{}), errFailed); len(actions) != 24 {
			t.Errorf("%d attempts: %v", len(actions), actions)
		}
	})
}

// Rule R2.
func TestImmediateRetries_FollowTheDeliveryCount(t *testing.T) {
	r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: 2}})
	for _, test := range []struct {
		name      string
		count     int
		immediate bool
	}{
		{"the first failure counts as one", 1, true},
		{"as many failures as retries still retry", 2, true},
		{"one more does not", 3, false},
		{"nor do many more", 1000, false},
		{"an adapter that does not count is at its first delivery", 0, true},
		{"nonsense is too", -5, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := failureOf(&Incoming{ID: "m1", DeliveryCount: test.count}, "order", errFailed, day)
			if got := r.decide(t.Context(), f).action.Kind == ActionImmediateRetry; got != test.immediate {
				t.Errorf("immediate retry: %v, want %v", got, test.immediate)
			}
			if f.ImmediateProcessingFailures != max(test.count, 1) {
				t.Errorf("ImmediateProcessingFailures = %d", f.ImmediateProcessingFailures)
			}
		})
	}
}

// Rule R3.
func TestDelayedRetries_FollowTheImmediateOnes(t *testing.T) {
	r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: 3}})
	for _, test := range []struct {
		name    string
		retries string // the header; "-" is none
		delayed bool
	}{
		{"none performed", "-", true},
		{"one less than configured", "2", true},
		{"as many as configured are enough", "3", false},
		{"more than configured are enough", "4", false},
		{"a header that is no number counts as none", "many", true},
		{"a negative one too", "-1", true},
		{"an empty one too", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h Headers
			if test.retries != "-" {
				h.Set(headers.Retries, test.retries)
			}
			d := r.decide(t.Context(), failureOf(&Incoming{ID: "m1", Headers: h, DeliveryCount: 1}, "order", errFailed, day))
			if got := d.action.Kind == ActionDelayedRetry; got != test.delayed {
				t.Errorf("%v, want a delayed retry: %v", d.action, test.delayed)
			}
		})
	}
	t.Run("each round begins with all immediate retries", func(t *testing.T) {
		i, e := ImmediateRetry(), MoveToError("error")
		want := []Action{i, i, DelayedRetry(time.Second), i, i, DelayedRetry(2 * time.Second), i, i, e}
		got := decisionsUntilMoved(t, rulesOf(t, Recoverability{
			Immediate: Immediate{NumberOfRetries: 2}, Delayed: Delayed{NumberOfRetries: 2, TimeIncrease: time.Second},
		}), errFailed)
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// Rule R4.
func TestDelayedRetry_DelaysGrow(t *testing.T) {
	for _, test := range []struct {
		name    string
		delayed Delayed
		want    []time.Duration
	}{
		{"10, 20 and 30 s by default", Delayed{}, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}},
		{"by the configured increase", Delayed{NumberOfRetries: 2, TimeIncrease: 2 * time.Second}, []time.Duration{2 * time.Second, 4 * time.Second}},
		{"an increase alone keeps three retries", Delayed{TimeIncrease: time.Minute}, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := delaysOf(t, Recoverability{Delayed: test.delayed}); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// delaysOf returns the delays that a message goes through.
func delaysOf(t *testing.T, c Recoverability) []time.Duration {
	t.Helper()
	c.Immediate = Immediate{NumberOfRetries: Off}
	var delays []time.Duration
	for _, a := range decisionsUntilMoved(t, rulesOf(t, c), errFailed) {
		if a.Kind == ActionDelayedRetry {
			delays = append(delays, a.Delay)
		}
	}
	return delays
}

type codeError struct{ code int }

func (e codeError) Error() string { return fmt.Sprint("code ", e.code) }

type statusError struct{}

func (*statusError) Error() string { return "status" }

// Rule R6.
func TestUnrecoverable_FailuresAreNotRetried(t *testing.T) {
	listed := errors.New("listed")
	r := rulesOf(t, Recoverability{
		Unrecoverable: []error{listed, ErrNoHandler, ErrorOfType[*statusError](), ErrorOfType[*fs.PathError](), ErrorOfType[net.Error]()},
	})
	sources := []struct {
		name  string
		err   error
		moved bool
	}{
		{"a body that cannot be decoded", newDecodeError("order", "x/y", errFailed, ""), true},
		{"a message that cannot be parsed", fmt.Errorf("%w: %w", ErrMalformed, errFailed), true},
		{"a listed error", listed, true},
		{"no handler, where listed", fmt.Errorf("%w: %q", ErrNoHandler, "order"), true},
		{"an error that implements an interface", &net.DNSError{}, true},
		{"the verdict Unrecoverable", GiveUp(errFailed), true},
		{"an error of a type that is named", &statusError{}, true},
		{"an error that wraps one of another package", &fs.PathError{Err: errFailed}, true},
		{"an error of a type that is almost named", &os.LinkError{Err: errFailed}, false},
		{"an error of another type", codeError{5}, false},
		{"any other error", errFailed, false},
		{"one that only reads the same", errors.New("listed"), false},
	}
	wrappings := []struct {
		name string
		wrap func(error) error
	}{
		{"as it is", func(err error) error { return err }},
		{"wrapped", func(err error) error { return fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", err)) }},
		{"joined", func(err error) error { return errors.Join(errors.New("first"), err) }},
		{"the cause of a panic", func(err error) error { return &PanicError{Value: err} }},
	}
	for _, source := range sources {
		for _, wrapping := range wrappings {
			t.Run(source.name+", "+wrapping.name, func(t *testing.T) {
				d := r.decide(t.Context(), failureAfter(1, 0, wrapping.wrap(source.err)))
				want := ImmediateRetry()
				if source.moved {
					want = MoveToError("error")
				}
				if d.action != want {
					t.Errorf("%v, want %v", d.action, want)
				}
			})
		}
	}
	t.Run("a missing handler is an ordinary failure by default", func(t *testing.T) {
		d := rulesOf(t, Recoverability{}).decide(t.Context(), failureAfter(1, 0, ErrNoHandler))
		if d.action != ImmediateRetry() {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("IsUnrecoverable tells a custom policy the same", func(t *testing.T) {
		for _, source := range sources {
			if got := r.config.IsUnrecoverable(source.err); got != source.moved {
				t.Errorf("%s: %v", source.name, got)
			}
		}
	})
	t.Run("a message that was delivered too often is not shown to the policy", func(t *testing.T) {
		r := rulesOf(t, Recoverability{Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
			t.Error("the policy was called")
			return ImmediateRetry(), nil
		}})
		for _, err := range []error{fmt.Errorf("%w: 51", ErrDeliveryCountExceeded)} {
			if d := r.decide(t.Context(), failureAfter(1, 0, err)); d.action != MoveToError("error") {
				t.Errorf("%v: %v", err, d.action)
			}
		}
	})
}

// Rule R7.
func TestPolicy_EveryAction(t *testing.T) {
	for _, want := range []Action{
		ImmediateRetry(), DelayedRetry(0), DelayedRetry(time.Minute), MoveToError("elsewhere"), DiscardMessage(),
	} {
		t.Run(want.String(), func(t *testing.T) {
			r := rulesOf(t, Recoverability{Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { return want, nil }})
			d := r.decide(t.Context(), failureAfter(1, 0, errFailed))
			if d.action != want || d.reason.text != "" || d.reason.cause != nil || d.limit != limitFailure {
				t.Errorf("%+v", d)
			}
		})
	}
	t.Run("MoveToError without a queue is the default error queue", func(t *testing.T) {
		r := rulesOf(t, Recoverability{ErrorQueue: "failed", Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
			return MoveToError(""), nil
		}})
		if d := r.decide(t.Context(), failureAfter(1, 0, errFailed)); d.action != MoveToError("failed") {
			t.Errorf("%v", d.action)
		}
	})
}

func TestAction_String(t *testing.T) {
	for _, test := range []struct {
		action Action
		want   string
	}{
		{Action{}, "None"},
		{ImmediateRetry(), "ImmediateRetry"},
		{DelayedRetry(1500 * time.Millisecond), "DelayedRetry(1.5s)"},
		{MoveToError("e"), `MoveToError("e")`},
		{DiscardMessage(), "Discard"},
		{Action{Kind: ActionDefer, Delay: time.Second}, "Defer(1s)"},
		{Action{Kind: ActionRefuse, Delay: time.Second}, "Refuse(1s)"},
		{Action{Kind: ActionPutBack}, "PutBack(0s)"},
		{Action{Kind: 77}, "ActionKind(77)"},
	} {
		if got := test.action.String(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	for kind, want := range map[ActionKind]string{ActionDelayedRetry: "DelayedRetry", ActionMoveToError: "MoveToError", ActionDiscard: "Discard"} {
		if kind.String() != want {
			t.Errorf("%q, want %q", kind.String(), want)
		}
	}
}
