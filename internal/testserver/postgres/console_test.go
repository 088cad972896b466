//go:build darwin || linux

package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestConsole_AnswersAfterErrorsAndRestarts(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	wantRows := func(statement, want string) {
		t.Helper()
		if rows, err := s.console.exec(t.Context(), statement); err != nil || rows != want {
			t.Errorf("%s: %q, %v; want %q", statement, rows, err, want)
		}
	}
	process := func() int { return s.console.cmd.Process.Pid }
	wantRows("select n, 'x' from generate_series(1, 2) n", "1|x\n2|x")
	first := process()
	if rows, err := s.console.exec(t.Context(), "select * from nowhere"); err == nil || !strings.Contains(err.Error(), `relation "nowhere" does not exist`) || !strings.Contains(err.Error(), "42P01") {
		t.Errorf("a wrong statement: %q, %v; want the server's words", rows, err)
	}
	wantRows("select 'after the error'", "after the error")
	if process() != first {
		t.Error("an error has ended psql")
	}

	if err := errors.Join(s.Kill(), s.Restart()); err != nil {
		t.Fatal(err)
	}
	wantRows("select 'after the restart'", "after the restart")

	errStop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.console.exec(ctx, "select pg_sleep(600)")
		ended <- err
	}()
	await(t, "the query", func() bool {
		return query(t, s, "postgres", "select count(*) from pg_stat_activity where query like 'select pg_sleep%'") == "1"
	})
	cancel(errStop)
	if err := <-ended; !errors.Is(err, errStop) {
		t.Errorf("exec returned %v after its context had ended because of %v", err, errStop)
	}
	wantRows("select 'after the cancellation'", "after the cancellation")
}
