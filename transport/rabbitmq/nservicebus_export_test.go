package rabbitmq

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// NServiceBus's rule: exactly 100,000 from any source; without a limit a policy, from RabbitMQ
// 4.0 on; otherwise it does not start.
func TestLimitPolicy_Decision(t *testing.T) {
	t.Parallel()
	limit := func(n int) *int { return &n }
	user := func(definition string) *policy {
		p := &policy{Name: "P", Pattern: "^b", ApplyTo: "queues", Priority: 3}
		if err := json.Unmarshal([]byte(definition), &p.Definition); err != nil {
			t.Fatal(err)
		}
		return p
	}
	operators := func(definition string) *policy {
		p := user(definition)
		p.Name, p.isOperator = "O", true
		return p
	}
	for name, test := range map[string]struct {
		argument *int
		policies []*policy
		want     limitState
		says     []string // nil: no error
	}{
		"no limit is set":                    {want: limitMissing},
		"an argument of 100,000":             {argument: limit(100_000), want: limitInForce},
		"its policy":                         {policies: []*policy{user(`{"delivery-limit":100000}`)}, want: limitInForce},
		"an operator policy of 100,000":      {policies: []*policy{operators(`{"delivery-limit":100000}`)}, want: limitInForce},
		"an operator policy about else":      {policies: []*policy{operators(`{"max-length":7}`)}, want: limitMissing},
		"the lowest is 100,000":              {argument: limit(200_000), policies: []*policy{user(`{"delivery-limit":100000}`)}, want: limitInForce},
		"another argument":                   {argument: limit(200_000), says: []string{"x-delivery-limit is 200000", "move its messages"}},
		"unlimited":                          {argument: limit(-1), says: []string{"x-delivery-limit is -1"}},
		"a foreign policy":                   {policies: []*policy{user(`{"delivery-limit":50}`)}, says: []string{`the policy "P" says 50`, "rabbitmqctl set_policy", `{"delivery-limit":100000}`}},
		"a foreign policy about else":        {policies: []*policy{user(`{"max-length":7}`)}, says: []string{`the policy "P" applies`, `{"delivery-limit":100000,"max-length":7}`}},
		"a lower operator policy":            {policies: []*policy{user(`{"delivery-limit":100000}`), operators(`{"delivery-limit":50}`)}, says: []string{`the operator policy "O" says 50`, "set_operator_policy"}},
		"a policy of the wrong kind of text": {policies: []*policy{user(`{"delivery-limit":"100000"}`)}, says: []string{"which says none"}},
	} {
		for _, v := range []version{{3, 10}, {3, 13}, {4, 0}, {4, 3}, {5, 0}, {}} {
			t.Run(fmt.Sprintf("%s on %v", name, v), func(t *testing.T) {
				c := &limitCheck{queue: "billing", vhost: "shop", broker: v, argument: test.argument, policies: test.policies}
				got, err := c.checkAsNServiceBus()
				if v.major == 3 {
					if got != limitNotNeeded || err != nil {
						t.Errorf("%d, %v; want no policy before 4.0", got, err)
					}
					return
				}
				if got != test.want && test.says == nil || (err != nil) != (test.says != nil) {
					t.Fatalf("%d, %v; want %d", got, err, test.want)
				}
				for _, word := range test.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the error does not say %q: %v", word, err)
					}
				}
			})
		}
	}
}
