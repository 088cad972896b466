package policy

import "testing"

func TestPolicy_AllowsATopic(t *testing.T) {
	t.Parallel()
	const (
		queue = "arn:aws:sqs:us-east-1:1:q"
		topic = "arn:aws:sns:us-east-1:1:t"
		sns   = `"Principal":{"Service":"sns.amazonaws.com"}`
		rest  = `"Action":"sqs:SendMessage","Resource":"` + queue + `"`
		allow = `{"Effect":"Allow",` + sns + `,` + rest
		deny  = `{"Effect":"Deny",` + sns + `,` + rest
	)
	condition := func(operator, key, value string) string {
		return allow + `,"Condition":{"` + operator + `":{"` + key + `":` + value + `}}}`
	}
	for name, tt := range map[string]struct {
		statements string
		want       bool
	}{
		"no statement":               {``, false},
		"no condition":               {allow + `}`, true},
		"the topic":                  {condition("ArnEquals", "aws:SourceArn", `"`+topic+`"`), true},
		"the topic in a list":        {condition("ArnLike", "AWS:SourceArn", `["x","`+topic+`"]`), true},
		"a pattern":                  {condition("ArnLike", "aws:SourceArn", `"arn:aws:sns:*:1:t*"`), true},
		"another topic":              {condition("ArnEquals", "aws:SourceArn", `"`+topic+`2"`), false},
		"a pattern as text":          {condition("StringEquals", "aws:SourceArn", `"arn:aws:sns:*"`), false},
		"the account":                {condition("StringEquals", "aws:SourceAccount", `"1"`), true},
		"another account":            {condition("StringEquals", "aws:SourceAccount", `"2"`), false},
		"an unknown key":             {condition("StringEquals", "aws:Other", `"1"`), false},
		"an unknown operator":        {condition("Bool", "aws:SourceArn", `"`+topic+`"`), false},
		"denied":                     {allow + `},` + deny + `}`, false},
		"anybody":                    {`{"Effect":"Allow","Principal":"*",` + rest + `}`, true},
		"any account":                {`{"Effect":"Allow","Principal":{"AWS":"*"},` + rest + `}`, true},
		"another service":            {`{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},` + rest + `}`, false},
		"an account":                 {`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::1:root"},` + rest + `}`, false},
		"any action":                 {`{"Effect":"Allow",` + sns + `,"Action":"SQS:*","Resource":"*"}`, true},
		"another action":             {`{"Effect":"Allow",` + sns + `,"Action":"sqs:ReceiveMessage","Resource":"*"}`, false},
		"another queue":              {`{"Effect":"Allow",` + sns + `,"Action":"sqs:*","Resource":"` + queue + `2"}`, false},
		"an action that is excluded": {`{"Effect":"Allow",` + sns + `,"NotAction":"sqs:ReceiveMessage","Resource":"*"}`, false},
	} {
		p, ok := Parse(`{"Version":"2012-10-17","Statement":[` + tt.statements + `]}`)
		if !ok {
			t.Errorf("%s is refused", name)
			continue
		}
		if got := p.AllowsTopic(queue, topic, "1"); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
	if p, ok := Parse(`{"Statement":` + allow + `}}`); !ok || !p.AllowsTopic(queue, topic, "1") {
		t.Errorf("a statement without list: %v, %t", p, ok)
	}
	if (*Policy)(nil).AllowsTopic(queue, topic, "1") {
		t.Error("a queue without policy allows the topic")
	}
	for _, wrong := range []string{`{`, `{"Statement":1}`, `{"Statement":[{"Effect":"Maybe"}]}`} {
		if _, ok := Parse(wrong); ok {
			t.Errorf("%s is taken", wrong)
		}
	}
}

func TestWildcard_Patterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"*b*", "abc", true}, {"a*b*c", "aXbYbZc", true}, {"**", "x", true}, {"abc", "ab", false},
	} {
		if got := Wildcard(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%q with %q: %t, want %t", tt.pattern, tt.text, got, tt.want)
		}
	}
}
