package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// reserved are the names that cannot be a regular identifier.
var reserved = []string{"AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE"}

// maxSQLLength is the "maximum length of filter condition string" and of a rule action (page
// service-bus-quotas).
const maxSQLLength = 1024

// maxSQLDepth limits the nesting of an expression.
const maxSQLDepth = 200

type parser struct {
	text       string
	tokens     []token
	at         int
	depth      int
	parameters map[string]any
}

func newParser(text string, parameters map[string]any) (*parser, error) {
	if len(text) > maxSQLLength {
		return nil, condition.Errorf(condition.Argument, "The SQL expression has %d characters, but at most %d are allowed.", len(text), maxSQLLength)
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	return &parser{text: text, tokens: tokens, parameters: parameters}, nil
}

// parseCondition parses the condition of an SQL filter.
func parseCondition(text string, parameters map[string]any) (expression, error) {
	p, err := newParser(text, parameters)
	if err != nil {
		return nil, err
	}
	e, err := p.or()
	if err == nil && p.token().kind != tokenEnd {
		err = p.unexpected("an operator or the end")
	}
	return e, err
}

func (p *parser) token() token { return p.tokens[p.at] }

// accept skips a keyword or symbol, and reports whether it was there.
func (p *parser) accept(text string) bool {
	if p.token().is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return p.unexpected("'" + text + "'")
	}
	return nil
}

func (p *parser) unexpected(wanted string) error {
	found := "its end"
	if t := p.token(); t.kind != tokenEnd {
		found = "'" + t.text + "'"
	}
	return condition.Errorf(condition.Argument, "The SQL expression '%s' is not valid at position %d: %s is there instead of %s.", p.text, p.token().position, found, wanted)
}

func (p *parser) or() (expression, error) { return p.logical("OR", p.and) }

func (p *parser) and() (expression, error) { return p.logical("AND", p.not) }

// logical parses operands of AND or OR.
func (p *parser) logical(operator string, operand func() (expression, error)) (expression, error) {
	left, err := operand()
	for err == nil && p.accept(operator) {
		var right expression
		right, err = operand()
		left = &logical{operator == "OR", left, right}
	}
	return left, err
}

func (p *parser) not() (expression, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxSQLDepth {
		return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' is nested more than %d deep.", p.text, maxSQLDepth)
	}
	if p.accept("NOT") {
		e, err := p.not()
		return &negation{e}, err
	}
	return p.predicate()
}

func (p *parser) predicate() (expression, error) {
	if p.accept("EXISTS") {
		return p.exists()
	}
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	for _, operator := range []string{"=", "<>", "!=", ">=", "<=", ">", "<"} {
		if p.accept(operator) {
			right, err := p.sum()
			return &comparison{operator, left, right}, err
		}
	}
	if p.accept("IS") {
		not := p.accept("NOT")
		return negate(not, &isNull{left}), p.expect("NULL")
	}
	not := p.accept("NOT")
	switch {
	case p.accept("IN"):
		list, err := p.list()
		return negate(not, &membership{left, list}), err
	case p.accept("LIKE"):
		e, err := p.like(left)
		return negate(not, e), err
	case not:
		return nil, p.unexpected("IN or LIKE")
	}
	return left, nil
}

func negate(not bool, e expression) expression {
	if not {
		return &negation{e}
	}
	return e
}

func (p *parser) exists() (expression, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	name, err := p.property()
	if err != nil {
		return nil, err
	}
	return &negation{&isNull{name}}, p.expect(")")
}

func (p *parser) list() ([]expression, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var list []expression
	for {
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.accept(",") {
			return list, p.expect(")")
		}
	}
}

func (p *parser) like(left expression) (expression, error) {
	pattern, err := p.sum()
	if err != nil {
		return nil, err
	}
	l := &like{left: left, pattern: pattern}
	if p.accept("ESCAPE") {
		l.escape, err = p.sum()
	}
	return l, err
}

func (p *parser) sum() (expression, error) { return p.arithmetic([]string{"+", "-"}, p.product) }

func (p *parser) product() (expression, error) {
	return p.arithmetic([]string{"*", "/", "%"}, p.unary)
}

// arithmetic parses operands of operators of one precedence.
func (p *parser) arithmetic(operators []string, operand func() (expression, error)) (expression, error) {
	left, err := operand()
	for err == nil {
		i := slices.IndexFunc(operators, p.accept)
		if i < 0 {
			break
		}
		var right expression
		right, err = operand()
		left = &arithmetic{operators[i], left, right}
	}
	return left, err
}

