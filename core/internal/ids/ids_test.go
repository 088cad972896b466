package ids

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var (
	uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	uuid8 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
)

func TestNew_IsAUniqueUUID(t *testing.T) {
	seen := map[string]bool{}
	for range 20_000 {
		id := New()
		if !uuid7.MatchString(id) {
			t.Fatalf("%q is no UUID of version 7", id)
		}
		if seen[id] {
			t.Fatalf("%q comes twice", id)
		}
		seen[id] = true
	}
}

func TestNew_IsInTheOrderOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for range 1000 {
			ids = append(ids, New())
			time.Sleep(time.Millisecond)
		}
		if !slices.IsSorted(ids) {
			t.Error("not sorted")
		}
	})
}

// Rule R20.
func TestHandlerSends_DerivedIDs(t *testing.T) {
	t.Run("are the same at every attempt", func(t *testing.T) {
		// As a fixed text, because it must also hold across versions and machines.
		const want = "d37f9788-8908-8231-a4d9-83a918550eb6"
		for range 3 {
			if got := Derived("m1", "billing", 1); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
	t.Run("differ by message, endpoint and number", func(t *testing.T) {
		seen := map[string]string{}
		for _, message := range []string{"", "m1", "m11", "M1"} {
			for _, endpoint := range []string{"", "billing", "billin", "billing/failed", "1"} {
				for _, n := range []int{0, 1, 2, 11, 1 << 40, -1} {
					id, key := Derived(message, endpoint, n), fmt.Sprintf("%q %q %d", message, endpoint, n)
					if !uuid8.MatchString(id) {
						t.Errorf("%q is no UUID of version 8", id)
					}
					if other, ok := seen[id]; ok {
						t.Errorf("%s and %s have the same id", key, other)
					}
					seen[id] = key
				}
			}
		}
	})
	t.Run("do not run together where the parts meet", func(t *testing.T) {
		if Derived("b", "a", 1) == Derived("", "ab", 1) || Derived("ab", "", 1) == Derived("b", "a", 1) {
			t.Error("they do")
		}
	})
}
