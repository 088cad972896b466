package prefetch

import (
	"slices"
	"testing"
)

func length(text string) int { return len(text) }

// content takes everything out of a buffer.
func content(b *Buffer[string]) (all []string) {
	for b.Len() > 0 {
		all = append(all, b.Take())
	}
	return all
}

func TestBuffer_KeepsTheOrder(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b *Buffer[string])
		want   []string
	}{
		"pushed together":            {func(b *Buffer[string]) { b.Push("a", "b", "c") }, []string{"a", "b", "c"}},
		"pushed after one was taken": {func(b *Buffer[string]) { b.Push("a", "b"); b.Take(); b.Push("c") }, []string{"b", "c"}},
		"without the last":           {func(b *Buffer[string]) { b.Push("a", "b", "c"); b.TakeLast(2) }, []string{"a"}},
		"without all":                {func(b *Buffer[string]) { b.Push("a", "b"); b.Take(); b.TakeLast(1); b.Push("c") }, []string{"c"}},
	} {
		var b Buffer[string]
		test.change(&b)
		if n := b.Len(); n != len(test.want) {
			t.Errorf("%s: length %d, want %d", name, n, len(test.want))
		}
		if got := content(&b); !slices.Equal(got, test.want) {
			t.Errorf("%s: has %q, want %q", name, got, test.want)
		}
	}
}

func TestBuffer_TakeLastReturnsTheNewest(t *testing.T) {
	var b Buffer[string]
	b.Push("a", "b", "c")
	if got := b.TakeLast(2); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("took %q, want the two that arrived last", got)
	}
}

// A buffer that is never empty must neither grow nor keep the deliveries that were taken.
func TestBuffer_ReusesItsRoom(t *testing.T) {
	var b Buffer[*int]
	checkFree := func(after string) {
		t.Helper()
		free := append(slices.Clone(b.items[:b.head]), b.items[len(b.items):cap(b.items)]...)
		if i := slices.IndexFunc(free, func(p *int) bool { return p != nil }); i >= 0 {
			t.Fatalf("after %s, free place %d of %d keeps a delivery from the garbage collector", after, i, len(free))
		}
	}
	b.Push(new(int), new(int), new(int))
	for range 100 {
		b.Take()
		checkFree("Take")
		b.Push(new(int), new(int))
		checkFree("Push")
		b.TakeLast(1)
		checkFree("TakeLast")
	}
	if n := cap(b.items); n > 16 {
		t.Errorf("three deliveries take %d places", n)
	}
}

func TestBuffer_CountsBytes(t *testing.T) {
	b := Buffer[string]{Bytes: Bytes{Limit: 10}, Size: length}
	full := func(want bool) {
		t.Helper()
		if b.IsFull() != want {
			t.Errorf("full is %v with %d of 10 bytes, half of which is for the next fetch", b.IsFull(), b.bytes)
		}
	}
	b.Push("12", "34")
	full(false)
	b.Push("56")
	full(true)
	b.Take()
	full(false)
	b.Push("78")
	full(true)
	b.TakeLast(1)
	full(false)
}

func TestBuffer_WithoutLimitAsksForNoSize(t *testing.T) {
	b := Buffer[string]{Size: func(string) int { t.Error("the size was asked for"); return 0 }}
	b.Push("a", "b")
	b.Take()
	b.TakeLast(1)
	if b.IsFull() {
		t.Error("a buffer without a limit is full")
	}
}
