// Package rules has the rules by which subscriptions select the messages of their topic: filters, the actions that change
// selected messages, and the language of both.
package rules

import "github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"

// A Rule selects messages of a topic for a subscription.
type Rule struct {
	Name   string
	Filter Filter  // nil selects all messages
	Action *Action // nil changes nothing
}

// A Prepared is a rule that is ready to be evaluated.
type Prepared struct {
	Rule
	match   func(*content.Content) (bool, error)
	changes []statement // nil without an action
}

// Prepare checks a rule, except for its name.
func Prepare(r Rule) (*Prepared, error) {
	if err := checkValues(r); err != nil {
		return nil, err
	}
	match, err := matcher(r.Filter)
	if err != nil {
		return nil, err
	}
	prepared := &Prepared{Rule: r, match: match}
	if r.Action != nil {
		if prepared.changes, err = parseAction(r.Action.Expression, r.Action.Parameters); err != nil {
			return nil, err
		}
	}
	return prepared, nil
}

// Select reports whether the rule selects a message, and returns the message as the action of the rule has changed
// it: "This message has a property called RuleName where the value is the name of the matching rule" (page
// topic-filters).
func (r *Prepared) Select(c *content.Content) (_ *content.Content, ok bool, err error) {
	ok, err = r.match(c)
	if err != nil || !ok || r.changes == nil {
		return c, ok, err
	}
	changed, err := apply(r.changes, c)
	if err != nil {
		return c, false, err
	}
	return changed.WithProperties(map[string]any{"RuleName": r.Name}), true, nil
}
