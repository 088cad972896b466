package compare

import "testing"

func TestInTurn(t *testing.T) {
	order := ""
	got, err := InTurn([]string{"A", "B"}, 3, func(s string) (int, error) {
		order += s
		return len(order), nil
	})
	if err != nil || order != "ABABAB" {
		t.Fatalf("samples were taken in the order %q, %v", order, err)
	}
	if a, b := got[0], got[1]; a[0] != 1 || a[2] != 5 || b[0] != 2 || b[2] != 6 {
		t.Errorf("the results are %v", got)
	}
}
