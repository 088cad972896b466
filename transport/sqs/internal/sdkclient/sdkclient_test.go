package sdkclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go/middleware"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPlainBodies_HaveNoWriteTo(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost", io.NopCloser(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	before := r.Body
	if _, ok := before.(io.WriterTo); !ok {
		t.Fatal("the body of the test has no WriteTo")
	}
	done := errors.New("done")
	_, err = PlainBodies{roundTripper(func(sent *http.Request) (*http.Response, error) {
		if _, ok := sent.Body.(io.WriterTo); ok {
			t.Error("the body has a WriteTo")
		}
		if text, err := io.ReadAll(sent.Body); err != nil || string(text) != "hello" {
			t.Errorf("the body is %q, %v", text, err)
		}
		return nil, done
	})}.RoundTrip(r)
	if !errors.Is(err, done) || r.Body != before {
		t.Errorf("%v; the caller's request has another body: %t", err, r.Body != before)
	}
}

func TestAttemptTimeout_LimitsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stack := middleware.NewStack("test", func() any { return nil })
		attempts := 0
		retry := middleware.FinalizeMiddlewareFunc("Retry", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
			for range 2 {
				out, metadata, err = next.HandleFinalize(ctx, in)
			}
			return out, metadata, err
		})
		if err := errors.Join(stack.Finalize.Add(retry, middleware.After), AttemptTimeout(time.Second)(stack)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		handler := middleware.DecorateHandler(middleware.HandlerFunc(func(ctx context.Context, _ any) (any, middleware.Metadata, error) {
			attempts++
			<-ctx.Done()
			return nil, middleware.Metadata{}, ctx.Err()
		}), stack)
		if _, _, err := handler.Handle(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a timeout", err)
		}
		if took := time.Since(began); attempts != 2 || took != 2*time.Second {
			t.Errorf("%d attempts in %v, want 2 in 2s", attempts, took)
		}
	})
}

func TestFirstByte_TimeOfTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, first := FirstByte(t.Context())
		time.Sleep(time.Second)
		httptrace.ContextClientTrace(ctx).GotFirstResponseByte()
		time.Sleep(time.Second) // while the answer is read
		if got := first().Sub(began); got != time.Second {
			t.Errorf("after %v, want 1s", got)
		}
	})
}
