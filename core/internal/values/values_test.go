package values

import "testing"

func TestValues(t *testing.T) {
	var none *Values
	if got := none.Get("key"); got != nil {
		t.Errorf("without values: %v", got)
	}
	v := &Values{}
	v.Set("key", 1)
	more := v.With("other", 2)
	if v.Get("key") != 1 || v.Get("other") != nil || more.Get("key") != 1 || more.Get("other") != 2 {
		t.Errorf("key %v and %v, other %v and %v", v.Get("key"), more.Get("key"), v.Get("other"), more.Get("other"))
	}
	if got := none.With("key", 3).Get("key"); got != 3 {
		t.Errorf("with a value: %v", got)
	}
}
