package rules

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/uuid"
)

// An environment is the message for which an expression is evaluated.
type environment struct {
	content *content.Content
	folded  map[string]any // application properties by name in lower case, created when needed
}

// user returns an application property, nil if there is none. "Property names are
// case-insensitive" (page service-bus-messaging-sql-filter, "Considerations").
func (e *environment) user(name string) any {
	if v, ok := e.content.AMQP.ApplicationProperties[name]; ok {
		return plain(v)
	}
	if e.folded == nil {
		e.folded = make(map[string]any, len(e.content.AMQP.ApplicationProperties))
		for key, v := range e.content.AMQP.ApplicationProperties {
			e.folded[strings.ToLower(key)] = v
		}
	}
	return plain(e.folded[strings.ToLower(name)])
}

// plain converts a value to one of the types of expressions.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		if v > math.MaxInt64 {
			return float64(v)
		}
		return int64(v)
	case float32:
		return float64(v)
	case amqp10.Symbol:
		return string(v)
	case amqp10.UUID:
		return v.String()
	case bool, int64, float64, string, time.Time:
		return v
	}
	return nil
}

// A systemProperty is a property of the message that the application did not define.
type systemProperty struct {
	get func(*content.Content) any
	set func(*amqp10.MessageProperties, *string) // nil if it cannot be changed
}

// systemProperties are those of BrokeredMessage in .NET, in lower case, as far as they
// have a value before a message is in a subscription.
var systemProperties = map[string]*systemProperty{
	"contenttype":      textProperty(func(p *amqp10.MessageProperties) **string { return &p.ContentType }),
	"label":            textProperty(func(p *amqp10.MessageProperties) **string { return &p.Subject }),
	"subject":          textProperty(func(p *amqp10.MessageProperties) **string { return &p.Subject }),
	"to":               textProperty(func(p *amqp10.MessageProperties) **string { return &p.To }),
	"replyto":          textProperty(func(p *amqp10.MessageProperties) **string { return &p.ReplyTo }),
	"replytosessionid": textProperty(func(p *amqp10.MessageProperties) **string { return &p.ReplyToGroupID }),
	"sessionid":        textProperty(func(p *amqp10.MessageProperties) **string { return &p.GroupID }),
	"messageid":        idProperty(func(p *amqp10.MessageProperties) *any { return &p.MessageID }),
	"correlationid":    idProperty(func(p *amqp10.MessageProperties) *any { return &p.CorrelationID }),
	"partitionkey":     {get: func(c *content.Content) any { return optional(c.Partition != "", c.Partition) }},
	"size":             {get: func(c *content.Content) any { return int64(c.Size) }},
	"scheduledenqueuetimeutc": {get: func(c *content.Content) any {
		return optional(c.Scheduled != 0, c.Scheduled.Time())
	}},
}

func optional[T any](ok bool, v T) any {
	if !ok {
		return nil
	}
	return v
}

func textProperty(field func(*amqp10.MessageProperties) **string) *systemProperty {
	return &systemProperty{
		get: func(c *content.Content) any {
			if c.AMQP.Properties == nil || *field(c.AMQP.Properties) == nil {
				return nil
			}
			return **field(c.AMQP.Properties)
		},
		set: func(p *amqp10.MessageProperties, v *string) { *field(p) = v },
	}
}

func idProperty(field func(*amqp10.MessageProperties) *any) *systemProperty {
	return &systemProperty{
		get: func(c *content.Content) any {
			if c.AMQP.Properties == nil || *field(c.AMQP.Properties) == nil {
				return nil
			}
			return fmt.Sprint(*field(c.AMQP.Properties))
		},
		set: func(p *amqp10.MessageProperties, v *string) {
			*field(p) = nil
			if v != nil {
				*field(p) = *v
			}
		},
	}
}

type constant struct{ value any }

func (c constant) evaluate(*environment) (any, error) { return c.value, nil }

type newID struct{}

func (newID) evaluate(*environment) (any, error) { return uuid.New().String(), nil }

type property struct {
	system bool
	name   string
}

func (p property) evaluate(env *environment) (any, error) {
	if p.system {
		return systemProperties[foldName(p.name)].get(env.content), nil
	}
	return env.user(p.name), nil
}

// A dynamicProperty is property(name).
type dynamicProperty struct{ name expression }

func (d *dynamicProperty) evaluate(env *environment) (any, error) {
	name, err := d.name.evaluate(env)
	if err != nil || name == nil {
		return nil, err
	}
	s, ok := name.(string)
	if !ok {
		return nil, fmt.Errorf("property(%v): the name is not a string", name)
	}
	return env.user(s), nil
}

// truth converts a value to a truth value; ok is false for unknown.
func truth(v any) (value, ok bool, err error) {
	switch v := v.(type) {
	case nil:
		return false, false, nil
	case bool:
		return v, true, nil
	}
	return false, false, fmt.Errorf("the value %v of type %T is not a condition", v, v)
}

// A logical is AND or OR with the tables of page service-bus-messaging-sql-filter, "Property
// evaluation semantics".
type logical struct {
	or          bool
	left, right expression
}

func (l *logical) evaluate(env *environment) (any, error) {
	unknown := false
	for _, e := range []expression{l.left, l.right} {
		v, err := e.evaluate(env)
		if err != nil {
			return nil, err
		}
		value, ok, err := truth(v)
		if err != nil {
			return nil, err
		}
		if ok && value == l.or {
			return l.or, nil
		}
		unknown = unknown || !ok
	}
	return optional(!unknown, !l.or), nil
}

type negation struct{ operand expression }

func (n *negation) evaluate(env *environment) (any, error) {
	v, err := n.operand.evaluate(env)
	if err != nil {
		return nil, err
	}
	value, ok, err := truth(v)
	return optional(ok, !value), err
}

