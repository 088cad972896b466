package deliverylimit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/version"
)

// NServiceBus's rule: exactly 100,000 from any source; without a limit a policy, from RabbitMQ
// 4.0 on; otherwise it does not start.
func TestCheckAsNServiceBus(t *testing.T) {
	t.Parallel()
	limit := func(n int) *int { return &n }
	user := func(definition string) *Policy {
		p := &Policy{Name: "P", Pattern: "^b", ApplyTo: "queues", Priority: 3}
		if err := json.Unmarshal([]byte(definition), &p.Definition); err != nil {
			t.Fatal(err)
		}
		return p
	}
	operators := func(definition string) *Policy {
		p := user(definition)
		p.Name, p.IsOperator = "O", true
		return p
	}
	for name, test := range map[string]struct {
		argument *int
		policies []*Policy
		want     State
		says     []string // nil: no error
	}{
		"no limit is set":                    {want: Missing},
		"an argument of 100,000":             {argument: limit(100_000), want: InForce},
		"its policy":                         {policies: []*Policy{user(`{"delivery-limit":100000}`)}, want: InForce},
		"an operator policy of 100,000":      {policies: []*Policy{operators(`{"delivery-limit":100000}`)}, want: InForce},
		"an operator policy about else":      {policies: []*Policy{operators(`{"max-length":7}`)}, want: Missing},
		"the lowest is 100,000":              {argument: limit(200_000), policies: []*Policy{user(`{"delivery-limit":100000}`)}, want: InForce},
		"another argument":                   {argument: limit(200_000), says: []string{"x-delivery-limit is 200000", "move its messages"}},
		"unlimited":                          {argument: limit(-1), says: []string{"x-delivery-limit is -1"}},
		"a foreign policy":                   {policies: []*Policy{user(`{"delivery-limit":50}`)}, says: []string{`the policy "P" says 50`, "rabbitmqctl set_policy", `{"delivery-limit":100000}`}},
		"a foreign policy about else":        {policies: []*Policy{user(`{"max-length":7}`)}, says: []string{`the policy "P" applies`, `{"delivery-limit":100000,"max-length":7}`}},
		"a lower operator policy":            {policies: []*Policy{user(`{"delivery-limit":100000}`), operators(`{"delivery-limit":50}`)}, says: []string{`the operator policy "O" says 50`, "set_operator_policy"}},
		"a policy of the wrong kind of text": {policies: []*Policy{user(`{"delivery-limit":"100000"}`)}, says: []string{"which says none"}},
	} {
		for _, v := range []version.Broker{{Major: 3, Minor: 10}, {Major: 3, Minor: 13}, {Major: 4}, {Major: 4, Minor: 3}, {Major: 5}, {}} {
			t.Run(fmt.Sprintf("%s on %v", name, v), func(t *testing.T) {
				c := &Queue{Name: "billing", VHost: "shop", Broker: v, Argument: test.argument, Policies: test.policies}
				got, err := c.CheckAsNServiceBus()
				if v.Major == 3 {
					if got != NotNeeded || err != nil {
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
