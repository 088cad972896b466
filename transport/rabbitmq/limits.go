package rabbitmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"

	"github.com/reprise-go/reprise/transport"
)

const (
	// noLimit: the queue returns a message any number of times.
	noLimit = math.MaxInt

	// brokerDefaultLimit is the default limit of a quorum queue since RabbitMQ 4.0, without
	// an argument or a policy. Before 4.0 there is no default limit.
	brokerDefaultLimit = 20

	// minLimit is the lowest limit that is accepted, regardless of MaxDeliveries. The
	// broker also counts returns of messages that no handler has seen: returns by a pause,
	// by a shutdown, or of a message that is kept for very long. A dead-letter exchange
	// does not help: AMQP does not tell whether it exists, and a message there has no
	// reason for its failure.
	minLimit = 1_000

	// anyLimit stands for an unknown MaxDeliveries: no limit is too low.
	anyLimit = -1
)

// limitKey is the name of the delivery limit in policies. The queue's argument is the same
// with "x-" before it.
const (
	limitKey      = "delivery-limit"
	limitArgument = "x-" + limitKey
)

// policy is a policy, or an operator's policy, as the management API shows it.
type policy struct {
	Name       string                     `json:"name"`
	Pattern    string                     `json:"pattern"`
	ApplyTo    string                     `json:"apply-to"`
	Priority   int                        `json:"priority"`
	Definition map[string]json.RawMessage `json:"definition"`

	isOperator bool
}

// limit returns the policy's delivery limit, if it has one.
func (p *policy) limit() (n int, ok bool) {
	if p == nil || json.Unmarshal(p.Definition[limitKey], &n) != nil {
		return 0, false
	}
	return n, true
}

func (p *policy) String() string {
	if p.isOperator {
		return fmt.Sprintf("the operator policy %q", p.Name)
	}
	return fmt.Sprintf("the policy %q", p.Name)
}

// appliesTo reports whether the policy applies to a queue. A pattern that only the broker's
// regular expressions can parse counts as matching, to be on the safe side.
func (p *policy) appliesTo(queue string, kind QueueType) bool {
	switch p.ApplyTo {
	case "all", "queues", kind.argument() + "_queues":
	default:
		return false
	}
	pattern, err := regexp.Compile(p.Pattern)
	return err != nil || pattern.MatchString(queue)
}

// fixCommand returns the command that changes the policy's limit and nothing else of it.
func (p *policy) fixCommand(vhost string, limit int) string {
	definition := maps.Clone(p.Definition)
	if definition == nil {
		definition = map[string]json.RawMessage{}
	}
	definition[limitKey] = fmt.Appendf(nil, "%d", limit)
	text, err := json.Marshal(definition)
	if err != nil {
		panic(err) // it was read from JSON
	}
	verb := "set_policy"
	if p.isOperator {
		verb = "set_operator_policy"
	}
	return command("rabbitmqctl", verb, "--vhost", vhost, "--priority", fmt.Sprint(p.Priority), "--apply-to", p.ApplyTo, p.Name, p.Pattern, string(text))
}

// limitPolicy returns the policy that NServiceBus makes for an endpoint's queue.
func limitPolicy(queue string, v version) *policy {
	p := &policy{Name: "nsb." + queue + "." + limitKey, Pattern: "^" + regexp.QuoteMeta(queue) + "$", ApplyTo: "quorum_queues"}
	if !v.hasDefaultLimit() {
		p.ApplyTo = "queues" // older brokers do not know quorum_queues
	}
	return p
}

// command returns a command line for a shell.
func command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if word == "" || strings.ContainsFunc(word, func(c rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+", c)
		}) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted[i] = word
	}
	return strings.Join(quoted, " ")
}

// limitCheck is a quorum queue with everything that sets its delivery limit.
type limitCheck struct {
	queue, vhost string
	broker       version
	argument     *int // nil: it has none
	policies     []*policy
	wanted       int // the limit that a remedy sets
}

// limitSource is one of the limits of a queue. The lowest one applies.
type limitSource struct {
	limit       int
	description string // the source of the limit, for the error
	fix         string
}

