package sqlexec_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

func TestConnectionLimit_IsSharedByTheTransportsOfAPool(t *testing.T) {
	t.Parallel()
	pool, other := new(int), new(int)
	first, second := sqlexec.JoinConnectionLimit(pool, 2), sqlexec.JoinConnectionLimit(pool, 7)
	if first != second || first.Max() != 2 {
		t.Errorf("the transports of a pool have the limits %p of %d and %p of %d, want one of 2", first, first.Max(), second, second.Max())
	}
	if l := sqlexec.JoinConnectionLimit(other, 7); l == first || l.Max() != 7 {
		t.Errorf("another pool has the limit %p of %d, want a separate one of 7", l, l.Max())
	}
	first.Release()
	if l := sqlexec.JoinConnectionLimit(pool, 7); l != second {
		t.Error("the limit was forgotten while a transport used it")
	}
	second.Release()
	second.Release()
	if l := sqlexec.JoinConnectionLimit(pool, 3); l == second || l.Max() != 3 {
		t.Errorf("after the last transport the pool has the limit %p of %d, want a new one of 3", l, l.Max())
	}
}

func TestConnectionLimit_ReserveWaitsForAPlace(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	l := sqlexec.JoinConnectionLimit(new(int), 1)
	if !l.Reserve(t.Context(), t.Context()) {
		t.Fatal("there is no place for the first transaction")
	}
	if l.Reserve(ended, t.Context()) || l.Reserve(t.Context(), ended) {
		t.Error("a second transaction got a place although its context had ended")
	}
	got := make(chan bool)
	go func() { got <- l.Reserve(t.Context(), t.Context()) }()
	l.Free()
	if !<-got {
		t.Error("the place that was given back was not reserved")
	}
}

// A pool without a limit, and a transport that needs no connections, have none.
func TestConnectionLimit_NilLimitsNothing(t *testing.T) {
	t.Parallel()
	var l *sqlexec.ConnectionLimit
	for range 3 {
		if !l.Reserve(t.Context(), t.Context()) {
			t.Fatal("a limit that is nil has no place")
		}
	}
	l.Free()
	l.Release()
}
