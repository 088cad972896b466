//go:build darwin || linux

package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// query is Exec for a test.
func query(t *testing.T, s *Server, database, sql string) string {
	t.Helper()
	rows, err := s.Exec(t.Context(), database, sql)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestExec_RowsAndErrors(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	if got := query(t, s, "postgres", "create table n (n int); insert into n values (1), (null); select n, 'x' from n; select 'y'"); got != "1|x\n|x\ny" {
		t.Errorf("Exec returned %q", got)
	}
	_, err := s.Exec(t.Context(), "postgres", "select 1; insert into nowhere values (1); insert into n values (2)")
	if err == nil || !strings.Contains(err.Error(), `relation "nowhere" does not exist`) {
		t.Errorf("Exec of a wrong statement: %v; want the server's words", err)
	}
	if got := query(t, s, "postgres", "select count(*) from n"); got != "2" {
		t.Errorf("the table has %s rows after a failure before the third was inserted, want 2", got)
	}
	if !strings.Contains(s.Log(), `relation "nowhere" does not exist`) {
		t.Errorf("the log does not have the failure:\n%s", s.Log())
	}

	errStop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.Exec(ctx, "postgres", "select pg_sleep(600)")
		ended <- err
	}()
	await(t, "the query", func() bool {
		return query(t, s, "postgres", "select count(*) from pg_stat_activity where query like 'select pg_sleep%'") == "1"
	})
	cancel(errStop)
	if err := <-ended; !errors.Is(err, errStop) {
		t.Errorf("Exec returned %v after its context had ended because of %v", err, errStop)
	}
}

func TestURL_Passwords(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	database := s.NewDatabase(t)
	login := func(url string) (string, error) {
		cmd := s.bin.command(t.Context(), "psql", "-XAtqc", "create temporary table mine (); select current_user, current_setting('is_superuser')", url)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if got, err := login(s.PasswordURL(database)); err != nil || got != "reprise|off" {
		t.Errorf("with the password: %s, %v; want reprise|off", got, err)
	}
	for name, user := range map[string]*url.Userinfo{
		"with a wrong password": url.UserPassword(User, "x"),
		"without a password":    url.User(User),
	} {
		u, err := url.Parse(s.PasswordURL(database))
		if err != nil {
			t.Fatal(err)
		}
		u.User = user
		if out, err := login(u.String()); err == nil || !strings.Contains(out, "password") {
			t.Errorf("%s: %s, %v; want to be refused because of the password", name, out, err)
		}
	}
	if got := query(t, s, "postgres", "select rolpassword from pg_authid where rolname = 'reprise'"); !strings.HasPrefix(got, "SCRAM-SHA-256$") {
		t.Errorf("the password is stored as %q, want SCRAM-SHA-256", got)
	}
}

func TestCreateDatabase_AnyName(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var created, connected sync.WaitGroup
	connected.Go(func() {
		if _, err := s.Exec(ctx, "template1", "select pg_sleep(600)"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	await(t, "somebody who uses the template", func() bool {
		return query(t, s, "postgres", "select count(*) from pg_stat_activity where datname = 'template1'") == "1"
	})
	names := []string{"plain", "With Space", `quo"te`, "apo'strophe", "question?mark/%20", "ünïcode"}
	for _, name := range names {
		created.Go(func() {
			if err := s.CreateDatabase(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	created.Wait()
	cancel()
	connected.Wait()
	for _, name := range names {
		if got := query(t, s, name, "select current_database()"); got != name {
			t.Errorf("connected to database %q, want %q", got, name)
		}
	}
	if err := s.CreateDatabase(t.Context(), "plain"); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("the second database of a name: %v; want that it exists", err)
	}
}

func TestNewDatabase_EndsWithItsTest(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	var connected sync.WaitGroup
	t.Run("two", func(t *testing.T) {
		a, b := s.NewDatabase(t), s.NewDatabase(t)
		if a == b {
			t.Errorf("two databases are called %s", a)
		}
		connected.Go(func() {
			if rows, err := s.Exec(context.Background(), a, "select pg_sleep(600)"); err == nil {
				t.Errorf("pg_sleep returned %q, want the end of the connection", rows)
			}
		})
		await(t, "somebody who stays connected", func() bool {
			return query(t, s, "postgres", "select count(*) from pg_stat_activity where query like 'select pg_sleep%'") == "1"
		})
	})
	connected.Wait()
	if got := query(t, s, "postgres", "select datname from pg_database where datname like 'test%'"); got != "" {
		t.Errorf("after the test there still is %s", got)
	}
	t.Run("on a server that does not live as long", func(t *testing.T) {
		s.NewDatabase(t)
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
}

func TestVia_AnotherAddress(t *testing.T) {
	t.Parallel()
	u := (&url.URL{Scheme: "postgres", User: url.UserPassword(User, Password), Host: "127.0.0.1:1", Path: "/a b", RawQuery: "sslmode=disable"}).String()
	if got, want := Via(u, "127.0.0.1:2"), strings.Replace(u, "127.0.0.1:1", "127.0.0.1:2", 1); got != want {
		t.Errorf("Via = %s, want %s", got, want)
	}
	for _, wrong := range [][2]string{{"postgres://%", "127.0.0.1:2"}, {u, "127.0.0.1"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Via(%q, %q) did not panic", wrong[0], wrong[1])
				}
			}()
			Via(wrong[0], wrong[1])
		}()
	}
}
