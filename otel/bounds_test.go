package otelreprise

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/internal/leaks"
)

func TestBounds_TheFirstPass(t *testing.T) {
	var b bounds
	var mu sync.Mutex
	told := map[string]int{}
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			name := b.errorType(fmt.Sprint("error ", i))
			mu.Lock()
			defer mu.Unlock()
			told[name]++
		})
	}
	wg.Wait()
	if len(told) != maxErrorTypes+1 || told[other] != 300-maxErrorTypes {
		t.Errorf("%d names, %d times %s; want %d and %d", len(told), told[other], other, maxErrorTypes+1, 300-maxErrorTypes)
	}
	for name := range told {
		if name != other && b.errorType(name) != name {
			t.Errorf("%s is told as %s the second time", name, b.errorType(name))
		}
	}
}

func TestCache_IsBounded(t *testing.T) {
	var c cache[int, int]
	for range 2 {
		for i := range 2 * maxCached {
			if got := c.get(i, func() int { return -i }); got != -i {
				t.Fatalf("entry %d is %d", i, got)
			}
		}
	}
	if n := len(*c.entries.Load()); n != maxCached {
		t.Errorf("there are %d entries, want %d", n, maxCached)
	}
}

func TestPreviousAttempts_TheNewestAreRemembered(t *testing.T) {
	var p previousAttempts
	span := func(i int) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1, byte(i >> 8), byte(i)}})
	}
	copyOf := func(i int) attemptedCopy { return attemptedCopy{"orders", fmt.Sprint(i)} }
	const many = 3*maxPrevious + 7
	for i := range many {
		p.remember(copyOf(i), span(i))
		p.remember(copyOf(i), span(i)) // takes no second place
	}
	for i := range many {
		got, ok := p.find(copyOf(i))
		if want := i >= many-maxPrevious; ok != want || ok && !got.Equal(span(i)) {
			t.Fatalf("attempt %d of %d is remembered: %t, want %t", i, many, ok, want)
		}
	}
	if len(p.spans) != maxPrevious || len(p.order) != maxPrevious {
		t.Errorf("%d and %d are kept, want %d", len(p.spans), len(p.order), maxPrevious)
	}
}

// Ids may be of any size, and parts of headers.
func TestPreviousAttempts_LongIDs(t *testing.T) {
	var p previousAttempts
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	id := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", 128<<10)) }
	growth := leaks.HeapGrowth(func() {
		for i := range 500 {
			p.remember(attemptedCopy{"orders", id(1000 + i)}, span)
			p.remember(attemptedCopy{"orders", id(1000 + i)[:4]}, span)
		}
	})
	if growth > 5<<20 {
		t.Errorf("%d attempts keep %d MiB", len(p.spans), growth>>20)
	}
	for _, nativeID := range []string{id(1001), "1001"} {
		if _, ok := p.find(attemptedCopy{"orders", nativeID}); !ok {
			t.Errorf("the attempt of an id of %d bytes is forgotten", len(nativeID))
		}
	}
	if n := testing.AllocsPerRun(100, func() { p.find(attemptedCopy{"orders", "1001"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
