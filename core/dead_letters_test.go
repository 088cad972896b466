package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// terminalFailure is one way for a message to be given up. Its name is the message's id.
type terminalFailure struct {
	reason headers.Failure
	err    error // of the handler
}

var errPermanent = errors.New("hopeless")

var terminalFailures = map[string]terminalFailure{
	"rejected":      {headers.FailureRejected, core.GiveUpTo(errBoom, core.DeadLetterQueue)},
	"invalid":       {headers.FailureInvalid, fmt.Errorf("wrapped: %w", core.GiveUpTo(errBoom, core.InvalidQueue))},
	"unrecoverable": {headers.FailureUnrecoverable, core.GiveUp(errBoom)},
	"by function":   {headers.FailureUnrecoverable, errPermanent},
	"failing":       {headers.FailureRetriesExhausted, errBoom},
	"undecodable":   {headers.FailureUndecodable, nil},
	"malformed":     {headers.FailureMalformed, nil},
	"no-handler":    {headers.FailureNoHandler, nil},
	"no-type":       {headers.FailureUndecodable, nil},
	"too-often":     {headers.FailureDeliveryLimit, nil},
}

// moveAllToError runs the endpoint "orders" until it has given up one message of each
// kind.
func moveAllToError(fx *fixture, c core.Config) {
	fx.Helper()
	c.Recoverability.Immediate, c.Recoverability.Delayed = core.Immediate{NumberOfRetries: core.Off}, core.Delayed{NumberOfRetries: core.Off}
	c.Recoverability.Unrecoverable = []error{errPermanent}
	ep := fx.newEndpoint("orders", c)
	fx.handle(ep, "order", func(_ context.Context, m *core.Message) error { return terminalFailures[m.ID].err })
	core.Handle(ep, numberType, func(context.Context, *core.Message, int) error { return nil })
	if fx.broker.currentFaults().onReceive == nil {
		fx.broker.setFaults(faults{onReceive: makeUnhandleable})
	}
	fx.run(ep)
	for id := range terminalFailures {
		m := order(id)
		switch id {
		case "undecodable":
			m.Headers.Set(headers.MessageTypes, "number")
		case "no-handler":
			m.Headers.Set(headers.MessageTypes, "unknown")
		case "no-type":
			m.Headers.Del(headers.MessageTypes)
		}
		fx.send(m)
	}
	fx.advance(time.Second)
	fx.wantDepth("orders", 0)
}

func makeUnhandleable(in *core.Incoming) {
	switch in.ID {
	case "malformed":
		in.Malformed = errBoom
	case "too-often":
		in.DeliveryCount = 1000
	}
}

// messageIDs returns the ids of the messages in a queue, and checks what each tells of
// its failure.
func messageIDs(fx *fixture, queue string) (ids []string) {
	fx.Helper()
	for _, m := range fx.messages(queue) {
		ids = append(ids, m.ID)
		equal(fx, "body of "+m.ID, string(m.Body), "body of "+m.ID)
		equal(fx, "FailedQ of "+m.ID, m.Headers.Get(headers.FailedQ), "orders")
		for _, key := range []string{headers.TimeOfFailure, headers.ExceptionType, headers.ExceptionMessage, headers.ProcessingEndpoint, headers.Attempts} {
			if m.Headers.Get(key) == "" {
				fx.Errorf("%s in %s has no %s", m.ID, queue, key)
			}
		}
		want := string(terminalFailures[m.ID].reason)
		equal(fx, "reason of "+m.ID, m.Headers.Get(headers.FailureReason), want)
		if queue == inmemory.DeadLetterQueue("orders") {
			equal(fx, "the broker's reason of "+m.ID, m.Headers.Get(inmemory.HeaderDeadLetterReason), want)
			equal(fx, "the broker's description of "+m.ID, m.Headers.Get(inmemory.HeaderDeadLetterDescription), m.Headers.Get(headers.ExceptionMessage))
		}
	}
	slices.Sort(ids)
	return ids
}

