//go:build darwin || linux

package postgres

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// TestProxy_LostCommitLooksTheSame shows what the proxy is for: the client sees the same
// failure whether the server has committed or not.
func TestProxy_LostCommitLooksTheSame(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{})
	p, err := proxy.New(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	query(t, s, "postgres", "create table t (n int)")
	insert := func(n string) error {
		cmd := s.bin.command(t.Context(), "psql", "-Xq", "-vON_ERROR_STOP=1", "-f-", Via(s.URL("postgres"), p.Addr()))
		cmd.Stdin = strings.NewReader("begin; insert into t values (" + n + "); commit;")
		return cmd.Run()
	}
	if err := insert("1"); err != nil {
		t.Fatal(err)
	}
	request := p.LoseRequest([]byte("commit"))
	if err := insert("2"); err == nil {
		t.Error("a commit whose request was lost returned no error")
	}
	<-request
	reply := p.LoseReply([]byte("commit"), []byte("COMMIT"))
	if err := insert("3"); err == nil {
		t.Error("a commit whose reply was lost returned no error")
	}
	<-reply
	if got := query(t, s, "postgres", "select string_agg(n::text, ',' order by n) from t"); got != "1,3" {
		t.Errorf("committed were %s, want 1 and 3", got)
	}
}
