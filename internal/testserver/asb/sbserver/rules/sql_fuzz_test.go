package rules

import (
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
)

// FuzzSQL has filters and actions parsed and evaluated: none of them panics.
func FuzzSQL(f *testing.F) {
	for _, seed := range []string{
		"color = 'red' AND NOT (a IN (1, 2.5e3) OR sys.Label LIKE '%x\\%' ESCAPE '\\')", "[a]]b] IS NOT NULL", "-a % 0 = 1 / 0", "EXISTS(x)",
		"SET a = newid() + 'x'; REMOVE sys.To", "SET n = property(p('a')) * 2", "'", "[", "@p", "((((", "a NOT", "1e", "1.", ".5 = .5",
	} {
		f.Add(seed)
	}
	message := content.New(&amqp10.Message{ApplicationProperties: map[string]any{"color": "red", "a": int64(1), "x": nil}}, 100)
	f.Fuzz(func(t *testing.T, expression string) {
		for _, r := range []Rule{
			{Filter: SQLFilter{Expression: expression, Parameters: map[string]any{"@p": "x"}}},
			{Action: &Action{Expression: expression}},
		} {
			prepared, err := Prepare(r)
			if err == nil {
				_, _, _ = prepared.Select(message) // an error is the message's fault
			} else if condition.Of(err) != condition.Argument {
				t.Fatal(err)
			}
		}
	})
}
