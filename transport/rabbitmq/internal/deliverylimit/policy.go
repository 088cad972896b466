package deliverylimit

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/version"
)

// Policy is a policy, or an operator's policy, as the management API shows it.
type Policy struct {
	Name       string                     `json:"name"`
	Pattern    string                     `json:"pattern"`
	ApplyTo    string                     `json:"apply-to"`
	Priority   int                        `json:"priority"`
	Definition map[string]json.RawMessage `json:"definition"`

	IsOperator bool `json:"-"`
}

// Limit returns the policy's delivery limit, if it has one.
func (p *Policy) Limit() (n int, ok bool) {
	if p == nil || json.Unmarshal(p.Definition[Key], &n) != nil {
		return 0, false
	}
	return n, true
}

// String names the policy.
func (p *Policy) String() string {
	if p.IsOperator {
		return fmt.Sprintf("the operator policy %q", p.Name)
	}
	return fmt.Sprintf("the policy %q", p.Name)
}

// appliesTo reports whether the policy applies to a queue. A pattern that only the broker's
// regular expressions can parse counts as matching, to be on the safe side.
func (p *Policy) appliesTo(queue, queueType string) bool {
	switch p.ApplyTo {
	case "all", "queues", queueType + "_queues":
	default:
		return false
	}
	pattern, err := regexp.Compile(p.Pattern)
	return err != nil || pattern.MatchString(queue)
}

// FixCommand returns the command that changes the policy's limit and nothing else of it.
func (p *Policy) FixCommand(vhost string, limit int) string {
	definition := maps.Clone(p.Definition)
	if definition == nil {
		definition = map[string]json.RawMessage{}
	}
	definition[Key] = fmt.Appendf(nil, "%d", limit)
	text, err := json.Marshal(definition)
	if err != nil {
		panic(err) // it was read from JSON
	}
	verb := "set_policy"
	if p.IsOperator {
		verb = "set_operator_policy"
	}
	return command("rabbitmqctl", verb, "--vhost", vhost, "--priority", fmt.Sprint(p.Priority), "--apply-to", p.ApplyTo, p.Name, p.Pattern, string(text))
}

// NewPolicy returns the policy that NServiceBus makes for an endpoint's queue.
func NewPolicy(queue string, v version.Broker) *Policy {
	p := &Policy{Name: "nsb." + queue + "." + Key, Pattern: "^" + regexp.QuoteMeta(queue) + "$", ApplyTo: "quorum_queues"}
	if !v.HasDefaultLimit() {
		p.ApplyTo = "queues" // older brokers do not know quorum_queues
	}
	return p
}

// OperatorPolicy returns the one of the operator policies that applies to a quorum queue,
// or nil. RabbitMQ does not document its choice among policies of equal priority;
// OperatorPolicy assumes the lowest limit.
func OperatorPolicy(list []*Policy, queue string) *Policy {
	var found *Policy
	for _, p := range list {
		p.IsOperator = true
		if !p.appliesTo(queue, "quorum") {
			continue
		}
		if found == nil || p.Priority > found.Priority || p.Priority == found.Priority && hasLowerLimit(p, found) {
			found = p
		}
	}
	return found
}

func hasLowerLimit(a, b *Policy) bool {
	x, has := a.Limit()
	y, other := b.Limit()
	return has && (!other || x < y)
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
