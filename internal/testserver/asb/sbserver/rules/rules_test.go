package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
)

// refuses fails the test unless a rule was refused.
func refuses(t *testing.T, expression string, err error) {
	t.Helper()
	if err == nil || condition.Of(err) != condition.Argument {
		t.Errorf("%q: the error %v, want the condition %s", expression, err, condition.Argument)
	}
}

func TestFilter(t *testing.T) {
	message := content.New(&amqp10.Message{
		Properties: &amqp10.MessageProperties{
			MessageID: "m1", CorrelationID: "c1", Subject: new("label"), To: new("to"), ReplyTo: new("reply"),
			ReplyToGroupID: new("rs"), GroupID: new("s1"), ContentType: new("application/json"),
		},
		ApplicationProperties: map[string]any{
			"color": "red", "Size": int32(10), "price": 2.5, "big": true, "small": uint8(3), "Some.Name": "x",
			"types": "Ns.A;Ns.B", "percent": "50%", "at": time.Now(),
		},
	}, 100)
	sql := func(expression string) Filter { return SQLFilter{Expression: expression} }
	tests := []struct {
		filter Filter
		want   bool
	}{
		{nil, true},
		{TrueFilter{}, true},
		{FalseFilter{}, false},

		{CorrelationFilter{}, true},
		{CorrelationFilter{Subject: new("label")}, true},
		{CorrelationFilter{Subject: new("Label")}, false},
		{CorrelationFilter{MessageID: new("m1"), CorrelationID: new("c1"), To: new("to"), ReplyTo: new("reply"),
			ReplyToSessionID: new("rs"), SessionID: new("s1"), ContentType: new("application/json")}, true},
		{CorrelationFilter{MessageID: new("m1"), CorrelationID: new("c2")}, false},
		{CorrelationFilter{Properties: map[string]any{"color": "red", "Size": int64(10), "big": true}}, true},
		{CorrelationFilter{Properties: map[string]any{"color": "red", "Size": int64(11)}}, false},
		{CorrelationFilter{Properties: map[string]any{"missing": "x"}}, false},
		{CorrelationFilter{Subject: new("label"), Properties: map[string]any{"color": "blue"}}, false},

		{sql("1=1"), true},
		{sql("1=0"), false},
		{sql("color = 'red'"), true},
		{sql("COLOR='red'"), true},
		{sql("user.color = 'red'"), true},
		{sql("[color] = 'red'"), true},
		{sql(`"color" = 'red'`), true},
		{sql("[Some.Name] = 'x'"), true},
		{sql("color = 'Red'"), false},
		{sql("color <> 'blue'"), true},
		{sql("color != 'red'"), false},
		{sql("color > 'blue' AND color < 'yellow'"), true},
		{sql("sys.Label = 'label'"), true},
		{sql("sys.label LIKE 'la%'"), true},
		{sql("sys.MessageId = 'm1' AND sys.CorrelationId = 'c1' AND sys.SessionId = 's1'"), true},
		{sql("sys.PartitionKey IS NULL"), true},
		{sql("Size = 10"), true},
		{sql("Size >= 10 AND Size <= 10.0"), true},
		{sql("Size > 10 OR Size < 10"), false},
		{sql("price * 4 = Size"), true},
		{sql("Size % 3 = 1 AND Size / 3 = 3 AND Size - 1 + 2 = 11"), true},
		{sql("-Size = -10"), true},
		{sql("2 + 3 * 4 = 14 AND (2 + 3) * 4 = 20"), true},
		{sql("big = TRUE"), true},
		{sql("big <> FALSE AND small = 3"), true},
		{sql("price = 0.25E1"), true},
		{sql("color IN ('blue', 'red')"), true},
		{sql("color NOT IN ('blue', 'red')"), false},
		{sql("Size IN (1, 10)"), true},
		{sql("missing IN ('a')"), false},
		{sql("missing NOT IN ('a')"), false}, // unknown
		{sql("missing IS NULL"), true},
		{sql("missing IS NOT NULL"), false},
		{sql("color IS NOT NULL"), true},
		{sql("EXISTS(color)"), true},
		{sql("EXISTS(user.missing)"), false},
		{sql("NOT EXISTS(missing)"), true},
		{sql("missing = 'x'"), false},
		{sql("NOT missing = 'x'"), false}, // unknown
		{sql("missing = 'x' OR color = 'red'"), true},
		{sql("NOT (missing = 'x' AND color = 'blue')"), true},
		{sql("missing = 'x' AND color = 'red'"), false},
		{sql("missing + 1 = 2"), false},
		{sql("types LIKE '%Ns.B%'"), true},
		{sql("types LIKE 'Ns._;Ns._'"), true},
		{sql("types LIKE 'Ns.B'"), false},
		{sql("types NOT LIKE '%C%'"), true},
		{sql(`percent LIKE '50\%' ESCAPE '\'`), true},
		{sql(`types LIKE '%\%' ESCAPE '\'`), false},
		{sql("color = 'it''s' OR color = 'red'"), true},
		{sql("color = 'red' OR color = 'blue' AND Size = 11"), true},
		{sql("(color = 'red' OR color = 'blue') AND Size = 11"), false},
		{sql("NOT color = 'blue' AND NOT (Size = 11)"), true},
		{sql("property('color') = 'red' AND p('Size') = 10"), true},
		{sql("newid() = newid()"), false},
		{SQLFilter{Expression: "color = @c AND Size < @s", Parameters: map[string]any{"@c": "red", "@s": int32(11)}}, true},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.filter), func(t *testing.T) {
			r, err := Prepare(Rule{Filter: test.filter})
			if err != nil {
				t.Fatal(err)
			}
			if c, ok, err := r.Select(message); ok != test.want || err != nil || c != message {
				t.Errorf("selected: %t, %v, want %t", ok, err, test.want)
			}
		})
	}
}

