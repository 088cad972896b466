package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// DefaultRuleName is the name of the rule that a subscription has from its creation (page
// topic-filters).
const DefaultRuleName = "$Default"

// CreateSubscription creates a subscription of a topic with one rule. The zero Rule is the rule
// $Default, which selects all messages.
func (b *Broker) CreateSubscription(topic, name string, p properties.Subscription, first rules.Rule) (err error) {
	b.lock()
	defer b.finish(&err)
	t, err := b.getLocked(KindTopic, topic, "")
	if err != nil {
		return err
	}
	s, err := b.limits.Subscription(p)
	if err != nil {
		return err
	}
	if err := checkName(name, maxSubscription, false); err != nil {
		return err
	}
	if t.subscriptions[strings.ToLower(name)] != nil {
		return condition.Errorf(condition.EntityAlreadyExists, "The entity '%s/Subscriptions/%s' already exists.", t.path, name)
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

// A rule is a rule of a subscription.
type rule struct {
	*rules.Prepared
	created clock.Instant
}

func newRule(r rules.Rule, created clock.Instant) (*rule, error) {
	if err := checkName(r.Name, maxSubscription, false); err != nil {
		return nil, err
	}
	prepared, err := rules.Prepare(r)
	if err != nil {
		return nil, err
	}
	return &rule{prepared, created}, nil
}

// A RuleInfo describes a rule.
type RuleInfo struct {
	rules.Rule
	Created time.Time
}

// CreateRule adds a rule to a subscription. A rule with its name is refused with
// [condition.EntityAlreadyExists].
func (b *Broker) CreateRule(topic, subscription string, r rules.Rule) error {
	return b.changeRules(topic, subscription, func(e *entity) error {
		if e.ruleIndex(r.Name) >= 0 {
			return condition.Errorf(condition.EntityAlreadyExists, "The rule '%s' of '%s' already exists.", r.Name, e.path)
		}
		prepared, err := newRule(r, b.now)
		if err == nil {
			e.rules = append(e.rules, prepared)
		}
		return err
	})
}

// UpdateRule replaces a rule of a subscription.
func (b *Broker) UpdateRule(topic, subscription string, r rules.Rule) error {
	return b.changeRules(topic, subscription, func(e *entity) error {
		i := e.ruleIndex(r.Name)
		if i < 0 {
			return condition.Errorf(condition.NotFound, "The rule '%s' of '%s' could not be found.", r.Name, e.path)
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
			return condition.Errorf(condition.NotFound, "The rule '%s' of '%s' could not be found.", name, e.path)
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
		infos = append(infos, RuleInfo{r.Prepared.Rule, r.created.Time()})
	}
	return infos, nil
}

func (e *entity) ruleIndex(name string) int {
	return slices.IndexFunc(e.rules, func(r *rule) bool { return strings.EqualFold(r.Name, name) })
}