// sources returns all limits of the queue that have an effect. A negative limit means none
// since RabbitMQ 4.0; before 4.0, the queue drops a message at its first return.
func (c *limitCheck) sources() (all []limitSource) {
	var user *policy
	found := false
	add := func(limit int, description, fix string) {
		found = true
		if limit >= 0 || !c.broker.hasDefaultLimit() {
			all = append(all, limitSource{max(limit, 0), description, fix})
		}
	}
	if c.argument != nil {
		add(*c.argument, fmt.Sprintf("its argument %s is %d", limitArgument, *c.argument), fmt.Sprintf(
			"an argument stays as it is: once the queue is empty, run %s; and create it again with Provision",
			command("rabbitmqctl", "delete_queue", "--vhost", c.vhost, c.queue))) // quorum queues do not support --if-empty
	}
	for _, p := range c.policies {
		if !p.isOperator {
			user = p
		}
		if n, ok := p.limit(); ok {
			add(n, fmt.Sprintf("%v says %d", p, n), "run "+p.fixCommand(c.vhost, c.wanted))
		}
	}
	if !found && c.broker.hasDefaultLimit() {
		if user == nil {
			user = limitPolicy(c.queue, c.broker)
		}
		all = append(all, limitSource{brokerDefaultLimit, fmt.Sprintf("RabbitMQ %v says %d where nothing else is said", c.broker, brokerDefaultLimit), "run " + user.fixCommand(c.vhost, c.wanted)})
	}
	return all
}

// check returns an error if the queue could drop a message that is still being handled.
func (c *limitCheck) check(maxDeliveries int) error {
	if maxDeliveries == anyLimit {
		return nil
	}
	lowest := noLimit
	var descriptions, fixes []string
	for _, s := range c.sources() {
		if s.limit <= maxDeliveries || s.limit < minLimit {
			lowest = min(lowest, s.limit)
			descriptions, fixes = append(descriptions, s.description), append(fixes, s.fix)
		}
	}
	if lowest == noLimit {
		return nil
	}
	need := fmt.Sprintf("it must be at least %d, because the broker also counts returns that are no attempts", minLimit)
	if lowest >= minLimit {
		need = fmt.Sprintf("the endpoint lets a message be delivered %d times (MaxDeliveries)", maxDeliveries)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q is %d (%s), but %s: the broker would drop messages that no handler has seen. To fix: %s",
		c.queue, lowest, strings.Join(descriptions, ", "), need, strings.Join(fixes, "; and ")))
}

// unverified is the error for a queue whose limit only the broker knows.
func (c *limitCheck) unverified(why error) error {
	text := "it has no argument " + limitArgument + ", and AMQP does not tell policies"
	if why != nil {
		text = "AMQP does not tell it (" + why.Error() + ")"
	}
	if c.broker.hasDefaultLimit() {
		text += fmt.Sprintf("; by default RabbitMQ %v drops a message after %d returns", c.broker, brokerDefaultLimit)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q cannot be verified: %s; to fix: set Config.ManagementURL, so that the limit can be read; "+
		"or run %s and set Config.UnverifiedDeliveryLimit", c.queue, text, limitPolicy(c.queue, c.broker).fixCommand(c.vhost, c.wanted)))
}

// errNoVersion: the limits of the broker are unknown.
var errNoVersion = errors.New("the broker does not say its version")

// version is the version of a broker. The zero value means unknown.
type version struct{ major, minor int }

// minVersion is the first version with quorum queues that dead-letter at least once, which
// delayed messages need.
var minVersion = version{3, 10}

// parseVersion reads a broker's version, such as "3.10.8" or "4.1.0-rc.1".
func parseVersion(text string) (version, error) {
	var v version
	if n, _ := fmt.Sscanf(text, "%d.%d", &v.major, &v.minor); n != 2 {
		return version{}, fmt.Errorf("%w: %.40q", errNoVersion, text)
	}
	return v, nil
}

// hasDefaultLimit reports whether quorum queues have a limit by default.
func (v version) hasDefaultLimit() bool { return v == version{} || v.major >= 4 }

func (v version) before(other version) bool {
	return v.major < other.major || v.major == other.major && v.minor < other.minor
}

func (v version) String() string {
	if v == (version{}) {
		return "of an unknown version"
	}
	return fmt.Sprintf("%d.%d", v.major, v.minor)
}
