//go:build darwin || linux

package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

func testControl(t *testing.T, s *Server) {
	if loaded, err := s.Eval(t.Context(), loadControl); err != nil || loaded != "true" {
		t.Fatalf("rabbitmqctl is loaded: %s, %v", loaded, err)
	}
	control := func(want string, args ...string) {
		t.Helper()
		if got, err := s.Control(t.Context(), args...); err != nil || got != want {
			t.Errorf("%s prints %q, %v; want %q", args[0], got, err, want)
		}
	}
	control("", "set_policy", "--vhost", "/", "--priority", "5", "--apply-to", "queues", "Grüße 🙂", `^a\.b$`, `{"delivery-limit":7}`)
	// What Ctl prints, with columns, with what is not ASCII, and with what Erlang quotes.
	for _, args := range [][]string{{"list_policies"}, {"eval", `io:format("~ts", [[228,10]]), {1 + 1, "a\"b"}.`}} {
		want, err := s.Ctl(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		control(want, args...)
	}
	control("", "clear_policy", "Grüße 🙂")
	control("", "list_policies")

	for name, c := range map[string]struct {
		says string
		args []string
	}{
		"no such command":  {"exit status 64: Command 'nothing' not found", []string{"nothing"}},
		"no such argument": {"exit status 64: Error (argument validation): too many arguments", []string{"list_users", "x"}},
		"no such option":   {"exit status 64: Error (argument validation): Invalid options", []string{"list_users", "--nothing"}},
		"a wrong password": {"exit status 65: Error:", []string{"authenticate_user", User, "wr0ng"}},
		"a refused policy": {"exit status 69: Error:", []string{"set_policy", "p", "^a$", `{"delivery-limit":`}},
	} {
		_, err := s.Control(t.Context(), c.args...)
		if want := "rabbitmq: rabbitmqctl " + c.args[0] + ": " + c.says; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v; want an error that begins with %q", name, err, want)
		}
	}

	errStop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	if _, err := s.Control(ctx, "list_users"); !errors.Is(err, errStop) {
		t.Errorf("Control returned %v after its context had ended because of %v", err, errStop)
	}

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got, err := s.Control(t.Context(), "list_vhosts"); err != nil || !strings.HasPrefix(got, "name\n") {
				t.Errorf("list_vhosts prints %q, %v", got, err)
			}
		})
	}
	all.Wait()
}
