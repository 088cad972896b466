// Package deliverylimit decides whether the delivery limit of a quorum queue suffices: after
// that many returns of a message, the broker drops or dead-letters it.
package deliverylimit

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/version"
)

const (
	// Default is the limit of queues that the transport creates, and NServiceBus's.
	Default = 100_000

	// Min is the lowest limit that is accepted, regardless of MaxDeliveries. The broker also
	// counts returns of messages that no handler has seen: returns by a pause, by a
	// shutdown, or of a message that is kept for very long. A dead-letter exchange does not
	// help: AMQP does not tell whether it exists, and a message there has no reason for its
	// failure.
	Min = 1_000

	// none: the queue returns a message any number of times.
	none = math.MaxInt

	// brokerDefault is the default limit of a quorum queue since RabbitMQ 4.0, without an
	// argument or a policy. Before 4.0 there is no default limit.
	brokerDefault = 20

	// AnyLimit stands for an unknown MaxDeliveries: no limit is too low.
	AnyLimit = -1
)

// Key is the name of the delivery limit in policies. The queue's argument is the same with
// "x-" before it.
const (
	Key      = "delivery-limit"
	Argument = "x-" + Key
)

// Queue is a quorum queue with everything that sets its delivery limit.
type Queue struct {
	Name, VHost string
	Broker      version.Broker
	Argument    *int // the limit in its arguments; nil: none
	Policies    []*Policy
	Wanted      int // the limit that a remedy sets
}

// source is one of the limits of a queue. The lowest one applies.
type source struct {
	limit       int
	description string // the source of the limit, for the error
	fix         string
}

// sources returns all limits of the queue that have an effect. A negative limit means none
// since RabbitMQ 4.0; before 4.0, the queue drops a message at its first return.
func (q *Queue) sources() (all []source) {
	var user *Policy
	found := false
	add := func(limit int, description, fix string) {
		found = true
		if limit >= 0 || !q.Broker.HasDefaultLimit() {
			all = append(all, source{max(limit, 0), description, fix})
		}
	}
	if q.Argument != nil {
		add(*q.Argument, fmt.Sprintf("its argument %s is %d", Argument, *q.Argument), fmt.Sprintf(
			"an argument stays as it is: once the queue is empty, run %s; and create it again with Provision",
			command("rabbitmqctl", "delete_queue", "--vhost", q.VHost, q.Name))) // quorum queues do not support --if-empty
	}
	for _, p := range q.Policies {
		if !p.IsOperator {
			user = p
		}
		if n, ok := p.Limit(); ok {
			add(n, fmt.Sprintf("%v says %d", p, n), "run "+p.FixCommand(q.VHost, q.Wanted))
		}
	}
	if !found && q.Broker.HasDefaultLimit() {
		if user == nil {
			user = NewPolicy(q.Name, q.Broker)
		}
		all = append(all, source{brokerDefault, fmt.Sprintf("RabbitMQ %v says %d where nothing else is said", q.Broker, brokerDefault), "run " + user.FixCommand(q.VHost, q.Wanted)})
	}
	return all
}

// Check returns an error if the queue could drop a message that is still being handled.
func (q *Queue) Check(maxDeliveries int) error {
	if maxDeliveries == AnyLimit {
		return nil
	}
	lowest := none
	var descriptions, fixes []string
	for _, s := range q.sources() {
		if s.limit <= maxDeliveries || s.limit < Min {
			lowest = min(lowest, s.limit)
			descriptions, fixes = append(descriptions, s.description), append(fixes, s.fix)
		}
	}
	if lowest == none {
		return nil
	}
	need := fmt.Sprintf("it must be at least %d, because the broker also counts returns that are no attempts", Min)
	if lowest >= Min {
		need = fmt.Sprintf("the endpoint lets a message be delivered %d times (MaxDeliveries)", maxDeliveries)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q is %d (%s), but %s: the broker would drop messages that no handler has seen. To fix: %s",
		q.Name, lowest, strings.Join(descriptions, ", "), need, strings.Join(fixes, "; and ")))
}

// Unverified is the error for a queue whose limit only the broker knows.
func (q *Queue) Unverified(why error) error {
	text := "it has no argument " + Argument + ", and AMQP does not tell policies"
	if why != nil {
		text = "AMQP does not tell it (" + why.Error() + ")"
	}
	if q.Broker.HasDefaultLimit() {
		text += fmt.Sprintf("; by default RabbitMQ %v drops a message after %d returns", q.Broker, brokerDefault)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q cannot be verified: %s; to fix: set Config.ManagementURL, so that the limit can be read; "+
		"or run %s and set Config.UnverifiedDeliveryLimit", q.Name, text, NewPolicy(q.Name, q.Broker).FixCommand(q.VHost, q.Wanted)))
}
