// Package filter evaluates the filter policies of subscriptions.
package filter

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/policy"
)

// A Filter is a filter policy: a message matches if each of its keys does, each by one of
// its conditions.
// https://docs.aws.amazon.com/sns/latest/dg/sns-subscription-filter-policies.html
type Filter []filterKey

type filterKey struct {
	name       string
	conditions []condition
	nested     Filter   // of the body
	or         []Filter // $or
}

// A condition tests the values of a key, which are strings, json.Numbers, booleans and null;
// there are none if the message does not have the key.
type condition func(values []any) bool

const (
	maxFilterKeys         = 5
	maxFilterCombinations = 150
)

// Parse parses a filter policy, and returns why it is invalid, or "".
func Parse(text string, body bool) (Filter, string) {
	if text == "" {
		return nil, ""
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var raw map[string]any
	if err := decoder.Decode(&raw); err != nil {
		return nil, "failed to parse JSON. " + err.Error()
	}
	combinations := 1
	f, reason := parseFilterKeys(raw, body, &combinations)
	switch {
	case reason != "":
		return nil, reason
	case len(raw) > maxFilterKeys:
		return nil, "Filter policy can not have more than 5 keys"
	case combinations > maxFilterCombinations:
		return nil, "Filter policy is too complex"
	}
	return f, ""
}

func parseFilterKeys(raw map[string]any, body bool, combinations *int) (Filter, string) {
	f := Filter{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		key := filterKey{name: name}
		switch value := raw[name].(type) {
		case map[string]any:
			if !body {
				return nil, "Filter policy scope MessageAttributes does not support nested filter policy"
			}
			nested, reason := parseFilterKeys(value, body, combinations)
			if reason != "" {
				return nil, reason
			}
			key.nested = nested
		case []any:
			if len(value) == 0 {
				return nil, `"` + name + `" must not be an empty array`
			}
			*combinations *= len(value)
			if reason := key.parse(value, body, combinations); reason != "" {
				return nil, reason
			}
		default:
			return nil, `"` + name + `" must be an object or an array`
		}
		f = append(f, key)
	}
	return f, ""
}

func (k *filterKey) parse(values []any, body bool, combinations *int) (reason string) {
	for _, v := range values {
		if k.name == "$or" {
			branch, ok := v.(map[string]any)
			if !ok {
				return `"$or" must be an array of objects`
			}
			f, reason := parseFilterKeys(branch, body, combinations)
			if reason != "" {
				return reason
			}
			k.or = append(k.or, f)
			continue
		}
		c, reason := parseCondition(v)
		if reason != "" {
			return reason
		}
		k.conditions = append(k.conditions, c)
	}
	return ""
}

func parseCondition(v any) (condition, string) {
	operators, ok := v.(map[string]any)
	if !ok {
		if _, isList := v.([]any); isList {
			return nil, "Match value must be String, number, true, false, or null"
		}
		return anyOf(func(have any) bool { return sameValue(have, v) }), ""
	}
	if len(operators) != 1 {
		return nil, "Only one key allowed in match expression"
	}
	for name, argument := range operators {
		if name == "exists" {
			want, ok := argument.(bool)
			if !ok {
				return nil, "exists match pattern must be either true or false."
			}
			return func(values []any) bool { return len(values) > 0 == want }, ""
		}
		if name == "anything-but" {
			return parseAnythingBut(argument)
		}
		test, reason := parseTest(name, argument)
		if reason != "" {
			return nil, reason
		}
		return anyOf(test), ""
	}
	return nil, ""
}

// anyOf is the condition that at least one value passes a test.
func anyOf(test func(any) bool) condition {
	return func(values []any) bool { return slices.ContainsFunc(values, test) }
}

// parseAnythingBut parses the condition that the key exists and its value is none of the
// listed ones.
func parseAnythingBut(argument any) (condition, string) {
	excluded, isList := argument.([]any)
	if !isList {
		excluded = []any{argument}
	}
	var tests []func(any) bool
	for _, e := range excluded {
		operators, isOperator := e.(map[string]any)
		if !isOperator {
			tests = append(tests, func(have any) bool { return sameValue(have, e) })
			continue
		}
		for name, argument := range operators {
			test, reason := parseTest(name, argument)
			if reason != "" {
				return nil, reason
			}
			tests = append(tests, test)
		}
	}
	return anyOf(func(have any) bool {
		return !slices.ContainsFunc(tests, func(test func(any) bool) bool { return test(have) })
	}), ""
}

// parseTest parses an operator that looks at one value.
func parseTest(name string, argument any) (func(any) bool, string) {
	if name == "numeric" {
		return parseNumeric(argument)
	}
	pattern, ok := argument.(string)
	if !ok {
		return nil, name + " match pattern must be a string"
	}
	onText := func(test func(have string) bool) func(any) bool {
		return func(v any) bool { have, ok := v.(string); return ok && test(have) }
	}
	switch name {
	case "prefix":
		return onText(func(have string) bool { return strings.HasPrefix(have, pattern) }), ""
	case "suffix":
		return onText(func(have string) bool { return strings.HasSuffix(have, pattern) }), ""
	case "equals-ignore-case":
		return onText(func(have string) bool { return strings.EqualFold(have, pattern) }), ""
	case "wildcard":
		return onText(func(have string) bool { return policy.Wildcard(pattern, have) }), ""
	case "cidr":
		network, err := netip.ParsePrefix(pattern)
		if err != nil {
			return nil, "Malformed CIDR, one '/' required"
		}
		return onText(func(have string) bool {
			address, err := netip.ParseAddr(have)
			return err == nil && network.Contains(address)
		}), ""
	default:
		return nil, "Unrecognized match type " + name
	}
}

// parseNumeric parses pairs of an operator and a number, all of which must hold.
func parseNumeric(argument any) (func(any) bool, string) {
	pairs, ok := argument.([]any)
	if !ok || len(pairs) == 0 || len(pairs)%2 != 0 || len(pairs) > 4 {
		return nil, "Value of numeric match pattern must be an array of pairs of operator and number"
	}
	var tests []func(float64) bool
	for i := 0; i < len(pairs); i += 2 {
		operator, _ := pairs[i].(string)
		limit, ok := number64(pairs[i+1])
		if !ok {
			return nil, "Value of " + operator + " must be numeric"
		}
		test, ok := map[string]func(float64) bool{
			"=":  func(n float64) bool { return n == limit },
			"<":  func(n float64) bool { return n < limit },
			"<=": func(n float64) bool { return n <= limit },
			">":  func(n float64) bool { return n > limit },
			">=": func(n float64) bool { return n >= limit },
		}[operator]
		if !ok {
			return nil, "Unrecognized numeric range operator: " + operator
		}
		tests = append(tests, test)
	}
	return func(v any) bool {
		n, ok := number64(v)
		return ok && !slices.ContainsFunc(tests, func(test func(float64) bool) bool { return !test(n) })
	}, ""
}

func number64(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(n.String(), 64)
	return f, err == nil
}

func sameValue(a, b any) bool {
	if x, ok := number64(a); ok {
		y, ok := number64(b)
		return ok && x == y
	}
	return a == b
}

// MatchesBody reports whether a body, which has to be a JSON object, passes the filter policy.
func (f Filter) MatchesBody(text string) bool {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var body map[string]any
	if decoder.Decode(&body) != nil {
		return false
	}
	return f.holds(func(name string) (any, bool) { v, ok := body[name]; return v, ok })
}

// MatchesAttributes reports whether the attributes of a message pass the filter policy.
func (f Filter) MatchesAttributes(attributes []content.Attribute) bool {
	return f.holds(func(name string) (any, bool) { return attributeValues(attributes, name) })
}

// holds reports whether all keys match the values that get returns.
func (f Filter) holds(get func(name string) (any, bool)) bool {
	for _, k := range f {
		if !k.holds(get) {
			return false
		}
	}
	return true
}

func (k *filterKey) holds(get func(name string) (any, bool)) bool {
	if k.or != nil {
		return slices.ContainsFunc(k.or, func(branch Filter) bool { return branch.holds(get) })
	}
	v, ok := get(k.name)
	if k.nested != nil {
		object, _ := v.(map[string]any)
		return k.nested.holds(func(name string) (any, bool) { v, ok := object[name]; return v, ok })
	}
	var values []any
	if list, isList := v.([]any); isList {
		values = list
	} else if ok {
		values = []any{v}
	}
	return slices.ContainsFunc(k.conditions, func(c condition) bool { return c(values) })
}

// attributeValues returns the values of a message attribute: several of a String.Array,
// none of a binary one.
func attributeValues(attributes []content.Attribute, name string) (any, bool) {
	for _, a := range attributes {
		if a.Name != name {
			continue
		}
		switch {
		case a.Type == "String.Array":
			decoder := json.NewDecoder(bytes.NewReader([]byte(a.String)))
			decoder.UseNumber()
			var list []any
			return list, decoder.Decode(&list) == nil && len(list) > 0
		case strings.HasPrefix(a.Type, "Number"):
			return json.Number(a.String), true
		case strings.HasPrefix(a.Type, "String"):
			return a.String, true
		}
	}
	return nil, false
}
