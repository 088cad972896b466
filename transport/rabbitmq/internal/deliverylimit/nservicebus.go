package deliverylimit

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-go/reprise/transport"
)

// State is the state of the delivery limit of a queue in the topology of NServiceBus.
type State int

const (
	InForce   State = iota // 100,000, which NServiceBus demands
	NotNeeded              // the broker has none by default
	Missing                // the policy has to be made
)

// CheckAsNServiceBus applies the rule that NServiceBus applies at its start: the limit in
// force must be exactly 100,000, from any source; if there is no limit, NServiceBus makes a
// policy, from RabbitMQ 4.0 on. The error says why NServiceBus would not start.
func (q *Queue) CheckAsNServiceBus() (State, error) {
	if !q.Broker.HasDefaultLimit() {
		return NotNeeded, nil
	}
	lowest := math.MaxInt
	var descriptions, fixes []string
	var user *Policy
	set := func(limit int, source, fix string) {
		lowest = min(lowest, limit)
		if limit != Default {
			descriptions, fixes = append(descriptions, fmt.Sprintf("%s %d", source, limit)), append(fixes, fix)
		}
	}
	if q.Argument != nil {
		set(*q.Argument, "its argument "+Argument+" is", "move its messages to a queue without the argument (docs/transports/rabbitmq.md, \"Queues that Reprise made before\")")
	}
	for _, p := range q.Policies {
		if !p.IsOperator {
			user = p
		}
		if n, ok := p.Limit(); ok {
			set(n, fmt.Sprintf("%v says", p), "run "+p.FixCommand(q.VHost, Default))
		}
	}
	switch {
	case lowest == Default:
		return InForce, nil
	case lowest != math.MaxInt:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, which does not start with another one, but %s. To fix: %s",
			q.Name, Default, strings.Join(descriptions, ", "), strings.Join(fixes, "; and ")))
	case user != nil:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, but %v applies to it, which says none, and a queue has one policy at most. To fix: run %s",
			q.Name, Default, user, user.FixCommand(q.VHost, Default)))
	}
	return Missing, nil
}
