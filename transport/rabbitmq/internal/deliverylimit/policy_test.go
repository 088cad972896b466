package deliverylimit

import (
	"encoding/json"
	"maps"
	"testing"
)

func TestOperatorPolicy(t *testing.T) {
	t.Parallel()
	newPolicy := func(name, pattern, applyTo string, priority int, definition string) *Policy {
		p := &Policy{Name: name, Pattern: pattern, ApplyTo: applyTo, Priority: priority}
		if err := json.Unmarshal([]byte(definition), &p.Definition); err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := map[string]*Policy{
		"everything":  newPolicy("everything", ".*", "all", 0, `{"delivery-limit":50}`),
		"queues":      newPolicy("queues", "^bill", "queues", 1, `{"max-length":50}`),
		"quorum":      newPolicy("quorum", "^bill", "quorum_queues", 2, `{"delivery-limit":40}`),
		"quorum too":  newPolicy("quorum too", "ing$", "quorum_queues", 2, `{"delivery-limit":30}`),
		"classic":     newPolicy("classic", ".*", "classic_queues", 9, `{"max-length":50}`),
		"exchanges":   newPolicy("exchanges", ".*", "exchanges", 9, `{}`),
		"others":      newPolicy("others", "^sales", "queues", 9, `{"delivery-limit":1}`),
		"unknown":     newPolicy("unknown", "^bil(?=ling)", "queues", 3, `{"delivery-limit":2}`), // Go has no such pattern
		"of no limit": newPolicy("of no limit", "^bill", "queues", 2, `{}`),
	}
	for _, c := range []struct {
		want string
		list []string
	}{
		{"", nil},
		{"", []string{"classic", "exchanges", "others"}},
		{"everything", []string{"classic", "everything"}},
		{"queues", []string{"everything", "queues", "exchanges"}},
		{"quorum", []string{"quorum", "everything", "queues"}},
		{"quorum too", []string{"quorum", "quorum too", "queues"}},
		{"quorum too", []string{"quorum too", "quorum"}},
		{"quorum", []string{"of no limit", "quorum"}},
		{"quorum", []string{"quorum", "of no limit"}},
		{"unknown", []string{"unknown", "quorum"}},
	} {
		var list []*Policy
		for _, name := range c.list {
			one := *all[name]
			one.Definition = maps.Clone(one.Definition)
			list = append(list, &one)
		}
		got := ""
		if p := OperatorPolicy(list, "billing"); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("of %v it is %q, want %q", c.list, got, c.want)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	got := command("rabbitmqctl", "set_policy", "it's", "", "$HOME `x`", "a-b.c/d_e", "^a$", "ü")
	if want := `rabbitmqctl set_policy 'it'\''s' '' '$HOME ` + "`x`" + `' a-b.c/d_e '^a$' 'ü'`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