func (p *parser) unary() (expression, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxSQLDepth {
		return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' is nested more than %d deep.", p.text, maxSQLDepth)
	}
	switch {
	case p.accept("-"):
		e, err := p.unary()
		return &arithmetic{"-", constant{int64(0)}, e}, err
	case p.accept("+"):
		return p.unary()
	case p.accept("("):
		e, err := p.or()
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	}
	return p.operand()
}

func (p *parser) operand() (expression, error) {
	t := p.token()
	switch t.kind {
	case tokenString:
		p.at++
		return constant{t.text}, nil
	case tokenInteger:
		p.at++
		return constant{t.integer}, nil
	case tokenDecimal:
		p.at++
		return constant{t.decimal}, nil
	case tokenParameter:
		p.at++
		for name, value := range p.parameters {
			if strings.EqualFold("@"+strings.TrimPrefix(name, "@"), t.text) {
				return constant{plain(value)}, nil
			}
		}
		return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' has the parameter %s, which has no value.", p.text, t.text)
	}
	switch {
	case p.accept("NULL"):
		return constant{nil}, nil
	case p.accept("TRUE"):
		return constant{true}, nil
	case p.accept("FALSE"):
		return constant{false}, nil
	}
	if t.kind == tokenName && p.tokens[p.at+1].is("(") {
		return p.function()
	}
	return p.property()
}

func (p *parser) function() (expression, error) {
	name := p.token().upper
	p.at += 2
	switch name {
	case "NEWID":
		return newID{}, p.expect(")")
	case "PROPERTY", "P":
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		return &dynamicProperty{e}, p.expect(")")
	}
	p.at -= 2
	return nil, p.unexpected("newid or property")
}

// property parses [scope.]name.
func (p *parser) property() (expression, error) {
	t := p.token()
	if t.kind != tokenDelimited && t.kind != tokenName || t.kind == tokenName && slices.Contains(reserved, t.upper) {
		return nil, p.unexpected("a property or a constant")
	}
	p.at++
	if !p.accept(".") {
		return property{name: t.text}, nil
	}
	scope := strings.ToLower(t.text)
	if t.kind != tokenName || scope != "sys" && scope != "user" {
		return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' has the scope '%s', which is neither sys nor user.", p.text, t.text)
	}
	name := p.token()
	if name.kind != tokenName && name.kind != tokenDelimited {
		return nil, p.unexpected("the name of a property")
	}
	p.at++
	if scope == "sys" && systemProperties[foldName(name.text)] == nil {
		return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' has the system property '%s', which does not exist.", p.text, name.text)
	}
	return property{system: scope == "sys", name: name.text}, nil
}

// A statement is SET property = expression or REMOVE property.
type statement struct {
	property property
	value    expression // nil to remove it
}

// parseAction parses the action of a rule (page service-bus-messaging-sql-rule-action).
func parseAction(text string, parameters map[string]any) ([]statement, error) {
	p, err := newParser(text, parameters)
	if err != nil {
		return nil, err
	}
	var statements []statement
	for p.token().kind != tokenEnd {
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		statements = append(statements, s)
		for p.accept(";") || p.accept(",") {
		}
	}
	// "Maximum number of expressions per rule action: 32" (page service-bus-quotas).
	if len(statements) == 0 || len(statements) > 32 {
		return nil, condition.Errorf(condition.Argument, "The SQL action '%s' has %d statements, but it has to have 1 to 32.", text, len(statements))
	}
	return statements, nil
}

func (p *parser) statement() (s statement, err error) {
	set := p.accept("SET")
	if !set && !p.accept("REMOVE") {
		return s, p.unexpected("SET or REMOVE")
	}
	e, err := p.property()
	if err != nil {
		return s, err
	}
	s.property = e.(property)
	if s.property.system && systemProperties[foldName(s.property.name)].set == nil {
		return s, condition.Errorf(condition.Argument, "The SQL action '%s' changes the system property '%s', which cannot be changed.", p.text, s.property.name)
	}
	if !set {
		return s, nil
	}
	if err := p.expect("="); err != nil {
		return s, err
	}
	s.value, err = p.sum()
	return s, err
}

func (p property) String() string {
	if p.system {
		return fmt.Sprintf("sys.[%s]", p.name)
	}
	return fmt.Sprintf("[%s]", p.name)
}