// Rule R62.
func TestDeadLetters_FailedMessagesGoToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		config  core.Recoverability
		queue   string   // for dead letters
		letters []string // or all
		invalid []string
	}{
		{"rejected ones, the broker's queue", core.Recoverability{}, inmemory.DeadLetterQueue("orders"), []string{"rejected"}, nil},
		{"all, the broker's queue", core.Recoverability{DeadLetter: true}, inmemory.DeadLetterQueue("orders"), nil, nil},
		{"rejected ones, another queue", core.Recoverability{DeadLetterQueue: "dead"}, "dead", []string{"rejected"}, nil},
		{"all, another queue", core.Recoverability{DeadLetter: true, DeadLetterQueue: "dead"}, "dead", nil, nil},
		{
			"all, but for the invalid ones",
			core.Recoverability{DeadLetter: true, DeadLetterQueue: "dead", InvalidQueue: "invalid"},
			"dead", []string{"by function", "failing", "no-handler", "rejected", "too-often", "unrecoverable"}, []string{"invalid", "malformed", "no-type", "undecodable"},
		},
		{
			"rejected ones, with an invalid queue",
			core.Recoverability{InvalidQueue: "invalid"},
			inmemory.DeadLetterQueue("orders"), []string{"rejected"}, []string{"invalid", "malformed", "no-type", "undecodable"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inModes(t, allModes, func(fx *fixture) {
				var recovered recoveryRecorder
				moveAllToError(fx, core.Config{Recoverability: test.config, Observers: []core.Observer{recovered.observer()}})
				var remaining []string
				letters := test.letters
				for id := range terminalFailures {
					switch {
					case slices.Contains(test.invalid, id), slices.Contains(letters, id):
					case test.letters == nil:
						letters = append(letters, id)
					default:
						remaining = append(remaining, id)
					}
				}
				slices.Sort(letters)
				slices.Sort(remaining)
				for queue, want := range map[string][]string{test.queue: letters, "invalid": test.invalid, "error": remaining} {
					if len(want) == 0 && queue != "error" {
						continue // there may be no such queue
					}
					if got := messageIDs(fx, queue); !slices.Equal(got, want) {
						fx.Errorf("%s has %v, want %v", queue, got, want)
					}
				}
				for _, e := range recovered.all() {
					equal(fx, "reason that observers are told of "+e.Failure.Message.ID, e.Reason, terminalFailures[e.Failure.Message.ID].reason)
				}
			})
		})
	}
}

// Rule R62.
func TestDeadLetters_ReasonIsTheDeferralTooMany(t *testing.T) {
	t.Parallel()
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{DeadLetter: true, RequeueLimit: 1}}, func(context.Context, *core.Message) error {
			return core.Defer(errors.New("not yet"), time.Second)
		})
		fx.enqueue("m1")
		fx.advance(time.Minute)
		equal(fx, "reason", fx.onlyMessage(inmemory.DeadLetterQueue("orders")).Headers.Get(headers.FailureReason), string(headers.FailureRequeueLimit))
	})
}

// Rule R62.
func TestDeadLetters_QueuesThatHandlersAndPoliciesNameAreTheirs(t *testing.T) {
	t.Parallel()
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			DeadLetter: true, CustomErrorQueues: []string{"fraud"},
			Policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				if f.Message.ID == "by policy" {
					return core.MoveToError("fraud"), nil
				}
				return core.MoveToError(""), nil
			},
		}}, func(_ context.Context, m *core.Message) error {
			switch m.ID {
			case "to fraud":
				return core.GiveUpTo(errBoom, "fraud")
			case "to error":
				return core.GiveUpTo(errBoom, "error")
			}
			return errBoom
		})
		fx.enqueue("to fraud", "to error", "by policy", "left open")
		equal(fx, "fraud", len(fx.messages("fraud")), 2)
		equal(fx, "error", fx.onlyMessage("error").ID, "to error")
		equal(fx, "dead letter", fx.onlyMessage(inmemory.DeadLetterQueue("orders")).ID, "left open")
	})
}

