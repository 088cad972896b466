package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHeap_KeepsItsOrder(t *testing.T) {
	t.Parallel()
	type item struct{ key, at int }
	random := rand.New(rand.NewPCG(1, 2))
	h := Heap[*item]{
		Less:  func(a, b *item) bool { return a.key < b.key },
		Index: func(x *item, i int) { x.at = i },
	}
	var all []*item
	check := func() {
		for i, x := range h.Items {
			if x.at != i {
				t.Fatalf("item %d has the index %d", i, x.at)
			}
			if parent := h.Items[(i-1)/2]; i > 0 && x.key < parent.key {
				t.Fatalf("item %d is less than its parent", i)
			}
		}
	}
	for range 3000 {
		switch n := random.IntN(5); {
		case n < 2 || len(all) == 0:
			x := &item{key: random.IntN(1000)}
			all = append(all, x)
			h.Push(x)
		case n == 2:
			i := random.IntN(len(all))
			if removed := h.Remove(all[i].at); removed != all[i] || removed.at != -1 {
				t.Fatalf("removed %v, want %v with the index -1", removed, all[i])
			}
			all = slices.Delete(all, i, i+1)
		default:
			x := all[random.IntN(len(all))]
			x.key = random.IntN(1000)
			h.Fix(x.at)
		}
		check()
	}
	slices.SortFunc(all, func(a, b *item) int { return a.key - b.key })
	for _, want := range all {
		first, ok := h.Peek()
		if !ok || first.key != want.key {
			t.Fatalf("the least is %v, want %d", first, want.key)
		}
		h.Remove(0)
	}
	if _, ok := h.Peek(); ok {
		t.Error("an empty heap has a least item")
	}
}
