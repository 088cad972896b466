package declarations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// newCache returns the cache of a transport, which ends with the test.
func newCache(t *testing.T) *Cache {
	t.Helper()
	life := transport.NewLifecycle()
	t.Cleanup(func() { life.Close(context.Background(), nil) })
	return New(life)
}

func TestCache_OneOfManyDeclares(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	var declarations atomic.Int64
	release := make(chan struct{})
	declare := func(context.Context) error {
		declarations.Add(1)
		<-release
		return nil
	}
	var wg, begun sync.WaitGroup
	for range 50 {
		begun.Add(1)
		wg.Go(func() {
			begun.Done()
			if err := c.Ensure(t.Context(), Part{Topic, "x"}, 0, time.Minute, declare); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	// A caller can stop waiting.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Ensure(ctx, Part{Topic, "x"}, 0, time.Minute, declare); !errors.Is(err, context.Canceled) {
		t.Errorf("Ensure = %v, want %v", err, context.Canceled)
	}
	close(release)
	wg.Wait()
	if err := c.Ensure(t.Context(), Part{Topic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 1 {
		t.Errorf("it was declared %d times, want once", n)
	}
	c.Forget()
	if err := c.Ensure(t.Context(), Part{Topic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 2 {
		t.Errorf("forgotten, it was declared %d times in all, want twice", n)
	}
}

func TestCache_FailedDeclarationIsRepeated(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	failed := errors.New("failed")
	for range 2 {
		err := c.Ensure(t.Context(), Part{Kind: Delays}, 0, time.Minute, func(context.Context) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("Ensure = %v, want %v", err, failed)
		}
	}
	if err := c.Ensure(t.Context(), Part{Kind: Delays}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestCache_BindingExpires(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	n := 0
	ensure := func() {
		t.Helper()
		err := c.Ensure(t.Context(), Part{Binding, "q"}, time.Hour, time.Minute, func(context.Context) error {
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ensure()
	ensure()
	if n != 1 {
		t.Errorf("it was declared %d times, want once", n)
	}
	bound, _ := c.entries.Get(Part{Binding, "q"})
	bound.expires = time.Now().Add(-1)
	ensure()
	if n != 2 {
		t.Errorf("after its time it was declared %d times, want twice", n)
	}
}

// It may have been declared before it was removed.
func TestCache_ForgottenDuringDeclaration(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	n := 0
	for range 2 {
		err := c.Ensure(t.Context(), Part{Topic, "x"}, 0, time.Minute, func(context.Context) error {
			n++
			c.Forget()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 {
		t.Errorf("it was declared %d times, want twice", n)
	}
}

func TestCache_IsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	for i := range limit + 10 {
		if err := c.Ensure(t.Context(), Part{Topic, fmt.Sprint(i)}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.entries.Len(); n > limit {
		t.Errorf("%d are remembered, want %d at most", n, limit)
	}
}

func TestCache_DeclaresNothingAfterClose(t *testing.T) {
	t.Parallel()
	c := newCache(t)
	c.life.Close(t.Context(), nil)
	if err := c.Ensure(t.Context(), Part{Kind: Delays}, 0, time.Minute, func(context.Context) error { return nil }); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Ensure = %v, want %v", err, core.ErrClosed)
	}
}
