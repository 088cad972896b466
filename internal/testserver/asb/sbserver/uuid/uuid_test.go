package uuid

import (
	"regexp"
	"testing"
)

func TestNew_IsARandomUUID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if a, b := New(), New(); a == b || !form.MatchString(a.String()) {
		t.Errorf("%s and %s", a, b)
	}
}