// Rule R62.
func TestDeadLetters_ErrorQueueStandsIn(t *testing.T) {
	t.Parallel()
	native := core.Recoverability{}
	named := core.Recoverability{DeadLetterQueue: "dead"}
	ofType := core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{"order": {DeadLetterQueue: "dead"}}}
	settlementFails := func(cause error) faults {
		return faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "DeadLetter" {
				return cause
			}
			return nil
		}}
	}
	for name, test := range map[string]struct {
		config core.Recoverability
		faults faults
		log    string
	}{
		"for a queue that does not exist":        {named, refusePermanently("dead", core.ErrQueueNotFound), "does not exist"},
		"for a queue that cannot be reached":     {named, faults{send: failSendsToQueue("dead")}, "cannot be reached"},
		"for a type's queue that is away":        {ofType, faults{send: failSendsToQueue("dead")}, "cannot be reached"},
		"for a broker that does not dead-letter": {native, settlementFails(errors.ErrUnsupported), "does not dead-letter"},
		"for a broker without the queue":         {native, settlementFails(core.ErrQueueNotFound), "does not dead-letter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(test.faults)
				ep, _ := fx.runOrders(core.Config{Recoverability: test.config}, func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				equal(fx, "FailedQ", failed.Headers.Get(headers.FailedQ), "orders")
				equal(fx, "reason", failed.Headers.Get(headers.FailureReason), string(headers.FailureRejected))
				equal(fx, "cause", failed.Headers.Get(headers.ExceptionMessage), errBoom.Error())
				equal(fx, "lines", len(fx.logs.find(test.log)), 1)
				fx.wantDepth("orders", 0)
				equal(fx, "undelivered", ep.Health().Undelivered, 0)
			})
		})
	}
}

// Rule R62.
// A delayed retry that the transport refuses gives the message up as any other does.
func TestDeadLetters_RefusedDelayedRetryGoesToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config core.Recoverability
		queue  string
		reason headers.Failure
	}{
		"the broker's":  {core.Recoverability{DeadLetter: true}, inmemory.DeadLetterQueue("orders"), headers.FailureRetriesExhausted},
		"one by name":   {core.Recoverability{DeadLetter: true, DeadLetterQueue: "dead"}, "dead", headers.FailureRetriesExhausted},
		"the error one": {core.Recoverability{InvalidQueue: "invalid"}, "error", headers.FailureRetriesExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inModes(t, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
					if out[0].Delay > 0 {
						return fmt.Errorf("delay: %w", errors.ErrUnsupported)
					}
					return nil
				}})
				var recovered recoveryRecorder
				fx.runOrders(core.Config{Recoverability: test.config, Observers: []core.Observer{recovered.observer()}}, func(context.Context, *core.Message) error { return errBoom })
				fx.send(order("m1"))
				letter := fx.onlyMessage(test.queue)
				equal(fx, "reason", letter.Headers.Get(headers.FailureReason), string(test.reason))
				all := recovered.all()
				equal(fx, "reason that observers are told", all[len(all)-1].Reason, test.reason)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R62.
// An outage of the broker's own dead-letter queue is waited for, and one that stays away is
// replaced, so that nothing is lost.
func TestDeadLetters_OutageOfTheBrokersDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outage time.Duration
		queue  string
	}{
		"is waited for":          {20 * time.Second, inmemory.DeadLetterQueue("orders")},
		"does not last for ever": {time.Hour, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inModes(t, allModes, func(fx *fixture) {
				start := time.Now()
				var told recorder[string]
				fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
					if operation == "DeadLetter" && time.Since(start) < test.outage {
						return errors.New("the dead-letter queue is away")
					}
					return nil
				}})
				ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{}})
				fx.handle(ep, "order", func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
				core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, f *core.Failed) error {
					told.add(f.Queue)
					return m.Send("shipping", failedType.Of(nil))
				})
				fx.run(ep)
				fx.enqueue("m1")
				queue := test.queue
				if fx.mode == core.TransactionNone { // in which there is no other try
					queue = "error"
				}
				fx.advance(30 * time.Minute)
				equal(fx, "reason", fx.onlyMessage(queue).Headers.Get(headers.FailureReason), string(headers.FailureRejected))
				fx.wantDepth("orders", 0)
				if !slices.Equal(told.all(), []string{""}) { // once: its messages have left
					fx.Errorf("HandleFailed is told of the queues %q, want one that has no name", told.all())
				}
				ids := map[string]bool{}
				for _, m := range fx.messages("shipping") {
					ids[m.ID] = true
				}
				equal(fx, "messages of HandleFailed, by their ids", len(ids), 1)
				want := 0
				if queue == "error" {
					want = 1
				}
				equal(fx, "lines", len(fx.logs.find("does not dead-letter")), want)
			})
		})
	}
}

