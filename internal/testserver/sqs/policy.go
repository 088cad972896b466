//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"slices"
	"strings"
)

// A policy is a queue's access policy, restricted to the elements that matter for a topic
// that sends to the queue: Effect, Principal, Action, Resource, and the conditions on
// aws:SourceArn and aws:SourceAccount. A statement with another condition or element allows
// nothing.
type policy struct {
	Version   string      `json:"Version,omitempty"`
	ID        string      `json:"Id,omitempty"`
	Statement []statement `json:"Statement"`
}

type statement struct {
	Sid          string                      `json:"Sid,omitempty"`
	Effect       string                      `json:"Effect"`
	Principal    json.RawMessage             `json:"Principal,omitempty"`
	NotPrincipal json.RawMessage             `json:"NotPrincipal,omitempty"`
	Action       texts                       `json:"Action,omitempty"`
	NotAction    texts                       `json:"NotAction,omitempty"`
	Resource     texts                       `json:"Resource,omitempty"`
	NotResource  texts                       `json:"NotResource,omitempty"`
	Condition    map[string]map[string]texts `json:"Condition,omitempty"`
}

// texts is a string or a list of them.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// MarshalJSON implements json.Marshaler.
func (t texts) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// parsePolicy parses the attribute Policy. "" is none.
func parsePolicy(text string) (*policy, *apiError) {
	if text == "" {
		return nil, nil
	}
	var raw struct {
		policy
		Statement json.RawMessage `json:"Statement"`
	}
	p := &policy{}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, invalidAttribute("Policy", "")
	}
	p.Version, p.ID = raw.Version, raw.ID
	if json.Unmarshal(raw.Statement, &p.Statement) != nil {
		var one statement // a single statement needs no list
		if json.Unmarshal(raw.Statement, &one) != nil {
			return nil, invalidAttribute("Policy", "")
		}
		p.Statement = []statement{one}
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return nil, invalidAttribute("Policy", "")
		}
	}
	return p, nil
}

// allowsTopic reports whether a queue's policy lets a topic of an account send messages to
// it.
func (p *policy) allowsTopic(queue, topic, account string) bool {
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

func (s *statement) applies(queue, topic, account string) bool {
	if s.NotPrincipal != nil || s.NotAction != nil || s.NotResource != nil || !s.isForSNS() {
		return false
	}
	isSend := func(action string) bool {
		return wildcard(strings.ToLower(action), "sqs:sendmessage")
	}
	isQueue := func(resource string) bool { return wildcard(resource, queue) }
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
func (s *statement) isForSNS() bool {
	var all string
	if json.Unmarshal(s.Principal, &all) == nil {
		return all == "*"
	}
	var kinds map[string]texts
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
		return wildcard(value, have)
	case "StringEqualsIgnoreCase":
		return strings.EqualFold(value, have)
	default:
		return false
	}
}

// wildcard reports whether a text matches a pattern, in which * stands for any characters
// and ? for one.
func wildcard(pattern, text string) bool {
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
