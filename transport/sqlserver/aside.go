package sqlserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// aside has the rows of a queue that the server refuses to hand out, because code of the
// database fails for them: a trigger, a policy, the expression of an index. The receiver can
// neither lease nor remove such a row, so it stays in the table, is reported, and is left out of
// fetches for a while: otherwise it would be the first row of each.
type aside struct {
	mu      sync.Mutex // guards the fields below
	rows    []asideRow
	singles int // how many fetches ask for a single row, to find the refused one
}

type asideRow struct {
	seq     int64
	nextTry time.Time
	pause   time.Duration
}

const (
	// maxAside limits the rows that are left out. With more of them the table is at fault.
	maxAside = 100
	// A row is tried again after firstAside, and then less and less often, up to lastAside.
	firstAside = 10 * time.Second
	lastAside  = time.Hour
)

// limit returns how many of n messages a fetch may ask for.
func (a *aside) limit(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.singles == 0 {
		return n
	}
	a.singles--
	return min(n, 1)
}

// leaveOut changes the statement of a fetch.
func (a *aside) leaveOut(d dialect.Dialect, s *sqlexec.Statement) {
	a.mu.Lock()
	var seqs []int64
	for _, row := range a.rows {
		if time.Now().Before(row.nextTry) {
			seqs = append(seqs, row.seq)
		}
	}
	a.mu.Unlock()
	d.Except(s, seqs)
}

// add puts a row aside. first says that it was not there before, and ok is false if there are too many.
func (a *aside) add(seq int64) (first, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.singles = 0
	i := slices.IndexFunc(a.rows, func(row asideRow) bool { return row.seq == seq })
	if i >= 0 {
		row := &a.rows[i]
		row.pause = min(2*row.pause, lastAside)
		row.nextTry = time.Now().Add(row.pause)
		return false, true
	}
	if len(a.rows) == maxAside {
		a.rows = slices.DeleteFunc(a.rows, func(row asideRow) bool { return time.Now().After(row.nextTry) })
	}
	if len(a.rows) == maxAside {
		return false, false
	}
	a.rows = append(a.rows, asideRow{seq, time.Now().Add(firstAside), firstAside})
	return true, true
}

// setAside reacts to a fetch of n messages that failed because of one row. It reports whether the
// next fetch may succeed.
func (r *receiver) setAside(ctx context.Context, n int, cause error) bool {
	if n > 1 {
		r.aside.mu.Lock()
		r.aside.singles = dialect.BatchSizes[len(dialect.BatchSizes)-1]
		r.aside.mu.Unlock()
		return true
	}
	find := r.t.dialect.First(r.q.QueueTexts, r.t.nserviceBusTables)
	if find == nil {
		return false
	}
	found, seq := false, int64(0)
	r.aside.leaveOut(r.t.dialect, find)
	find.Row = func(scan sqlexec.Scanner) error {
		found = true
		return scan(&seq)
	}
	if err := r.t.server.Read(ctx, find); err != nil || !found {
		return false
	}
	first, ok := r.aside.add(seq)
	if first && r.warn != nil {
		r.warn(fmt.Sprintf("the row with seq %d of the table %s cannot be received, and stays there until it can: %v; to fix: find the trigger, policy or index of the table that fails for it, or move the row",
			seq, r.q.Table.Quoted, cause))
	}
	return ok
}
