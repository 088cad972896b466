package panicstack

import (
	"bytes"
	"strings"
	"testing"
)

const path = "example.com/messages/core"

// own returns the name of a function of the package.
func own(name string) string { return path + "." + name }

// stackOf makes a stack of functions, the innermost first.
func stackOf(functions ...string) string {
	var b strings.Builder
	b.WriteString("goroutine 7 [running]:\n")
	for _, f := range functions {
		b.WriteString(f + "\n\t/src/file.go:1 +0x1\n")
	}
	return b.String()
}

func TestCut_BeginsAtTheCodeThatPanicked(t *testing.T) {
	recovering := []string{"runtime/debug.Stack()", own("newPanicError({0x1, 0x2})"), own("callRecovered.func1()"), "panic({0x1?, 0x2?})"}
	calling := []string{own("dispatch({0x1, 0x2}, 0x3)"), own("callRecovered(0x1)"), own("(*worker).run(0x1)"), "sync.(*WaitGroup).Go.func1()", "created by sync.(*WaitGroup).Go in goroutine 1"}
	for _, test := range []struct {
		name         string
		inside, kept []string
	}{
		{"a handler", []string{"shop.handle(0x1)"}, []string{"shop.handle(0x1)"}},
		{"a method, through generic code", []string{"shop.(*Service).Place(0x1)", own("register[...].func1(...)")}, []string{"shop.(*Service).Place(0x1)"}},
		{"below the handler", []string{"encoding/json.Marshal(...)", "shop.handle(0x1)"}, []string{"encoding/json.Marshal(...)", "shop.handle(0x1)"}},
		{"a run-time error", []string{"runtime.mapassign_faststr(...)", "runtime.goPanicIndex(...)", "shop.handle(0x1)"}, []string{"shop.handle(0x1)"}},
		{"middleware around it", []string{"shop.handle(0x1)", own("(*runStarter).handle(0x1)"), "shop.trace.func1()"}, []string{"shop.handle(0x1)", "shop.trace.func1()"}},
		{"a method of this package that the handler called", []string{own("(*Message).Send(0x0)"), "shop.handle(0x1)"}, []string{own("(*Message).Send(0x0)"), "shop.handle(0x1)"}},
		{"users' code below this package below the handler", []string{"shop.Order.MarshalJSON()", own("(*Message).Send(0x0)"), "shop.handle(0x1)"}, []string{"shop.Order.MarshalJSON()", "shop.handle(0x1)"}},
		{"a panic while another one unwinds", []string{"shop.cleanUp()", "panic({0x3, 0x4})", "shop.handle(0x1)"}, []string{"shop.cleanUp()", "panic({0x3, 0x4})", "shop.handle(0x1)"}},
		{"an internal package of this one", []string{"shop.observe(0x1)", path + "/internal/calls.(*Queue).run(0x1)"}, []string{"shop.observe(0x1)"}},
		{"a package whose name begins like this one's", []string{path + "_test.handle(0x1)"}, []string{path + "_test.handle(0x1)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var whole []string
			for _, part := range [][]string{recovering, test.inside, calling} {
				whole = append(whole, part...)
			}
			if got, want := string(Cut([]byte(stackOf(whole...)), path)), stackOf(test.kept...); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestCut_OfAnotherFormIsKeptWhole(t *testing.T) {
	for name, stack := range map[string]string{
		"nothing":                          "",
		"no stack":                         "oh no",
		"without a panic":                  stackOf("shop.handle(0x1)", own("callRecovered(0x1)")),
		"a panic without a caller":         stackOf("panic({0x1, 0x2})"),
		"a panic of this package alone":    stackOf(own("callRecovered.func1()"), "panic({0x1, 0x2})", own("dispatch()"), "created by "+own("run in goroutine 1")),
		"a panic of the runtime alone":     stackOf("panic({0x1, 0x2})", "runtime.main()"),
		"lines that do not end with frame": "goroutine 7 [running]:\n\n\n\t\n",
	} {
		if got := Cut([]byte(stack), path); string(got) != stack {
			t.Errorf("%s: %q became %q", name, stack, got)
		}
	}
	// The last line may be cut off.
	got := Cut([]byte("goroutine 7 [running]:\npanic({0x1, 0x2})\n\t/go/panic.go:1\nshop.handle(0x1)\n\t/src/fi"), path)
	if want := "goroutine 7 [running]:\nshop.handle(0x1)\n\t/src/fi"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCut_DoesNotKeepTheWholeStack(t *testing.T) {
	stack := []byte(stackOf("panic({0x1, 0x2})", "shop.handle(0x1)"))
	kept := Cut(stack, path)
	before := bytes.Clone(kept)
	clear(stack)
	if !bytes.Equal(kept, before) {
		t.Error("the result shares memory with the stack")
	}
}

func TestFunction(t *testing.T) {
	for want, stack := range map[string]string{
		"shop.(*Service).Place":      stackOf("shop.(*Service).Place({0x1, 0x2}, 0x3)", "shop.handle(0x1)"),
		"shop.handle[...].func1":     stackOf("shop.handle[...].func1(...)"),
		"shop.cut":                   "goroutine 7 [running]:\nshop.cut",
		"":                           "goroutine 7 [running]:",
		"(beginning with an opening": "goroutine 7 [running]:\n(beginning with an opening",
	} {
		if got := Function([]byte(stack)); got != want {
			t.Errorf("%q of\n%s", got, stack)
		}
	}
	if got := Function([]byte("oh no(")); got != "" {
		t.Errorf("%q of no stack", got)
	}
}
