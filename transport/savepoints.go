package transport

import (
	"errors"
	"slices"
)

// Savepoints is the set of a delivery's existing savepoints ([core.Delivery.Savepoint]).
// The zero value is empty, and small, because most deliveries never have one. It is not
// safe for concurrent use, and must not be copied after [Savepoints.Add].
type Savepoints struct{ list *savepointList } // nil before the first

type savepointList struct {
	last     int
	existing []int
}

// Add returns the number of a new savepoint. Numbers are unique.
func (s *Savepoints) Add() int {
	if s.list == nil {
		s.list = &savepointList{}
	}
	s.list.last++
	s.list.existing = append(s.list.existing, s.list.last)
	return s.list.last
}

// Check returns an error if a savepoint no longer exists.
func (s *Savepoints) Check(n int) error {
	if s.list == nil || !slices.Contains(s.list.existing, n) {
		return errors.New("the savepoint does not exist any more: an earlier one, or all of the transaction, was rolled back")
	}
	return nil
}

// RolledBack removes the savepoints after n, to which the delivery was rolled back.
func (s *Savepoints) RolledBack(n int) {
	if s.list != nil {
		s.list.existing = slices.DeleteFunc(s.list.existing, func(other int) bool { return other > n })
	}
}

// Clear removes all savepoints, because the whole transaction was rolled back.
func (s *Savepoints) Clear() {
	if s.list != nil {
		s.list.existing = nil
	}
}
