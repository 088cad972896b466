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

func TestTopologyMemory_OneOfManyDeclares(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	m := transport.known
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
			if err := m.fulfil(t.Context(), transport, need{needsTopic, "x"}, 0, time.Minute, declare); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	// Who does not want to wait any more need not.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.fulfil(ctx, transport, need{needsTopic, "x"}, 0, time.Minute, declare); !errors.Is(err, context.Canceled) {
		t.Errorf("fulfil = %v, want %v", err, context.Canceled)
	}
	close(release)
	wg.Wait()
	if err := m.fulfil(t.Context(), transport, need{needsTopic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 1 {
		t.Errorf("it was declared %d times, want once", n)
	}
	m.forget()
	if err := m.fulfil(t.Context(), transport, need{needsTopic, "x"}, 0, time.Minute, declare); err != nil {
		t.Error(err)
	}
	if n := declarations.Load(); n != 2 {
		t.Errorf("forgotten, it was declared %d times in all, want twice", n)
	}
}

func TestTopologyMemory_FailedDeclarationIsRepeated(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	failed := errors.New("failed")
	for range 2 {
		err := transport.known.fulfil(t.Context(), transport, need{kind: needsDelays}, 0, time.Minute, func(context.Context) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("fulfil = %v, want %v", err, failed)
		}
	}
	if err := transport.known.fulfil(t.Context(), transport, need{kind: needsDelays}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestTopologyMemory_BindingExpires(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	n := 0
	fulfil := func() {
		t.Helper()
		err := transport.known.fulfil(t.Context(), transport, need{needsBinding, "q"}, time.Hour, time.Minute, func(context.Context) error {
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fulfil()
	fulfil()
	if n != 1 {
		t.Errorf("it was declared %d times, want once", n)
	}
	bound, _ := transport.known.known.Get(need{needsBinding, "q"})
	bound.until = time.Now().Add(-1)
	fulfil()
	if n != 2 {
		t.Errorf("after its time it was declared %d times, want twice", n)
	}
}

// It may have been declared before it was removed.
func TestTopologyMemory_ForgottenDuringDeclaration(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	n := 0
	for range 2 {
		err := transport.known.fulfil(t.Context(), transport, need{needsTopic, "x"}, 0, time.Minute, func(context.Context) error {
			n++
			transport.known.forget()
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

func TestTopologyMemory_IsBounded(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	for i := range manyNeeds + 10 {
		if err := transport.known.fulfil(t.Context(), transport, need{needsTopic, fmt.Sprint(i)}, 0, time.Minute, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := transport.known.known.Len(); n > manyNeeds {
		t.Errorf("%d are remembered, want %d at most", n, manyNeeds)
	}
}

func TestTopologyMemory_DeclaresNothingAfterClose(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := transport.known.delays(t.Context(), transport); !errors.Is(err, core.ErrClosed) {
		t.Errorf("delays = %v, want %v", err, core.ErrClosed)
	}
}
