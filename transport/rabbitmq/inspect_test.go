package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func refusal(reason string) error {
	return &amqp.Error{Code: amqp.PreconditionFailed, Reason: reason, Server: true, Recover: true}
}

// The texts are those of RabbitMQ 3.10.8 and 4.0.5.
func TestInspect_ReadDifference(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", 199)
	for _, c := range []struct {
		text, queue, vhost string
		want               argumentMismatch
		no                 bool
	}{
		{text: "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'c' in vhost '/': received 'quorum' but current is 'classic'",
			queue: "c", vhost: "/", want: argumentMismatch{name: "x-queue-type", readable: true, current: "'classic'", value: "classic"}},
		{text: "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'c' in vhost '/': received the value 'quorum' of type 'longstr' but current is none",
			queue: "c", vhost: "/", want: argumentMismatch{name: "x-queue-type", readable: true, current: "none", value: "none"}},
		{text: "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'",
			queue: "q", vhost: "/", want: argumentMismatch{name: "x-delivery-limit", readable: true, current: "the value '5' of type 'signedint'", value: "5"}},
		{text: "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost 'a'b': received 'true' but current is 'false'",
			queue: "q", vhost: "a'b", want: argumentMismatch{name: "durable", readable: true, current: "'false'", value: "false"}},
		{text: "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'odd' for queue '' in vhost '/': received '100000' but current is '5'",
			queue: "odd' for queue '", vhost: "/", want: argumentMismatch{name: "x-delivery-limit", readable: true, current: "'5'", value: "5"}},
		{text: "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received none but current is the value 'dl' of type ' x' of type 'longstr'",
			queue: "q", vhost: "/", want: argumentMismatch{name: "x-dead-letter-exchange", readable: true, current: "the value 'dl' of type ' x' of type 'longstr'", value: "dl' of type ' x", text: true}},
		{text: ("PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '" + long + "' in vhost '/': received 'quorum' but current is 'classic'")[:252] + "...",
			queue: long, vhost: "/", want: argumentMismatch{name: "x-queue-type"}},
		{text: ("PRECONDITION_FAILED - inequivalent arg 'durable' for queue '" + long[:150] + "' in vhost '/': received the value 'quorum' of type 'longstr' but current is none")[:230] + "...",
			queue: long[:150], vhost: "/", want: argumentMismatch{name: "durable"}},
		{text: "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'nope' in vhost '/' of queue type rabbit_quorum_queue",
			queue: "nope", vhost: "/", no: true},
		{text: "PRECONDITION_FAILED - something of a later version", queue: "q", vhost: "/", no: true},
	} {
		got, ok := parseMismatch(refusal(c.text), "queue", c.queue, c.vhost)
		if ok == c.no || got != c.want {
			t.Errorf("%s\n got %+v, %v\nwant %+v", c.text, got, ok, c.want)
		}
	}
	if _, ok := parseMismatch(&amqp.Error{Code: amqp.AccessRefused, Reason: "inequivalent arg 'durable' for queue 'q'", Server: true}, "queue", "q", "/"); ok {
		t.Error("an error of another kind is read")
	}
}

func TestInspect_Adopt(t *testing.T) {
	t.Parallel()
	value := func(name, value string) argumentMismatch {
		return argumentMismatch{name: name, readable: true, current: "'" + value + "'", value: value}
	}
	c := candidate{durable: true, arguments: amqp.Table{"x-delivery-limit": int64(100_000), probeArgument: "1D", "x-gone": "x"}, asText: map[string]bool{}}
	for _, step := range []struct {
		argumentMismatch
		adopted bool
		is      any
	}{
		{value("x-delivery-limit", "5"), true, int64(5)},
		{value("x-single-active-consumer", "true"), true, true},
		{value("x-dead-letter-routing-key", "5"), true, int64(5)},
		{value("x-dead-letter-routing-key", "5"), true, "5"}, // and when that was not it
		{value("x-dead-letter-routing-key", "5"), false, "5"},
		{value("x-overflow", "reject-publish"), true, "reject-publish"},
		{value("x-overflow", "reject-publish"), false, "reject-publish"},
		{argumentMismatch{name: "x-text", readable: true, current: "the value '5' of type 'longstr'", value: "5", text: true}, true, "5"},
		{argumentMismatch{name: "x-gone", readable: true, current: "none", value: "none"}, true, nil},
		{argumentMismatch{name: "x-gone", readable: true, current: "none", value: "none"}, false, nil},
		{value(probeArgument, "7D"), true, nil}, // a broker that compares it
		{argumentMismatch{name: "x-message-ttl"}, false, nil},
		{argumentMismatch{name: "x-delivery-limit"}, true, nil}, // it has another one, or none
		{argumentMismatch{name: "x-delivery-limit"}, false, nil},
	} {
		if got := c.apply(step.argumentMismatch); got != step.adopted {
			t.Errorf("adopt(%+v) = %v", step.argumentMismatch, got)
		}
		if got := c.arguments[step.name]; got != step.is {
			t.Errorf("after %+v it is %v (%T), want %v", step.argumentMismatch, got, got, step.is)
		}
	}
	if !c.apply(argumentMismatch{name: "durable"}) || !c.apply(argumentMismatch{name: "auto_delete"}) || c.durable || !c.autoDelete {
		t.Errorf("of what is one way or the other, the other one was not adopted: %+v", c)
	}
}

func TestInspect_Within(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ends := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		err := withTimeout(t.Context(), ends)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 30s") {
			t.Errorf("within = %v", err)
		}
		if got := time.Since(began); got != operationTimeout {
			t.Errorf("it took %v, want %v", got, operationTimeout)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := withTimeout(ctx, ends); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "answer") {
			t.Errorf("within = %v, want the caller's own error", err)
		}
	})
}
