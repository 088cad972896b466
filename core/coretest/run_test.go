package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var orderType = core.NewMessageType[string]("order")

func newEndpoint(t *testing.T, transport core.Transport, c core.Config, handler func(context.Context, *core.Message, string) error) *core.Endpoint {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	ep, err := core.New("shop", transport, c)
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, orderType, handler)
	return ep
}

func TestRun_StopsAtTheEndOfTheTest(t *testing.T) {
	handled := 0
	ep := newEndpoint(t, inmemory.Open(), core.Config{}, func(context.Context, *core.Message, string) error { handled++; return nil })
	t.Run("test", func(t *testing.T) {
		t.Cleanup(func() {
			if ep.Health().Running {
				t.Error("the endpoint is running when earlier functions of Cleanup are called")
			}
		})
		synctest.Test(t, func(t *testing.T) {
			coretest.Run(t, ep)
			if err := ep.Send(t.Context(), "shop", orderType.Of("body")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		})
	})
	if handled != 1 {
		t.Errorf("handled %d times, want once", handled)
	}
}

type txKey struct{}

func TestRunContext_ValuesReachEachFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), txKey{}, "tx"))
		var seen []string
		see := func(ctx context.Context, function string) {
			seen = append(seen, fmt.Sprint(function, " ", ctx.Value(txKey{}), " ", ctx.Err()))
		}
		ep := newEndpoint(t, inmemory.Open(), core.Config{Recoverability: core.Recoverability{
			Policy: func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) (core.Action, error) {
				see(ctx, "policy")
				return core.MoveToError("error"), nil
			},
		}}, func(ctx context.Context, _ *core.Message, _ string) error {
			see(ctx, "handler")
			return errors.New("failed")
		})
		core.HandleFailed(ep, orderType, func(ctx context.Context, _ *core.Message, _ string, f *core.Failed) error {
			see(ctx, "failed")
			f.TakeOver()
			return nil
		})
		coretest.RunContext(ctx, t, ep)
		cancel()
		if err := ep.Send(t.Context(), "shop", orderType.Of("body")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := strings.Join(seen, ", "); got != "handler tx <nil>, policy tx <nil>, failed tx <nil>" {
			t.Error(got)
		}
	})
}

// brokenTest records its failures, and calls the functions of Cleanup when it is told to.
type brokenTest struct {
	testing.TB
	failures string
	cleanup  func()
}

func (b *brokenTest) Cleanup(f func())                  { b.cleanup = f }
func (b *brokenTest) Errorf(format string, args ...any) { b.failures += fmt.Sprintf(format, args...) }
func (b *brokenTest) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

func TestRun_SaysWhyItFails(t *testing.T) {
	for name, c := range map[string]struct {
		cannotStart bool
		want        string
	}{
		"an endpoint that cannot start":       {true, `coretest: endpoint "shop" ended before it was ready: core: endpoint "shop"`},
		"a transport that is closed by defer": {false, "not by defer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := inmemory.Open()
				ep := newEndpoint(t, transport, core.Config{}, func(context.Context, *core.Message, string) error { return nil })
				if c.cannotStart {
					core.Handle[string](ep, orderType, nil)
				}
				test := &brokenTest{TB: t}
				done := make(chan bool)
				go func() {
					defer close(done)
					coretest.Run(test, ep)
					_ = transport.Close(t.Context())
					synctest.Wait()
					test.cleanup()
				}()
				<-done
				if !strings.Contains(test.failures, c.want) {
					t.Errorf("failed with %q, want %q", test.failures, c.want)
				}
			})
		})
	}
}
