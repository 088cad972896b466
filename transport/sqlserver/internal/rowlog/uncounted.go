package rowlog

import (
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// Uncounted are the failures of rows that could not be counted in their table. A row is
// identified by its seq and claims: once the failure is counted there, or another
// receiver has had the row, it has other claims, and its entry here is void. Uncounted is
// safe for concurrent use.
type Uncounted struct {
	nonEmpty atomic.Bool // set by the first miss, so that the usual case takes no lock
	mu       sync.Mutex  // held from reading an entry until it is changed
	rows     *transport.Cache[int64, failure]
}

type failure struct {
	claims, failures int
	lastError        string
}

// maxUncounted limits them. Rows that are given back keep their place in the queue, so
// that a receiver alternates between no more rows than it may hold.
const maxUncounted = 10_000

// NewUncounted returns an empty log.
func NewUncounted() *Uncounted {
	return &Uncounted{rows: transport.NewCache[int64, failure](maxUncounted)}
}

// Add counts one more failure of a row.
func (m *Uncounted) Add(row *dialect.Row) {
	m.nonEmpty.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	before, _ := m.rows.Get(row.Seq)
	if before.claims != row.Claims {
		before.failures = 0
	}
	m.rows.Put(row.Seq, failure{row.Claims, before.failures + 1, row.LastError})
}

// Of returns the number of failures that the row's table has not counted, and the last
// error.
func (m *Uncounted) Of(row *dialect.Row) (failures int, lastError string) {
	if !m.nonEmpty.Load() {
		return 0, ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found, _ := m.rows.Get(row.Seq)
	if found.claims != row.Claims {
		return 0, ""
	}
	return found.failures, found.lastError
}

// Set corrects the number of failures. For a row that is gone it is 0.
func (m *Uncounted) Set(row *dialect.Row, failures int) {
	if !m.nonEmpty.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if failures == 0 {
		m.rows.Delete(row.Seq)
		return
	}
	m.rows.Put(row.Seq, failure{row.Claims, failures, row.LastError})
}