// Rule R62.
func TestDeadLetters_CriticalErrorOfAnUnreachableQueueNamesTheErrorQueue(t *testing.T) {
	t.Parallel()
	inModes(t, allModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: failSendsToQueue("dead")})
		var critical recorder[string]
		fx.runOrders(core.Config{
			Recoverability: core.Recoverability{DeadLetterQueue: "dead"},
			Observers:      []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err.Error()) }}},
		}, func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
		fx.enqueue("m1")
		if all := critical.all(); len(all) != 1 || !containsAll(all[0], `queue "dead" cannot be reached`, `go to the error queue "error"`) {
			fx.Errorf("critical errors %q", all)
		}
	})
}

// Rule R63.
func TestInvalidQueue_ErrorQueueStandsIn(t *testing.T) {
	t.Parallel()
	inModes(t, allModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: failSendsToQueue("invalid")})
		fx.runOrders(core.Config{Recoverability: core.Recoverability{InvalidQueue: "invalid"}}, func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.InvalidQueue) })
		fx.enqueue("m1")
		equal(fx, "reason", fx.onlyMessage("error").Headers.Get(headers.FailureReason), string(headers.FailureInvalid))
		equal(fx, "lines", len(fx.logs.find("cannot be reached")), 1)
	})
}

// Rule R25.
func TestCustomQueue_MessagesWaitForIt(t *testing.T) {
	t.Parallel()
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("fraud")
		ep, _ := fx.runOrders(core.Config{Recoverability: core.Recoverability{CustomErrorQueues: []string{"fraud"}}}, func(context.Context, *core.Message) error {
			return core.GiveUpTo(errBoom, "fraud")
		})
		fx.enqueue("m1")
		fx.advance(10 * time.Minute)
		equal(fx, "undelivered", ep.Health().Undelivered, 1)
		fx.wantDepthNow("error", 0)
		reachable()
		fx.advance(time.Minute)
		equal(fx, "id", fx.onlyMessage("fraud").ID, "m1")
	})
}

// failSendsToQueue fails the sends to a queue.
func failSendsToQueue(queue string) func([]core.Outgoing) error {
	return func(out []core.Outgoing) error {
		if sendsTo(out, queue) {
			return errors.New("cannot send to " + queue)
		}
		return nil
	}
}

// Rule R62.
func TestDeadLetters_HeadersThatTheBrokerDoesNotTakeAreLeftOut(t *testing.T) {
	t.Parallel()
	inModes(t, retryModes, func(fx *fixture) {
		var tries int
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation != "DeadLetter" {
				return nil
			}
			if tries++; tries <= 2 {
				return &core.TooLargeError{Limit: "the broker's limit of headers", Size: 2, Max: 1}
			}
			return nil
		}})
		fx.runOrders(core.Config{Recoverability: core.Recoverability{}}, func(context.Context, *core.Message) error {
			return core.GiveUpTo(errBoom, core.DeadLetterQueue)
		})
		fx.enqueue("m1")
		letter := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "the sender's header", letter.Headers.Get("Sender"), "unit \u00e9")
		equal(fx, "FailedQ", letter.Headers.Get(headers.FailedQ), "")
		equal(fx, "reason", letter.Headers.Get(inmemory.HeaderDeadLetterReason), string(headers.FailureRejected))
		equal(fx, "tries", tries, 3)
		lines := fx.logs.find("message was dead-lettered without headers", "message_id", "m1")
		if len(lines) != 1 {
			fx.Fatalf("logged %+v", lines)
		}
		left, _ := lines[0].attrs["headers_left_out"].([]string)
		if !slices.Contains(left, headers.FailedQ) || !slices.Contains(left, headers.ExceptionMessage) || slices.Contains(left, "Sender") {
			fx.Errorf("headers left out: %q", left)
		}
	})
}

