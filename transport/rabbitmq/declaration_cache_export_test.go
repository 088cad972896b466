package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// unconnected is a transport that reaches nobody.
func unconnected(t *testing.T) *Transport {
	t.Helper()
	transport, err := Open("amqp://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

func TestDeclarationCache_OneOfManyDeclares(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	c := transport.declarations
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
			if err := c.ensure(t.Context(), transport, declaration{kindTopic, "x"}, 0, time.Minute, declare); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	// Who does not want to wait any more need not.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.ensure(ctx, transport, declaration{kindTopic, "x"}, 0, time.Minute, declare); !errors.Is(err, context.Canceled) {
		t.Errorf("fulfil = %v, want %v", err, context.Canceled)
	}
	close(release)
	wg.Wait()
	if err := c.ensure(t.Context(), transport, declaration{kindTopic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 1 {
		t.Errorf("it was declared %d times, want once", n)
	}
	c.forget()
	if err := c.ensure(t.Context(), transport, declaration{kindTopic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 2 {
		t.Errorf("forgotten, it was declared %d times in all, want twice", n)
	}
}

func TestDeclarationCache_FailedDeclarationIsRepeated(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	failed := errors.New("failed")
	for range 2 {
		err := transport.declarations.ensure(t.Context(), transport, declaration{kind: kindDelays}, 0, time.Minute, func(context.Context) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("fulfil = %v, want %v", err, failed)
		}
	}
	if err := transport.declarations.ensure(t.Context(), transport, declaration{kind: kindDelays}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestDeclarationCache_BindingExpires(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	n := 0
	ensure := func() {
		t.Helper()
		err := transport.declarations.ensure(t.Context(), transport, declaration{kindBinding, "q"}, time.Hour, time.Minute, func(context.Context) error {
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
	bound, _ := transport.declarations.entries.Get(declaration{kindBinding, "q"})
	bound.expires = time.Now().Add(-1)
	ensure()
	if n != 2 {
		t.Errorf("after its time it was declared %d times, want twice", n)
	}
}

// It may have been declared before it was removed.
func TestDeclarationCache_ForgottenDuringDeclaration(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	n := 0
	for range 2 {
		err := transport.declarations.ensure(t.Context(), transport, declaration{kindTopic, "x"}, 0, time.Minute, func(context.Context) error {
			n++
			transport.declarations.forget()
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

func TestDeclarationCache_IsBounded(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	for i := range mostDeclarations + 10 {
		if err := transport.declarations.ensure(t.Context(), transport, declaration{kindTopic, fmt.Sprint(i)}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := transport.declarations.entries.Len(); n > mostDeclarations {
		t.Errorf("%d are remembered, want %d at most", n, mostDeclarations)
	}
}

func TestDeclarationCache_DeclaresNothingAfterClose(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := transport.declarations.ensureDelays(t.Context(), transport); !errors.Is(err, core.ErrClosed) {
		t.Errorf("delays = %v, want %v", err, core.ErrClosed)
	}
}
