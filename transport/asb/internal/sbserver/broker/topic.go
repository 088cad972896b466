package broker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Rule selects messages of a topic for a subscription.
type Rule struct {
	Name   string
	Filter Filter  // nil selects all messages
	Action *Action // nil changes nothing
}

// DefaultRuleName is the name of the rule that a subscription has from its creation (page
// topic-filters).
const DefaultRuleName = "$Default"

// CreateSubscription creates a subscription of a topic with one rule. The zero Rule is the rule
// $Default, which selects all messages.
func (b *Broker) CreateSubscription(topic, name string, p SubscriptionProperties, first Rule) (err error) {
	b.lock()
	defer b.finish(&err)
	t, err := b.getLocked(KindTopic, topic, "")
	if err != nil {
		return err
	}
	s, err := b.subscriptionSettings(p)
	if err != nil {
		return err
	}
	if err := checkName(name, maxSubscription, false); err != nil {
		return err
	}
	if t.subscriptions[strings.ToLower(name)] != nil {
		return errorf(CondEntityAlreadyExists, "The entity '%s/Subscriptions/%s' already exists.", t.path, name)
	}
	if first.Name == "" {
		first.Name = DefaultRuleName
	}
	r, err := newRule(first, b.now)
	if err != nil {
		return err
	}
	if err := b.checkForwardsLocked(t.path, s); err != nil {
		return err
	}
	b.resolveForwardLocked(KindSubscription, &s)
	e := b.newEntity(KindSubscription, t, name, s)
	e.rules = []*rule{r}
	b.addLocked(e)
	return nil
}

// A rule is a rule of a subscription, ready to be evaluated.
type rule struct {
	Rule
	created instant
	match   func(*content) (bool, error)
	action  []statement // nil without an action
}

// A RuleInfo describes a rule.
type RuleInfo struct {
	Rule
	Created time.Time
}

func newRule(r Rule, now instant) (*rule, error) {
	if err := checkName(r.Name, maxSubscription, false); err != nil {
		return nil, err
	}
	if err := checkValues(r); err != nil {
		return nil, err
	}
	match, err := matcher(r.Filter)
	if err != nil {
		return nil, err
	}
	prepared := &rule{Rule: r, created: now, match: match}
	if r.Action != nil {
		if prepared.action, err = parseAction(r.Action.Expression, r.Action.Parameters); err != nil {
			return nil, err
		}
	}
	return prepared, nil
}

// CreateRule adds a rule to a subscription. A rule with its name is refused with
// [CondEntityAlreadyExists].
func (b *Broker) CreateRule(topic, subscription string, r Rule) error {
	return b.changeRules(topic, subscription, func(e *entity) error {
		if e.ruleIndex(r.Name) >= 0 {
			return errorf(CondEntityAlreadyExists, "The rule '%s' of '%s' already exists.", r.Name, e.path)
		}
		prepared, err := newRule(r, b.now)
		if err == nil {
			e.rules = append(e.rules, prepared)
		}
		return err
	})
}

// UpdateRule replaces a rule of a subscription.
func (b *Broker) UpdateRule(topic, subscription string, r Rule) error {
	return b.changeRules(topic, subscription, func(e *entity) error {
		i := e.ruleIndex(r.Name)
		if i < 0 {
			return errorf(CondNotFound, "The rule '%s' of '%s' could not be found.", r.Name, e.path)
		}
		prepared, err := newRule(r, e.rules[i].created)
		if err == nil {
			e.rules[i] = prepared
		}
		return err
	})
}

// DeleteRule removes a rule of a subscription. A subscription without rules gets no messages.
func (b *Broker) DeleteRule(topic, subscription, name string) error {
	return b.changeRules(topic, subscription, func(e *entity) error {
		i := e.ruleIndex(name)
		if i < 0 {
			return errorf(CondNotFound, "The rule '%s' of '%s' could not be found.", name, e.path)
		}
		e.rules = slices.Delete(e.rules, i, i+1)
		return nil
	})
}

func (b *Broker) changeRules(topic, subscription string, change func(*entity) error) (err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindSubscription, topic, subscription)
	if err != nil {
		return err
	}
	if err := change(e); err != nil {
		return err
	}
	e.changeLocked()
	b.useLocked(e)
	return nil
}

// Rules describes the rules of a subscription in the order of their creation.
func (b *Broker) Rules(topic, subscription string) (infos []RuleInfo, err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindSubscription, topic, subscription)
	if err != nil {
		return nil, err
	}
	for _, r := range e.rules {
		infos = append(infos, RuleInfo{r.Rule, r.created.time()})
	}
	return infos, nil
}

func (e *entity) ruleIndex(name string) int {
	return slices.IndexFunc(e.rules, func(r *rule) bool { return strings.EqualFold(r.Name, name) })
}

// publishLocked copies a message that arrived in a topic to its subscriptions.
func (b *Broker) publishLocked(topic *entity, m *message) {
	for _, sub := range topic.sortedSubscriptions() {
		b.selectLocked(sub, m)
	}
}

// selectLocked copies a message to a subscription if a rule selects it: "All rules without
// actions are combined using an OR condition and result in a single message on the subscription
// even if you have multiple matching rules. Each rule with an action produces a copy of the
// message. This message has a property called RuleName where the value is the name of the matching
// rule" (page topic-filters).
func (b *Broker) selectLocked(sub *entity, m *message) {
	selected := false
	for _, r := range sub.rules {
		if selected && r.action == nil {
			continue
		}
		ok, err := r.match(m.content)
		c := m.content
		if err == nil && ok && r.action != nil {
			if c, err = apply(r.action, c); err == nil {
				c = c.withProperties(map[string]any{"RuleName": r.Name})
			}
		}
		switch {
		case err != nil:
			b.filterErrorLocked(sub, m, r, err)
		case ok:
			selected = selected || r.action == nil
			b.enqueueLocked(sub, sub.copyLocked(m, c))
		}
	}
}

// copyLocked returns a copy of a topic's message for a subscription. "For topics and
// subscriptions, the sequence number for every subscription starts at 1" (.NET reference,
// BrokeredMessage.SequenceNumber).
func (e *entity) copyLocked(m *message, c *content) *message {
	return &message{
		sequence: e.nextSequenceLocked(), enqueuedSequence: m.original(), content: c, enqueued: m.enqueued, ttl: m.ttl, hops: m.hops,
		deadLetterSource: m.deadLetterSource,
	}
}

// filterErrorLocked handles a rule that failed for a message: "If you enable dead-lettering on
// filter evaluation exceptions, any errors that occur while a subscription's SQL filter rule
// executes are captured in the DLQ along with the offending message" (page
// service-bus-dead-letter-queues).
func (b *Broker) filterErrorLocked(sub *entity, m *message, r *rule, err error) {
	if !sub.settings.DropOnFilterErrors {
		sub.deadLetterLocked(sub.copyLocked(m, m.content), "FilterEvaluationException", fmt.Sprintf("Rule '%s': %v.", r.Name, err))
	}
}