// Rule R62.
func TestDeadLetters_OfATypeGoToItsQueue(t *testing.T) {
	t.Parallel()
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			DeadLetter: true, InvalidQueue: "invalid", CustomErrorQueues: []string{"spare"},
			MessageTypes: map[string]core.TypeRecoverability{"order": {DeadLetterQueue: "dead-orders", InvalidQueue: "invalid-orders"}},
		}}, func(_ context.Context, m *core.Message) error {
			if m.ID == "invalid" {
				return core.GiveUpTo(errBoom, core.InvalidQueue)
			}
			return core.GiveUp(errBoom)
		})
		fx.enqueue("invalid", "rejected")
		equal(fx, "invalid", fx.onlyMessage("invalid-orders").ID, "invalid")
		equal(fx, "dead", fx.onlyMessage("dead-orders").ID, "rejected")
		fx.wantDepthNow("spare", 0) // it was created
		fx.wantDepthNow("invalid", 0)
	})
}

// Rule R63.
func TestMalformed_PolicySeesMessages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action core.Action
		queue  string
		lines  int // about a retry that cannot be
	}{
		"moved":             {core.MoveToError(""), "invalid", 0},
		"to a queue":        {core.MoveToError("fraud"), "fraud", 0},
		"retried at once":   {core.ImmediateRetry(), "invalid", 1},
		"retried after all": {core.DelayedRetry(time.Second), "invalid", 1},
		"discarded":         {core.DiscardMessage(), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(faults{onReceive: makeUnhandleable})
				asked := 0
				fx.runOrders(core.Config{Recoverability: core.Recoverability{
					InvalidQueue: "invalid", CustomErrorQueues: []string{"fraud"},
					Policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
						asked++
						if !errors.Is(f.Err, core.ErrMalformed) {
							fx.Errorf("the policy is told of %v", f.Err)
						}
						return test.action, nil
					},
				}}, func(context.Context, *core.Message) error {
					fx.Error("a handler got it")
					return nil
				})
				fx.enqueue("malformed")
				fx.advance(time.Minute)
				equal(fx, "asked", asked, 1)
				for _, queue := range []string{"invalid", "fraud", "error"} {
					want := 0
					if queue == test.queue {
						want = 1
					}
					fx.wantDepthNow(queue, want)
				}
				equal(fx, "lines", len(fx.logs.findReason("no retry changes that")), test.lines)
			})
		})
	}
}

func TestDeadLetters_WrongConfiguration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config core.Recoverability
		want   []string
	}{
		{core.Recoverability{CustomErrorQueues: []string{core.DeadLetterQueue}}, []string{`CustomErrorQueues[0] is "reprise:dead-letter"`, "stands for a queue"}},
		{core.Recoverability{DeadLetter: true, DeadLetterQueue: "orders"}, []string{`DeadLetterQueue is "orders"`, "would never leave it"}},
		{core.Recoverability{InvalidQueue: "orders"}, []string{`InvalidQueue is "orders"`, "would never leave it"}},
		{core.Recoverability{CustomErrorQueues: []string{" "}}, []string{"CustomErrorQueues[0]", "neither is empty"}},
	} {
		_, err := core.New("orders", inmemory.Open(), core.Config{Recoverability: test.config})
		if err == nil || !containsAll(err.Error(), test.want...) {
			t.Errorf("%+v: %v, want it to say %q", test.config, err, test.want)
		}
	}
}

// Rule R63.
// Messages of unknown types can go to the invalid queue, without a retry.
func TestInvalid_MessagesOfUnknownTypes(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{InvalidQueue: "skipped"}})
		runs := 0
		core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
			runs++
			return core.GiveUpTo(errors.New("there is no handler for "+m.Type), core.InvalidQueue)
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "runs", runs, 1)
		equal(fx, "reason", fx.onlyMessage("skipped").Headers.Get(headers.FailureReason), string(headers.FailureInvalid))
	})
}
