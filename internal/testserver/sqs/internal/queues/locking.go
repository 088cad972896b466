package queues

import (
	"net/http"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// Begin locks the store for an operation. If the server was killed, the operation does not
// happen, and its connection ends.
func (st *Store) Begin() (now clock.Instant) {
	now, ok := st.TryBegin()
	if !ok {
		panic(http.ErrAbortHandler)
	}
	return now
}

// TryBegin locks the store for an operation, and reports whether it did: the server may have been killed.
func (st *Store) TryBegin() (now clock.Instant, ok bool) {
	st.mu.Lock()
	if st.dead {
		st.mu.Unlock()
		return 0, false
	}
	return st.clock.Now(), true
}

// End serves the polls of all queues that the operation has touched, and unlocks the store.
func (st *Store) End(now clock.Instant) {
	st.settleLocked(now)
	st.mu.Unlock()
}
