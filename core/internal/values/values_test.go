package values

import "testing"

func TestValues(t *testing.T) {
	var none *Values
	if got := none.Get("key"); got != nil {
		t.Errorf("without values: %v", got)
	}
	v := &Values{}
	v.Set("key", 1)
	if v.Get("key") != 1 || v.Get("other") != nil {
		t.Errorf("key %v, other %v", v.Get("key"), v.Get("other"))
	}
}