func TestFilter_Invalid(t *testing.T) {
	long := "color = '" + string(make([]byte, 1024)) + "'"
	deep := ""
	for range 300 {
		deep += "("
	}
	for _, expression := range []string{
		"", "color =", "= 'a'", "color = 'a", "[color = 'a'", "color 'a'", "color = 'a' b", "color IN ()", "color IN ('a'", "color LIKE", "color IS 1",
		"color NOT = 'a'", "EXISTS color", "sys.Nonsense = 1", "other.color = 1", "AND = 1", "color = @missing", "f(1) = 1", "color = # 1", "(1=1", "1=1\x00", long, deep,
	} {
		t.Run(expression[:min(len(expression), 20)], func(t *testing.T) {
			_, err := Prepare(Rule{Filter: SQLFilter{Expression: expression}})
			refuses(t, expression, err)
		})
	}
}

func TestActions_Invalid(t *testing.T) {
	for _, expression := range []string{"", "SET", "SET a", "SET a = ", "color = 1", "REMOVE", "SET sys.Size = 1", "SET sys.Nonsense = 1", "SET a = 1 b"} {
		_, err := Prepare(Rule{Action: &Action{Expression: expression}})
		refuses(t, expression, err)
	}
}

func TestValues_OfOtherTypesAreRefused(t *testing.T) {
	other := map[string]any{"a": struct{}{}}
	for name, r := range map[string]Rule{
		"correlation": {Filter: CorrelationFilter{Properties: other}},
		"SQL":         {Filter: SQLFilter{Expression: "1=1", Parameters: other}},
		"action":      {Action: &Action{Expression: "SET a = 1", Parameters: other}},
	} {
		_, err := Prepare(r)
		refuses(t, name, err)
	}
}

func TestSelect_ActionChangesACopy(t *testing.T) {
	original := content.New(&amqp10.Message{
		Properties: &amqp10.MessageProperties{To: new("x")}, ApplicationProperties: map[string]any{"Color": "red", "size": int32(10), "other": "x"},
	}, 100)
	r, err := Prepare(Rule{Name: "r", Action: &Action{
		Expression: "SET color = @c; SET sys.Label = 'l' SET n = Size / 2, REMOVE Other; REMOVE sys.To; SET sys.CorrelationId = property('color')",
		Parameters: map[string]any{"@c": "blue"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	changed, ok, err := r.Select(original)
	if !ok || err != nil {
		t.Fatalf("selected: %t, %v", ok, err)
	}
	want := map[string]any{"Color": "blue", "size": int32(10), "n": int64(5), "RuleName": "r"}
	if got := changed.AMQP.ApplicationProperties; !reflect.DeepEqual(got, want) {
		t.Errorf("the properties are %v, want %v", got, want)
	}
	if p := changed.AMQP.Properties; p.To != nil || *p.Subject != "l" || p.CorrelationID != any("blue") {
		t.Errorf("the properties of the message are %+v", p)
	}
	if original.AMQP.ApplicationProperties["Color"] != any("red") || *original.AMQP.Properties.To != "x" {
		t.Error("the action has changed the original")
	}
}

func TestSelect_FailsForValuesThatCannotBeCompared(t *testing.T) {
	message := content.New(&amqp10.Message{ApplicationProperties: map[string]any{"color": "red"}}, 100)
	for _, r := range []Rule{
		{Filter: SQLFilter{Expression: "color > 5"}},
		{Action: &Action{Expression: "SET a = color / 2"}},
	} {
		prepared, err := Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := prepared.Select(message); ok || err == nil {
			t.Errorf("%+v selects the message: %t, %v", r, ok, err)
		}
	}
}

func TestRecord_RestoresTheRule(t *testing.T) {
	for _, want := range []Rule{
		{Name: "all", Filter: TrueFilter{}},
		{Name: "none", Filter: FalseFilter{}},
		{Name: "correlation", Filter: CorrelationFilter{Subject: new("s"), Properties: map[string]any{"n": int64(1), "t": true}}},
		{Name: "SQL", Filter: SQLFilter{Expression: "a = @a", Parameters: map[string]any{"@a": 2.5}}},
		{Name: "action", Filter: TrueFilter{}, Action: &Action{Expression: "SET a = @a", Parameters: map[string]any{"@a": "x"}}},
	} {
		record := NewRecord(&want)
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		var read Record
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if got, err := read.Rule(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	if _, err := (&Record{Filter: "nonsense"}).Rule(); err == nil {
		t.Error("a filter that is not known is restored")
	}
}
