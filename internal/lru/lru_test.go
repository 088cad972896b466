package lru_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/internal/lru"
)

func TestCache_ForgetsTheLeastRecentlyUsed(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(c *lru.Cache[string, int])
		gone string
	}{
		{"the first put", func(*lru.Cache[string, int]) {}, "a"},
		{"not one that was got", func(c *lru.Cache[string, int]) { c.Get("a") }, "b"},
		{"not one that was put again", func(c *lru.Cache[string, int]) { c.Put("a", 9); c.Get("b") }, "c"},
		{"getting what is not there changes nothing", func(c *lru.Cache[string, int]) { c.Get("z") }, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := lru.New[string, int](3)
			for i, key := range []string{"a", "b", "c"} {
				c.Put(key, i)
			}
			test.use(c)
			c.Put("d", 3)
			for _, key := range []string{"a", "b", "c", "d"} {
				if _, ok := c.Get(key); ok == (key == test.gone) {
					t.Errorf("%s is there: %v", key, ok)
				}
			}
			if c.Len() != 3 {
				t.Errorf("%d entries", c.Len())
			}
		})
	}
}

func TestCache_PutOverwrites(t *testing.T) {
	c := lru.New[string, int](2)
	c.Put("a", 1)
	c.Put("a", 2)
	if value, ok := c.Get("a"); value != 2 || !ok || c.Len() != 1 {
		t.Errorf("%d, %v, %d entries", value, ok, c.Len())
	}
}

func TestCache_Delete(t *testing.T) {
	c := lru.New[string, int](2)
	c.Delete("a")
	c.Put("a", 1)
	c.Put("b", 2)
	c.Delete("a")
	if value, ok := c.Get("a"); value != 0 || ok || c.Len() != 1 {
		t.Errorf("%d, %v, %d entries", value, ok, c.Len())
	}
	c.Put("c", 3)
	if _, ok := c.Get("b"); !ok {
		t.Error("the place of a deleted entry is not free")
	}
}

func TestCache_Oldest(t *testing.T) {
	c := lru.New[string, int](3)
	if _, _, ok := c.Oldest(); ok {
		t.Error("an empty cache has one")
	}
	for i, key := range []string{"a", "b", "c"} {
		c.Put(key, i)
	}
	c.Get("a")
	for range 2 { // asking does not use it
		if key, value, ok := c.Oldest(); key != "b" || value != 1 || !ok {
			t.Errorf("%s, %d, %v", key, value, ok)
		}
	}
	c.Put("d", 3)
	if key, _, _ := c.Oldest(); key != "c" {
		t.Errorf("%s", key)
	}
}

func TestCache_Resize(t *testing.T) {
	c := lru.New[int, int](4)
	for i := range 4 {
		c.Put(i, i)
	}
	c.Resize(2)
	if _, ok := c.Get(1); ok || c.Len() != 2 {
		t.Errorf("%d entries", c.Len())
	}
	c.Resize(3)
	c.Put(9, 9)
	if _, ok := c.Get(2); !ok || c.Len() != 3 {
		t.Errorf("%d entries", c.Len())
	}
	for _, capacity := range []int{0, -7} {
		c.Resize(capacity)
		if c.Len() != 1 {
			t.Errorf("capacity %d: %d entries", capacity, c.Len())
		}
		if small := lru.New[int, int](capacity); small != nil {
			small.Put(1, 1)
			small.Put(2, 2)
			if _, ok := small.Get(2); !ok || small.Len() != 1 {
				t.Errorf("capacity %d: %d entries", capacity, small.Len())
			}
		}
	}
}

// TestCache_AgreesWithAList plays random calls against a list that is searched from
// its front.
func TestCache_AgreesWithAList(t *testing.T) {
	const capacity = 8
	type pair struct{ key, value int }
	random := rand.New(rand.NewPCG(1, 2))
	c := lru.New[int, int](capacity)
	var model []pair // the most recently used first
	for step := range 20_000 {
		key := random.IntN(16)
		at := slices.IndexFunc(model, func(p pair) bool { return p.key == key })
		var used pair
		if at >= 0 {
			used = model[at]
		}
		switch random.IntN(3) {
		case 0:
			value, ok := c.Get(key)
			if ok != (at >= 0) || value != used.value {
				t.Fatalf("step %d: Get(%d) = %d, %v, want %v", step, key, value, ok, used)
			}
			if at < 0 {
				continue
			}
			model = slices.Insert(slices.Delete(model, at, at+1), 0, used)
		case 1:
			c.Put(key, step)
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			}
			model = slices.Insert(model, 0, pair{key, step})
			model = model[:min(len(model), capacity)]
		case 2:
			c.Delete(key)
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			}
		}
		if c.Len() != len(model) {
			t.Fatalf("step %d: %d entries, want %d", step, c.Len(), len(model))
		}
	}
}
