//go:build darwin || linux

package postgres

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestStart_ZeroConfig(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	for setting, want := range map[string]string{
		"fsync": "off", "max_connections": "400", "synchronous_commit": "on", "full_page_writes": "off", "autovacuum": "on",
		"listen_addresses": "127.0.0.1", "server_encoding": "UTF8",
	} {
		if got := query(t, s, "postgres", "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if v, err := strconv.Atoi(query(t, s, "postgres", "show server_version_num")); err != nil || v < 13_00_00 {
		t.Errorf("version %d, %v; want 13 or later", v, err)
	}
}

func TestStart_Settings(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{Settings: map[string]string{
		"max_connections":  "17",
		"application_name": `it's a \n "test"`,
		"log_min_messages": "log",
		"port":             "1",
	}})
	if got := query(t, s, "postgres", "show max_connections"); got != "17" {
		t.Errorf("max_connections is %s, want 17", got)
	}
	query(t, s, "postgres", "alter system set log_min_messages = 'error'; select pg_reload_conf()")
	await(t, "what alter system sets", func() bool { return query(t, s, "postgres", "show log_min_messages") == "error" })

	conf, err := configuration(map[string]string{"a.b": `it's a \n "test"`})
	if want := `a.b = 'it''s a \\n "test"'` + "\n"; err != nil || !strings.HasPrefix(conf, want) {
		t.Errorf("configuration = %q, %v; want it to start with %q", conf, err, want)
	}
	for fsync, want := range map[string]string{"off": "off", "on": "on"} {
		conf, err := configuration(map[string]string{"fsync": fsync})
		if want := "full_page_writes = '" + want + "'\n"; err != nil || !strings.Contains(conf, want) {
			t.Errorf("configuration with fsync %s = %q, %v; want %q in it", fsync, conf, err, want)
		}
	}
	for name, value := range map[string]string{"": "x", "a b": "x", "a=b": "x", "a\nb": "x", "a": "b\nc"} {
		if conf, err := configuration(map[string]string{name: value}); err == nil {
			t.Errorf("configuration of %q = %q is %q, want an error", name, value, conf)
		}
	}
}

