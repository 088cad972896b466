package transport_test

import (
	"sync"
	"testing"

	"github.com/reprise-go/reprise/transport"
)

func TestCache_ForgetsTheLeastRecentlyUsed(t *testing.T) {
	c := transport.NewCache[string, int](2)
	c.Put("a", 1)
	c.Put("b", 2)
	if value, ok := c.Get("a"); !ok || value != 1 {
		t.Errorf("a is %d, %t", value, ok)
	}
	c.Put("c", 3)
	if _, ok := c.Get("b"); ok || c.Len() != 2 {
		t.Errorf("b is in a cache of %d entries", c.Len())
	}
	c.Delete("a")
	if _, ok := c.Get("a"); ok || c.Len() != 1 {
		t.Errorf("a is in a cache of %d entries", c.Len())
	}
}

func TestCache_ConcurrentUse(t *testing.T) {
	c := transport.NewCache[int, int](10)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				c.Put(i%20, i%20)
				if value, ok := c.Get(worker); ok && value != worker {
					t.Errorf("%d has the value %d", worker, value)
				}
				c.Delete(i % 7)
			}
		})
	}
	wg.Wait()
	if c.Len() > 10 {
		t.Errorf("%d entries", c.Len())
	}
}

func TestCache_Resize(t *testing.T) {
	c := transport.NewCache[int, string](1)
	c.Resize(3)
	for i := range 4 {
		c.Put(i, "")
	}
	c.Resize(2)
	for i := range 4 {
		if _, ok := c.Get(i); ok != (i >= 2) {
			t.Errorf("entry %d is there: %v", i, ok)
		}
	}
}