type isNull struct{ operand expression }

func (n *isNull) evaluate(env *environment) (any, error) {
	v, err := n.operand.evaluate(env)
	return v == nil, err
}

// both evaluates two operands.
func both(env *environment, left, right expression) (l, r any, err error) {
	if l, err = left.evaluate(env); err != nil {
		return nil, nil, err
	}
	r, err = right.evaluate(env)
	return l, r, err
}

type comparison struct {
	operator    string
	left, right expression
}

func (c *comparison) evaluate(env *environment) (any, error) {
	l, r, err := both(env, c.left, c.right)
	if err != nil || l == nil || r == nil {
		return nil, err
	}
	if x, ok := l.(bool); ok {
		y, ok := r.(bool)
		if ok && (c.operator == "=" || c.operator == "<>" || c.operator == "!=") {
			return (x == y) == (c.operator == "="), nil
		}
		return nil, incomparable(c.operator, l, r)
	}
	order, err := compare(l, r)
	if err != nil {
		return nil, fmt.Errorf("operator %s: %w", c.operator, err)
	}
	switch c.operator {
	case "=":
		return order == 0, nil
	case "<>", "!=":
		return order != 0, nil
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

// compare compares numbers, strings or times.
func compare(l, r any) (int, error) {
	switch x := l.(type) {
	case int64:
		if y, ok := r.(int64); ok {
			return cmp.Compare(x, y), nil
		}
		if y, ok := r.(float64); ok {
			return cmp.Compare(float64(x), y), nil
		}
	case float64:
		if y, ok := number(r); ok {
			return cmp.Compare(x, y), nil
		}
	case string:
		if y, ok := r.(string); ok {
			return cmp.Compare(x, y), nil
		}
	case time.Time:
		if y, ok := r.(time.Time); ok {
			return x.Compare(y), nil
		}
	}
	return 0, incomparable("compare", l, r)
}

func incomparable(operator string, l, r any) error {
	return fmt.Errorf("%s cannot be applied to %v of type %T and %v of type %T", operator, l, l, r, r)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

type membership struct {
	left expression
	list []expression
}

func (m *membership) evaluate(env *environment) (any, error) {
	l, err := m.left.evaluate(env)
	if err != nil || l == nil {
		return nil, err
	}
	for _, e := range m.list {
		r, err := e.evaluate(env)
		if err != nil {
			return nil, err
		}
		if x, ok := l.(bool); ok {
			if r == x {
				return true, nil
			}
			continue
		}
		if order, err := compare(l, r); err == nil && order == 0 {
			return true, nil
		}
	}
	return false, nil
}

type like struct{ left, pattern, escape expression }

func (l *like) evaluate(env *environment) (any, error) {
	text, pattern, err := both(env, l.left, l.pattern)
	if err != nil || text == nil || pattern == nil {
		return nil, err
	}
	escape := rune(-1)
	if l.escape != nil {
		v, err := l.escape.evaluate(env)
		if err != nil || v == nil {
			return nil, err
		}
		s := []rune(fmt.Sprint(v))
		if len(s) != 1 {
			return nil, fmt.Errorf("ESCAPE '%v': there has to be one character", v)
		}
		escape = s[0]
	}
	t, ok := text.(string)
	p, isText := pattern.(string)
	if !ok || !isText {
		return nil, incomparable("LIKE", text, pattern)
	}
	return matchLike([]rune(t), likePattern(p, escape)), nil
}

// These are the wildcards of a pattern. They are not characters.
const (
	anyText rune = -1 - iota
	anyCharacter
)

func likePattern(pattern string, escape rune) []rune {
	var out []rune
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			escaped = false
			out = append(out, r)
		case r == escape:
			escaped = true
		case r == '%':
			out = append(out, anyText)
		case r == '_':
			out = append(out, anyCharacter)
		default:
			out = append(out, r)
		}
	}
	return out
}

// matchLike takes time proportional to at most the product of the lengths: after a
// mismatch only the last % takes one more character.
func matchLike(text, pattern []rune) bool {
	t, p := 0, 0
	star, mark := -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == anyText:
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == anyCharacter || pattern[p] == text[t]):
			t++
			p++
		case star >= 0:
			mark++
			t, p = mark, star+1
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == anyText {
		p++
	}
	return p == len(pattern)
}

type arithmetic struct {
	operator    string
	left, right expression
}

func (a *arithmetic) evaluate(env *environment) (any, error) {
	l, r, err := both(env, a.left, a.right)
	if err != nil || l == nil || r == nil {
		return nil, err
	}
	if x, ok := l.(string); ok && a.operator == "+" {
		return x + fmt.Sprint(r), nil // as in C#
	}
	x, isInteger := l.(int64)
	y, ok := r.(int64)
	if isInteger && ok {
		return integers(a.operator, x, y)
	}
	f, ok := number(l)
	g, isNumber := number(r)
	if !ok || !isNumber {
		return nil, incomparable(a.operator, l, r)
	}
	switch a.operator {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	case "/":
		return f / g, nil
	}
	return math.Mod(f, g), nil
}

func integers(operator string, x, y int64) (any, error) {
	switch operator {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	}
	if y == 0 {
		return nil, fmt.Errorf("%d %s 0: division by zero", x, operator)
	}
	if operator == "/" {
		return x / y, nil
	}
	return x % y, nil
}

// foldName returns the name of a property in the form that systemProperties uses.
func foldName(name string) string { return strings.ToLower(name) }

// An expression is a parsed expression of SQL. Its value is nil for unknown, or a bool, int64,
// float64, string or time.Time.
type expression interface {
	evaluate(*environment) (any, error)
}
