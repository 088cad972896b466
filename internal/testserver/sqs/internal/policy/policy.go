// Package policy evaluates the access policies of queues.
package policy

import (
	"encoding/json"
	"slices"
	"strings"
)

// A Policy is a queue's access policy, restricted to the elements that matter for a topic
// that sends to the queue: Effect, Principal, Action, Resource, and the conditions on
// aws:SourceArn and aws:SourceAccount. A statement with another condition or element allows
// nothing.
type Policy struct {
	Version   string      `json:"Version,omitempty"`
	ID        string      `json:"Id,omitempty"`
	Statement []Statement `json:"Statement"`
}

// A Statement is a statement of a policy.
type Statement struct {
	Sid          string                      `json:"Sid,omitempty"`
	Effect       string                      `json:"Effect"`
	Principal    json.RawMessage             `json:"Principal,omitempty"`
	NotPrincipal json.RawMessage             `json:"NotPrincipal,omitempty"`
	Action       Texts                       `json:"Action,omitempty"`
	NotAction    Texts                       `json:"NotAction,omitempty"`
	Resource     Texts                       `json:"Resource,omitempty"`
	NotResource  Texts                       `json:"NotResource,omitempty"`
	Condition    map[string]map[string]Texts `json:"Condition,omitempty"`
}

// Texts is a string or a list of them.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = Texts{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// MarshalJSON implements json.Marshaler.
func (t Texts) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// Parse parses the attribute Policy, and reports whether it is valid. "" is none.
func Parse(text string) (_ *Policy, ok bool) {
	if text == "" {
		return nil, true
	}
	var raw struct {
		Policy
		Statement json.RawMessage `json:"Statement"`
	}
	p := &Policy{}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, false
	}
	p.Version, p.ID = raw.Version, raw.ID
	if json.Unmarshal(raw.Statement, &p.Statement) != nil {
		var one Statement // a single statement needs no list
		if json.Unmarshal(raw.Statement, &one) != nil {
			return nil, false
		}
		p.Statement = []Statement{one}
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return nil, false
		}
	}
	return p, true
}

// AllowsTopic reports whether a queue's policy lets a topic of an account send messages to
// it.
func (p *Policy) AllowsTopic(queue, topic, account string) bool {
	if p == nil {
		return false
	}
	allowed := false
	for i := range p.Statement {
		s := &p.Statement[i]
		if !s.applies(queue, topic, account) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = true
	}
	return allowed
}

func (s *Statement) applies(queue, topic, account string) bool {
	if s.NotPrincipal != nil || s.NotAction != nil || s.NotResource != nil || !s.isForSNS() {
		return false
	}
	isSend := func(action string) bool {
		return Wildcard(strings.ToLower(action), "sqs:sendmessage")
	}
	isQueue := func(resource string) bool { return Wildcard(resource, queue) }
	if !slices.ContainsFunc(s.Action, isSend) || !slices.ContainsFunc(s.Resource, isQueue) {
		return false
	}
	for operator, keys := range s.Condition {
		for key, values := range keys {
			have := ""
			switch strings.ToLower(key) {
			case "aws:sourcearn":
				have = topic
			case "aws:sourceaccount":
				have = account
			default:
				return false
			}
			holds := func(value string) bool { return compare(operator, value, have) }
			if !slices.ContainsFunc(values, holds) {
				return false
			}
		}
	}
	return true
}

// isForSNS reports whether the principal is SNS or anybody.
func (s *Statement) isForSNS() bool {
	var all string
	if json.Unmarshal(s.Principal, &all) == nil {
		return all == "*"
	}
	var kinds map[string]Texts
	if json.Unmarshal(s.Principal, &kinds) != nil {
		return false
	}
	return slices.Contains(kinds["AWS"], "*") || slices.Contains(kinds["Service"], "sns.amazonaws.com") || slices.Contains(kinds["Service"], "*")
}

func compare(operator, value, have string) bool {
	switch operator {
	case "StringEquals":
		return value == have
	case "ArnEquals", "ArnLike", "StringLike": // ArnEquals and ArnLike behave identically
		return Wildcard(value, have)
	case "StringEqualsIgnoreCase":
		return strings.EqualFold(value, have)
	default:
		return false
	}
}

// Wildcard reports whether a text matches a pattern, in which * stands for any characters
// and ? for one.
func Wildcard(pattern, text string) bool {
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
