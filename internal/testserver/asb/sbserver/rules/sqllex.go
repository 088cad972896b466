package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// A tokenKind is the kind of a token in the SQL of filters and actions.
type tokenKind int

const (
	tokenEnd       tokenKind = iota
	tokenName                // a property, a function or a keyword
	tokenDelimited           // [name] or "name", never a keyword
	tokenParameter           // @name
	tokenString
	tokenInteger
	tokenDecimal
	tokenSymbol
)

type token struct {
	kind     tokenKind
	text     string // a keyword is upper case in upper
	upper    string
	integer  int64
	decimal  float64
	position int
}

// is reports whether a token is a given keyword or symbol.
func (t token) is(text string) bool {
	return (t.kind == tokenName || t.kind == tokenSymbol) && t.upper == text
}

// lex splits an expression into tokens (page service-bus-messaging-sql-filter, from
// "property_name" on).
func lex(expression string) ([]token, error) {
	l := lexer{input: []rune(expression)}
	for {
		t, err := l.next()
		if err != nil {
			return nil, condition.Errorf(condition.Argument, "The SQL expression '%s' is not valid at position %d: %v.", expression, l.at, err)
		}
		l.tokens = append(l.tokens, t)
		if t.kind == tokenEnd {
			return l.tokens, nil
		}
	}
}

type lexer struct {
	input  []rune
	at     int
	tokens []token
}

func (l *lexer) peek(offset int) rune {
	if l.at+offset < len(l.input) {
		return l.input[l.at+offset]
	}
	return 0
}

func (l *lexer) next() (token, error) {
	for unicode.IsSpace(l.peek(0)) {
		l.at++
	}
	t := token{position: l.at}
	r := l.peek(0)
	var err error
	switch {
	case l.at >= len(l.input):
		return t, nil
	case r == '\'':
		t.kind = tokenString
		t.text, err = l.quoted('\'')
	case r == '"':
		t.kind = tokenDelimited
		t.text, err = l.quoted('"')
	case r == '[':
		t.kind = tokenDelimited
		t.text, err = l.quoted(']')
	case r == '@':
		t.kind = tokenParameter
		l.at++
		t.text = "@" + l.name()
	case unicode.IsLetter(r) || r == '_':
		t.kind = tokenName
		t.text = l.name()
		t.upper = strings.ToUpper(t.text)
	case unicode.IsDigit(r) || r == '.' && unicode.IsDigit(l.peek(1)):
		return l.number(t)
	default:
		return l.symbol(t)
	}
	return t, err
}

// quoted reads up to a closing quotation mark; a doubled mark stands for one.
func (l *lexer) quoted(end rune) (string, error) {
	var s strings.Builder
	for l.at++; ; l.at++ {
		r := l.peek(0)
		switch {
		case r == 0 && l.at >= len(l.input):
			return "", fmt.Errorf("%q is missing", end)
		case r == end && l.peek(1) == end:
			l.at++
		case r == end:
			l.at++
			return s.String(), nil
		}
		s.WriteRune(r)
	}
}

func (l *lexer) name() string {
	from := l.at
	for r := l.peek(0); unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'; r = l.peek(0) {
		l.at++
	}
	return string(l.input[from:l.at])
}

func (l *lexer) number(t token) (token, error) {
	from := l.at
	digits := func() {
		for unicode.IsDigit(l.peek(0)) {
			l.at++
		}
	}
	digits()
	t.kind = tokenInteger
	if l.peek(0) == '.' {
		t.kind = tokenDecimal
		l.at++
		digits()
	}
	if r := l.peek(0); r == 'e' || r == 'E' {
		t.kind = tokenDecimal
		l.at++
		if r := l.peek(0); r == '+' || r == '-' {
			l.at++
		}
		digits()
	}
	t.text = string(l.input[from:l.at])
	var err error
	if t.kind == tokenInteger {
		t.integer, err = strconv.ParseInt(t.text, 10, 64)
	} else {
		t.decimal, err = strconv.ParseFloat(t.text, 64)
	}
	return t, err
}

func (l *lexer) symbol(t token) (token, error) {
	t.kind = tokenSymbol
	for _, s := range []string{"<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";"} {
		if strings.HasPrefix(string(l.input[l.at:min(l.at+2, len(l.input))]), s) {
			l.at += len(s)
			t.text, t.upper = s, s
			return t, nil
		}
	}
	return t, fmt.Errorf("the character %q is not allowed", l.peek(0))
}
