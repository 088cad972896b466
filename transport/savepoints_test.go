package transport_test

import (
	"testing"

	"github.com/reprise-go/reprise/transport"
)

func TestSavepoints_EndWithAnEarlierRollback(t *testing.T) {
	var s transport.Savepoints
	exists := func(n int, want bool) {
		t.Helper()
		if err := s.Check(n); (err == nil) != want {
			t.Errorf("savepoint %d: %v, want it to exist: %t", n, err, want)
		}
	}
	first, second, third := s.Add(), s.Add(), s.Add()
	s.RolledBack(second)
	exists(first, true)
	exists(second, true)
	exists(third, false)
	fourth := s.Add()
	exists(third, false) // its place was not taken
	s.RolledBack(first)
	exists(second, false)
	exists(fourth, false)
	s.Clear()
	exists(first, false)
}
