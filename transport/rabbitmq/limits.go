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

	// brokersLimit is the default limit of a quorum queue since RabbitMQ 4.0, without an
	// argument or a policy. Before 4.0 there is no default limit.
	brokersLimit = 20

	// leastLimit is the lowest limit that is accepted, regardless of MaxDeliveries. The
	// broker also counts returns of messages that no handler has seen: returns by a pause,
	// by a shutdown, or of a message that is kept for very long. A dead-letter exchange
	// does not help: AMQP does not tell whether it exists, and a message there has no
	// reason for its failure.
	leastLimit = 1_000

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

	operators bool
}

// limit returns the policy's delivery limit, if it has one.
func (p *policy) limit() (n int, ok bool) {
	if p == nil || json.Unmarshal(p.Definition[limitKey], &n) != nil {
		return 0, false
	}
	return n, true
}

func (p *policy) String() string {
	if p.operators {
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

// mended returns the command that changes the policy's limit and nothing else of it.
func (p *policy) mended(vhost string, limit int) string {
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
	if p.operators {
		verb = "set_operator_policy"
	}
	return command("rabbitmqctl", verb, "--vhost", vhost, "--priority", fmt.Sprint(p.Priority), "--apply-to", p.ApplyTo, p.Name, p.Pattern, string(text))
}

// limitPolicy returns the policy that NServiceBus makes for an endpoint's queue.
func limitPolicy(queue string, b version) *policy {
	p := &policy{Name: "nsb." + queue + "." + limitKey, Pattern: "^" + regexp.QuoteMeta(queue) + "$", ApplyTo: "quorum_queues"}
	if !b.limits() {
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

// limited is a quorum queue with everything that sets its delivery limit.
type limited struct {
	queue, vhost string
	broker       version
	argument     *int // nil: it has none
	policies     []*policy
	wanted       int // the limit that a remedy sets
}

// bound is one of the limits of a queue. The lowest one applies.
type bound struct {
	limit int
	says  string // the source of the limit, for the error
	mend  string
}

// bounds returns all limits of the queue that have an effect. A negative limit means none
// since RabbitMQ 4.0; before 4.0, the queue drops a message at its first return.
func (l *limited) bounds() (all []bound) {
	var user *policy
	said := false
	add := func(limit int, says, mend string) {
		said = true
		if limit >= 0 || !l.broker.limits() {
			all = append(all, bound{max(limit, 0), says, mend})
		}
	}
	if l.argument != nil {
		add(*l.argument, fmt.Sprintf("its argument %s is %d", limitArgument, *l.argument), fmt.Sprintf(
			"an argument stays as it is: once the queue is empty, run %s; and create it again with Provision",
			command("rabbitmqctl", "delete_queue", "--vhost", l.vhost, l.queue))) // quorum queues do not support --if-empty
	}
	for _, p := range l.policies {
		if !p.operators {
			user = p
		}
		if n, ok := p.limit(); ok {
			add(n, fmt.Sprintf("%v says %d", p, n), "run "+p.mended(l.vhost, l.wanted))
		}
	}
	if !said && l.broker.limits() {
		if user == nil {
			user = limitPolicy(l.queue, l.broker)
		}
		all = append(all, bound{brokersLimit, fmt.Sprintf("RabbitMQ %v says %d where nothing else is said", l.broker, brokersLimit), "run " + user.mended(l.vhost, l.wanted)})
	}
	return all
}

// verdict returns an error if the queue could drop a message that is still being handled.
func (l *limited) verdict(maxDeliveries int) error {
	if maxDeliveries == anyLimit {
		return nil
	}
	lowest := noLimit
	var says, mends []string
	for _, b := range l.bounds() {
		if b.limit <= maxDeliveries || b.limit < leastLimit {
			lowest = min(lowest, b.limit)
			says, mends = append(says, b.says), append(mends, b.mend)
		}
	}
	if lowest == noLimit {
		return nil
	}
	need := fmt.Sprintf("it must be at least %d, because the broker also counts returns that are no attempts", leastLimit)
	if lowest >= leastLimit {
		need = fmt.Sprintf("the endpoint lets a message be delivered %d times (MaxDeliveries)", maxDeliveries)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q is %d (%s), but %s: the broker would drop messages that no handler has seen. To fix: %s",
		l.queue, lowest, strings.Join(says, ", "), need, strings.Join(mends, "; and ")))
}

// unverified is the error for a queue whose limit only the broker knows.
func (l *limited) unverified(why error) error {
	text := "it has no argument " + limitArgument + ", and AMQP does not tell policies"
	if why != nil {
		text = "AMQP does not tell it (" + why.Error() + ")"
	}
	if l.broker.limits() {
		text += fmt.Sprintf("; by default RabbitMQ %v drops a message after %d returns", l.broker, brokersLimit)
	}
	return transport.Permanent(fmt.Errorf("the delivery limit of the queue %q cannot be verified: %s. What mends it: set Config.ManagementURL, so that the limit can be read; "+
		"or run %s and set Config.UnverifiedDeliveryLimit", l.queue, text, limitPolicy(l.queue, l.broker).mended(l.vhost, l.wanted)))
}

// errNoVersion: the limits of the broker are unknown.
var errNoVersion = errors.New("the broker does not say its version")

// version is the version of a broker. The zero value means unknown.
type version struct{ major, minor int }

// oldest is the first version with quorum queues that dead-letter at least once, which
// delayed messages need.
var oldest = version{3, 10}

// parseBroker reads a broker's version, such as "3.10.8" or "4.1.0-rc.1".
func parseBroker(text string) (version, error) {
	var b version
	if n, _ := fmt.Sscanf(text, "%d.%d", &b.major, &b.minor); n != 2 {
		return version{}, fmt.Errorf("%w: %.40q", errNoVersion, text)
	}
	return b, nil
}

// limits reports whether quorum queues have a limit by default.
func (b version) limits() bool { return b == version{} || b.major >= 4 }

func (b version) before(other version) bool {
	return b.major < other.major || b.major == other.major && b.minor < other.minor
}

func (b version) String() string {
	if b == (version{}) {
		return "of an unknown version"
	}
	return fmt.Sprintf("%d.%d", b.major, b.minor)
}
