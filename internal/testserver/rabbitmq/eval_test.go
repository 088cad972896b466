//go:build darwin || linux

package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func testEval(t *testing.T, s *Server) {
	for expression, want := range map[string]string{
		"1 + 1.":            "2",
		"<<a>>.":            "", // is none
		`{ok, <<"text">>}.`: `{ok,<<"text">>}`,
		"X = 1, X + X.":     "2",
	} {
		got, err := s.Eval(t.Context(), expression)
		if want != "" && (err != nil || got != want) {
			t.Errorf("Eval(%s) = %s, %v; want %s", expression, got, err, want)
		}
		if want == "" && (err == nil || !strings.Contains(err.Error(), "badarg")) {
			t.Errorf("Eval(%s) = %s, %v; want an error that says badarg", expression, got, err)
		}
	}
	if got, err := s.Eval(t.Context(), "1 + ."); err == nil {
		t.Errorf("Eval of no expression = %s, want an error", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	errStop := errors.New("enough")
	go func() { cancel(errStop) }()
	if got, err := s.Eval(ctx, "timer:sleep(infinity)."); !errors.Is(err, errStop) {
		t.Errorf("Eval whose context ended = %s, %v; want %v", got, err, errStop)
	}
}

// eval returns the value of an expression.
func eval(t *testing.T, s *Server, expression string) string {
	t.Helper()
	value, err := s.Eval(t.Context(), expression)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
