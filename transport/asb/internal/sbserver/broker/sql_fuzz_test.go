package broker_test

import (
	"testing"

	"github.com/reprise-go/reprise/transport/asb/internal/sbserver/broker"
)

// FuzzSQL has filters and actions parsed and evaluated: none of them makes the broker panic.
func FuzzSQL(f *testing.F) {
	for _, seed := range []string{
		"color = 'red' AND NOT (a IN (1, 2.5e3) OR sys.Label LIKE '%x\\%' ESCAPE '\\')", "[a]]b] IS NOT NULL", "-a % 0 = 1 / 0", "EXISTS(x)",
		"SET a = newid() + 'x'; REMOVE sys.To", "SET n = property(p('a')) * 2", "'", "[", "@p", "((((", "a NOT", "1e", "1.", ".5 = .5",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		n := withTopic(t, broker.Rule{})
		filter := broker.SQLFilter{Expression: expression, Parameters: map[string]any{"@p": "x"}}
		if err := n.CreateRule("t", "s", broker.Rule{Name: "f", Filter: filter}); err != nil && broker.Condition(err) != broker.CondArgument {
			t.Fatal(err)
		}
		action := &broker.Action{Expression: expression}
		if err := n.CreateRule("t", "s", broker.Rule{Name: "a", Action: action}); err != nil && broker.Condition(err) != broker.CondArgument {
			t.Fatal(err)
		}
		n.send("t", "x", withProperty("color", "red"), withProperty("a", int64(1)), withProperty("x", nil))
	})
}
