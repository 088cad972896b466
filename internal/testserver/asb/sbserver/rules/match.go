package rules

import (
	"fmt"
	"maps"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
)

// checkValues refuses properties and parameters of a type that no application property can have.
func checkValues(r Rule) error {
	var all []map[string]any
	switch f := r.Filter.(type) {
	case CorrelationFilter:
		all = append(all, f.Properties)
	case SQLFilter:
		all = append(all, f.Parameters)
	}
	if r.Action != nil {
		all = append(all, r.Action.Parameters)
	}
	for _, values := range all {
		for name, value := range values {
			if plain(value) == nil {
				return condition.Errorf(condition.Argument, "The value %v of '%s' in rule '%s' has the type %T, which is not supported.", value, name, r.Name, value)
			}
		}
	}
	return nil
}

// matcher returns a function that reports whether a filter selects a message.
func matcher(f Filter) (func(*content.Content) (bool, error), error) {
	switch f := f.(type) {
	case nil, TrueFilter:
		return func(*content.Content) (bool, error) { return true, nil }, nil
	case FalseFilter:
		return func(*content.Content) (bool, error) { return false, nil }, nil
	case CorrelationFilter:
		return f.matcher(), nil
	case SQLFilter:
		condition, err := parseCondition(f.Expression, f.Parameters)
		if err != nil {
			return nil, err
		}
		return func(c *content.Content) (bool, error) {
			v, err := condition.evaluate(&environment{content: c})
			if err != nil {
				return false, err
			}
			value, _, err := truth(v) // unknown selects nothing
			return value, err
		}, nil
	}
	return nil, condition.Errorf(condition.Argument, "A filter of type %T is not supported.", f)
}

// matcher returns a function that reports whether a message has all the properties. "For
// string expressions, the comparison is case-sensitive" (page topic-filters).
func (f CorrelationFilter) matcher() func(*content.Content) (bool, error) {
	type check struct {
		get  func(*content.Content) any
		want string
	}
	var checks []check
	for name, want := range map[string]*string{
		"contenttype": f.ContentType, "correlationid": f.CorrelationID, "subject": f.Subject, "messageid": f.MessageID,
		"replyto": f.ReplyTo, "replytosessionid": f.ReplyToSessionID, "sessionid": f.SessionID, "to": f.To,
	} {
		if want != nil {
			checks = append(checks, check{systemProperties[name].get, *want})
		}
	}
	properties := map[string]any{}
	for name, want := range f.Properties {
		properties[name] = plain(want)
	}
	return func(c *content.Content) (bool, error) {
		for _, check := range checks {
			if check.get(c) != any(check.want) {
				return false, nil
			}
		}
		for name, want := range properties {
			if got, ok := c.AMQP.ApplicationProperties[name]; !ok || plain(got) != want {
				return false, nil
			}
		}
		return true, nil
	}
}

// apply returns a copy of a content that an action has changed.
func apply(statements []statement, c *content.Content) (*content.Content, error) {
	m := *c.AMQP
	m.ApplicationProperties = maps.Clone(m.ApplicationProperties)
	if m.ApplicationProperties == nil {
		m.ApplicationProperties = map[string]any{}
	}
	properties := amqp10.MessageProperties{}
	if m.Properties != nil {
		properties = *m.Properties
	}
	m.Properties = &properties
	for _, s := range statements {
		var value any
		if s.value != nil {
			var err error
			if value, err = s.value.evaluate(&environment{content: content.New(&m, c.Size)}); err != nil {
				return nil, fmt.Errorf("set %v: %w", s.property, err)
			}
		}
		s.store(&m, value)
	}
	return content.New(&m, c.Size), nil
}

// store sets or removes a property of a message.
func (s *statement) store(m *amqp10.Message, value any) {
	if s.property.system {
		var text *string
		if value != nil {
			v := fmt.Sprint(value)
			text = &v
		}
		systemProperties[foldName(s.property.name)].set(m.Properties, text)
		return
	}
	name := s.property.name
	for key := range m.ApplicationProperties {
		if foldName(key) == foldName(name) {
			name = key
		}
	}
	if s.value == nil {
		delete(m.ApplicationProperties, name)
		return
	}
	m.ApplicationProperties[name] = value
}
