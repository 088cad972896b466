package core_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// firstFrame returns the function in which a stack begins.
func firstFrame(stack string) string {
	lines := strings.Split(stack, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "goroutine ") && i+1 < len(lines) {
			name, _, _ := strings.Cut(lines[i+1], "(")
			return name
		}
	}
	return ""
}

var (
	noMap    map[string]int
	noConfig *core.Config
)

func panicsWithText(context.Context, *core.Message) error { panic("oh no") }
func panicsWithNilMap(context.Context, *core.Message) error {
	noMap["x"] = 1
	return nil
}

func panicsWithNilPointer(context.Context, *core.Message) error {
	return fmt.Errorf("%d", noConfig.Concurrency)
}

func panicsWithIndex(_ context.Context, m *core.Message) error {
	return fmt.Errorf("%d", m.RawBody()[len(m.ID)+1000])
}

func passesOn(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error { return next(ctx, m) }
}

// Rule R26.
func TestPanic_StackBeginsAtTheHandler(t *testing.T) {
	for name, handler := range map[string]core.HandlerFunc{
		"panicsWithText": panicsWithText, "panicsWithNilMap": panicsWithNilMap,
		"panicsWithNilPointer": panicsWithNilPointer, "panicsWithIndex": panicsWithIndex,
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: noRetries, Middleware: []core.Middleware{core.MiddlewareFunc(passesOn), core.MiddlewareFunc(passesOn)}}, handler)
				fx.enqueue("m1")
				stack := fx.onlyMessage("error").Headers.Get(headers.ExceptionStackTrace)
				if got, want := firstFrame(stack), "github.com/reprise-go/reprise/core_test."+name; got != want {
					fx.Errorf("the stack begins at %q, want %q:\n%s", got, want, stack)
				}
				if strings.Contains(stack, "reprise/core.") || strings.Contains(stack, "runtime/debug.") || strings.Contains(stack, "created by") {
					fx.Errorf("the stack has frames of the engine:\n%s", stack)
				}
				if !strings.Contains(stack, "core_test.passesOn") {
					fx.Errorf("the stack lacks the middleware:\n%s", stack)
				}
				lines := fx.logs.find("moving message")
				if logged := fmt.Sprint(lines[0].attrs["stack"]); firstFrame(logged) != "github.com/reprise-go/reprise/core_test."+name {
					fx.Errorf("logged %s", logged)
				}
			})
		})
	}
}

func panickingPolicyFunc(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
	panic("no idea")
}

// Rule R12.
func TestPolicy_StackBeginsAtIt(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: panickingPolicyFunc}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		lines := fx.logs.find("recoverability policy failed")
		if stack := fmt.Sprint(lines[0].attrs["policy_stack"]); firstFrame(stack) != "github.com/reprise-go/reprise/core_test.panickingPolicyFunc" {
			fx.Errorf("logged %s", stack)
		}
	})
}