func TestStart_FailureSaysWhy(t *testing.T) {
	t.Parallel()
	s, err := Start(Config{Settings: map[string]string{"shared_buffers": "plenty"}})
	if err == nil {
		t.Error("Start returned no error")
		err = s.Stop()
	}
	for _, want := range []string{"postgres: start: ", "the server ended", `invalid value for parameter "shared_buffers": "plenty"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start: %v; want %s", err, want)
		}
	}
}

func TestKill_KeepsCommittedRows(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{})
	query(t, s, "postgres", "create table kept (n int)")
	addr := s.Addr()
	for n := range 5 {
		query(t, s, "postgres", fmt.Sprintf("insert into kept values (%d)", n))
		var clients sync.WaitGroup
		for _, sql := range []string{
			"begin; insert into kept values (99); select pg_sleep(600)",
			"set max_parallel_workers_per_gather = 0; select count(*) from generate_series(1, 1e12)", // looks at nothing but the processor
			"listen something; select pg_sleep(600)",
		} {
			clients.Go(func() {
				if rows, err := s.Exec(t.Context(), "postgres", sql); err == nil {
					t.Errorf("%s returned %q, want an error", sql, rows)
				}
			})
		}
		await(t, "three clients at work", func() bool {
			return query(t, s, "postgres", "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()") == "3"
		})
		pids := processes(t, s)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, pids)
		clients.Wait()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if got := query(t, s, "postgres", "select count(*), max(n) from kept"); got != fmt.Sprintf("%d|%d", n+1, n) {
			t.Errorf("after %d kills the table has %s, want %d|%d", n+1, got, n+1, n)
		}
	}
	if s.Addr() != addr {
		t.Errorf("the address is %s after restarts, was %s", s.Addr(), addr)
	}
}

func TestRestart_KeepsRows(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{})
	query(t, s, "postgres", "create table kept (n int); insert into kept values (1)")
	for _, end := range []struct {
		how string
		do  func() error
	}{
		{"Shutdown", s.Shutdown},
		{"Shutdown twice", func() error { return errors.Join(s.Shutdown(), s.Shutdown()) }},
		{"nothing", func() error { return nil }},
		{"Kill after Shutdown", func() error { return errors.Join(s.Shutdown(), s.Kill()) }},
		{"Shutdown after Kill", func() error { return errors.Join(s.Kill(), s.Shutdown()) }},
		{"somebody else", func() error { return syscall.Kill(s.life.Running().ID(), syscall.SIGKILL) }},
	} {
		if err := end.do(); err != nil {
			t.Fatalf("%s: %v", end.how, err)
		}
		if err := s.Restart(); err != nil {
			t.Fatalf("restart after %s: %v", end.how, err)
		}
		if got := query(t, s, "postgres", "select n from kept"); got != "1" {
			t.Errorf("after %s the table has %q, want 1", end.how, got)
		}
	}
}

func TestStart_SeparateServers(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	a, b := StartFor(t, Config{}), StartFor(t, Config{})
	query(t, a, "postgres", "create table only_a ()")
	query(t, b, "postgres", "create table only_b ()")
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	query(t, b, "postgres", "table only_b")
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	query(t, a, "postgres", "table only_a")
	if _, err := a.Exec(t.Context(), "postgres", "table only_b"); err == nil {
		t.Error("one server has the other one's table")
	}
}

func TestStop_LeavesNothing(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, before := range map[string]func(*Server) error{
		"running":   func(*Server) error { return nil },
		"shut down": (*Server).Shutdown,
		"killed":    (*Server).Kill,
		"dead":      func(s *Server) error { return syscall.Kill(s.life.Running().ID(), syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Start(Config{})
			if err != nil {
				t.Fatal(err)
			}
			pids := processes(t, s)
			checkSharedMemory := watchSharedMemory(t, pids[0])
			if err := before(s); err != nil {
				t.Error(err)
			}
			for range 2 { // the second time changes nothing
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}
			awaitEnd(t, pids)
			checkSharedMemory()
			if exists(s.dir.Path()) {
				t.Errorf("%s was left behind", s.dir.Path())
			}
			if err := s.Restart(); err == nil {
				t.Error("Restart after Stop returned no error")
			}
			if err := s.Kill(); err != nil {
				t.Errorf("Kill after Stop: %v", err)
			}
		})
	}
}

func TestFind_MissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REPRISE_TEST_POSTGRES_BIN", "")
	nowhere := t.TempDir()
	for _, c := range []struct{ name, config, variable, pattern, want string }{
		{"by the configuration", nowhere, "", packaged, fmt.Sprintf("Config.Bin is %q, which has no initdb", nowhere)},
		{"by the environment", "", nowhere, packaged, fmt.Sprintf("REPRISE_TEST_POSTGRES_BIN is %q, which has no initdb", nowhere)},
		{"in the system", "", "", nowhere + "/*", "on Debian run scripts/servers as root; elsewhere install PostgreSQL 13 or later and set REPRISE_TEST_POSTGRES_BIN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("REPRISE_TEST_POSTGRES_BIN", c.variable)
			if bin, err := findPrograms(c.config, c.pattern); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("findPrograms = %q, %v; want %s", bin, err, c.want)
			}
		})
	}
}

func TestFind_NewestPrograms(t *testing.T) {
	t.Setenv("REPRISE_TEST_POSTGRES_BIN", "")
	root := t.TempDir()
	install := func(dir string, names ...string) string {
		dir = root + "/" + dir
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\necho "+root+"/elsewhere\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	install("packages/9/bin", "initdb", "postgres", "psql")
	newest := install("packages/10/bin", "initdb", "postgres", "psql")
	install("packages/11/bin", "psql") // only the client
	elsewhere := install("elsewhere", "initdb", "postgres", "psql")
	t.Setenv("PATH", install("path", "pg_config"))

	if got, err := findPrograms("", root+"/packages/*/bin"); err != nil || string(got) != newest {
		t.Errorf("findPrograms = %s, %v; want %s", got, err, newest)
	}
	if got, err := findPrograms("", root+"/none/*/bin"); err != nil || string(got) != elsewhere {
		t.Errorf("findPrograms without packages = %s, %v; want what pg_config says, %s", got, err, elsewhere)
	}
	t.Setenv("REPRISE_TEST_POSTGRES_BIN", elsewhere)
	if got, err := findPrograms("", root+"/packages/*/bin"); err != nil || string(got) != elsewhere {
		t.Errorf("findPrograms = %s, %v; want what the environment says, %s", got, err, elsewhere)
	}
	if got, err := findPrograms(newest, root+"/packages/*/bin"); err != nil || string(got) != newest {
		t.Errorf("findPrograms = %s, %v; want what the configuration says, %s", got, err, newest)
	}
}
