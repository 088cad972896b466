// Package nservicebus compares messages written by an adapter with messages that NServiceBus
// wrote in the same situation, for the tests of the adapters.
package nservicebus

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Kind is a kind of difference between two messages.
type Kind int

const (
	// Missing: NServiceBus writes the field, Reprise does not.
	Missing Kind = iota
	// Added: Reprise writes the field, NServiceBus does not.
	Added
	// Differs: both write the field, with different values.
	Differs
)

// String implements fmt.Stringer.
func (k Kind) String() string { return [...]string{"missing", "added", "differs"}[k] }

// Allowed is a difference that a test accepts.
type Allowed struct {
	// Situations are the situations in which the difference is accepted. None: all.
	Situations []string
	// Name is the name of a field of the messages. A star at its end stands for any text.
	Name string
	Kind Kind
	// Form must match all differing values, on both sides. nil: any value.
	Form *regexp.Regexp
	// Optional is for a difference that does not occur everywhere: it depends on the machine,
	// or on the release of the broker.
	Optional bool
	// Reason says why the difference does no harm.
	Reason string
}

// Forms of values that differ from message to message.
var (
	// Time is a time as NServiceBus writes it in headers.
	Time = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z$`)
	// ID is a GUID, or 32 hexadecimal digits.
	ID = regexp.MustCompile(`^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)
)

// Comparison is a table of allowed differences, and records the observed ones. Its methods
// are safe for concurrent use.
type Comparison struct {
	Table []Allowed

	mu   sync.Mutex
	seen map[int]bool
}

// Compare fails the test for each field of the two messages that differs and is not in the
// table. Fields are headers and properties by their names.
func (c *Comparison) Compare(t testing.TB, situation string, theirs, ours map[string]string) {
	t.Helper()
	for _, difference := range c.differences(situation, theirs, ours) {
		t.Errorf("%s: %s", situation, difference)
	}
}

func (c *Comparison) differences(situation string, theirs, ours map[string]string) (found []string) {
	names := map[string]string{}
	maps.Copy(names, theirs)
	maps.Copy(names, ours)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		their, has := theirs[name]
		our, have := ours[name]
		switch {
		case has && have && their == our:
		case has && have:
			if !c.allowed(situation, name, Differs, their, our) {
				found = append(found, fmt.Sprintf("%s is %q, NServiceBus wrote %q", name, our, their))
			}
		case has:
			if !c.allowed(situation, name, Missing, their) {
				found = append(found, fmt.Sprintf("%s is missing, NServiceBus wrote %q", name, their))
			}
		default:
			if !c.allowed(situation, name, Added, our) {
				found = append(found, fmt.Sprintf("%s is %q, NServiceBus does not write it", name, our))
			}
		}
	}
	return found
}

func (c *Comparison) allowed(situation, name string, kind Kind, values ...string) bool {
	for i, a := range c.Table {
		prefix, open := strings.CutSuffix(a.Name, "*")
		switch {
		case a.Kind != kind,
			len(a.Situations) > 0 && !slices.Contains(a.Situations, situation),
			name != a.Name && !(open && strings.HasPrefix(name, prefix)),
			a.Form != nil && slices.ContainsFunc(values, func(v string) bool { return !a.Form.MatchString(v) }):
			continue
		}
		c.saw(i)
		return true
	}
	return false
}

func (c *Comparison) saw(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[int]bool{}
	}
	c.seen[i] = true
}

// Used fails the test for each difference of the table that was never observed, unless it is
// optional, and for each difference without a reason: a table that allows too much proves too
// little.
func (c *Comparison) Used(t testing.TB) {
	t.Helper()
	for _, fault := range c.unused() {
		t.Error(fault)
	}
}

func (c *Comparison) unused() (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range c.Table {
		if !c.seen[i] && !a.Optional {
			found = append(found, fmt.Sprintf("the table allows that %s %v in %q, which was not seen", a.Name, a.Kind, a.Situations))
		}
		if a.Reason == "" {
			found = append(found, fmt.Sprintf("the table allows that %s %v without a reason", a.Name, a.Kind))
		}
	}
	return found
}
