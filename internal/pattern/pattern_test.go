package pattern_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/pattern"
)

func TestChoose(t *testing.T) {
	list := []string{"a-one", "a-two", "b-one"}
	for names, want := range map[string][]string{
		"all": list, "b-one,a-one": {"a-one", "b-one"}, "*-one": {"a-one", "b-one"}, "a-*,a-two": {"a-one", "a-two"},
	} {
		got, err := pattern.Choose(list, strings.Clone, names)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Choose(%q) = %q, %v, want %q", names, got, err, want)
		}
	}
	for _, names := range []string{"c", "a-one,c", "", "[", "a-one,"} {
		if got, err := pattern.Choose(list, strings.Clone, names); err == nil {
			t.Errorf("Choose(%q) = %q, want an error", names, got)
		}
	}
}
