package rowlog

import (
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

func TestUncounted(t *testing.T) {
	t.Parallel()
	u := NewUncounted()
	row := &dialect.Row{Seq: 7, Claims: 1, LastError: "bad"}
	want := func(row *dialect.Row, n int, text string) {
		t.Helper()
		if got, last := u.Of(row); got != n || last != text {
			t.Errorf("%d failures, the last %q, want %d and %q", got, last, n, text)
		}
	}
	want(row, 0, "")
	u.Add(row)
	u.Add(row)
	want(row, 2, "bad")
	u.Set(row, 1)
	want(row, 1, "bad")
	claimed := &dialect.Row{Seq: 7, Claims: 2, LastError: "worse"}
	want(claimed, 0, "") // its table has counted, or another receiver had it
	u.Add(claimed)
	want(claimed, 1, "worse")
	u.Set(claimed, 0)
	want(claimed, 0, "")
}

func TestReturned(t *testing.T) {
	t.Parallel()
	r := NewReturned()
	if r.Has("1") {
		t.Error("a new log has a message")
	}
	r.Add("1")
	if !r.Has("1") || r.Has("2") {
		t.Errorf("it has 1: %v and 2: %v, want only 1", r.Has("1"), r.Has("2"))
	}
	r.Forget("1")
	if r.Has("1") {
		t.Error("it has a message that was forgotten")
	}
}
