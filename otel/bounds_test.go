package otelreprise

import (
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
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
