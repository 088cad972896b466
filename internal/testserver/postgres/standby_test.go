//go:build darwin || linux

package postgres

import "testing"

func TestStandby_FollowsAndIsPromoted(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{})
	query(t, s, "postgres", "create table t (n int); insert into t values (1)")
	standby, err := s.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	if got := query(t, standby, "postgres", "select n, pg_is_in_recovery() from t"); got != "1|t" {
		t.Errorf("the standby has %q, want 1|t", got)
	}
	query(t, s, "postgres", `alter system set synchronous_standby_names = '*'; select pg_reload_conf()`)
	query(t, s, "postgres", "set synchronous_commit = remote_apply; insert into t values (2)")
	await(t, "the standby follows", func() bool { // the insert waits for it once the server has read its configuration
		return query(t, standby, "postgres", "select max(n) from t") == "2"
	})
	if _, err := standby.Exec(t.Context(), "postgres", "insert into t values (3)"); err == nil {
		t.Error("the standby can be written to")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	query(t, standby, "postgres", "insert into t values (3)")
	if got := query(t, standby, "postgres", "select sum(n) from t"); got != "6" {
		t.Errorf("after the promotion the sum is %q, want 6", got)
	}
}
