package sqlserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// presence tells other processes that this one is there: a session holds an advisory lock on a number,
// which each lease of the process has in its own number. When a process dies, the server ends its sessions,
// and others need not wait until its leases end. A process that is slow, or that the network has cut
// off, keeps its number until the server gives its session up; then its leases end by themselves
// first. Where only the session breaks, the process takes its number again before others release its
// leases. If it is too late, each of those messages has two receivers for a while, as after any lost
// lease: the number of the lease decides which of them settles it.
//
// The session is that of a pool's notifyListener, or one of a database/sql pool of its own (numberSession).
type presence struct {
	number atomic.Int32 // 0: there is none, and leases have to end by themselves
	wanted atomic.Bool  // there is a receiver that leases
	unable atomic.Bool  // there can be no number on this session

	queues func() map[string]*queue      // of the process's receivers
	freed  func(q *queue, due time.Time) // is told of messages that are available again, and of the first one's due

	mu    sync.Mutex
	tried chan struct{} // closed when the next attempt to get a number ends; guarded by mu

	// What follows belongs to who has the session.

	attached  bool
	again     bool                // there was a session before
	mine      []int32             // the numbers that leases may have; the last one is the new ones'
	left      []int32             // those of mine that an earlier session still has: the server has not noticed its end
	away      map[int64]time.Time // by number of a process: since when it is not there; zero: it is there
	release   bool                // there may be leases to release
	notBefore time.Time           // when that may be, at the earliest
	next      time.Time           // when to look again
}

const (
	// presenceClass is the first half of the key of the lock, "Repr" in ASCII. The second is the number.
	presenceClass = 1382379634
	mostNumbers   = 1<<16 - 1
	// claimBits are those of a row's column claims that count its leases. The others are the number of
	// the process which has leased it.
	claimBits = 15

	// presenceEvery is how often the numbers of others are looked at, and presenceGap when again where one is
	// away: if it still is, its process has died. After a lost connection all processes may have to come
	// back: reconnectGap is how long they may take.
	presenceEvery = time.Second
	presenceGap   = presenceEvery / 2
	reconnectGap  = 20 * time.Second
	// presenceTimeout is for each statement, and for how long a receiver's opening waits for a number.
	presenceTimeout = 5 * time.Second
	// headOfQueue is how many messages from the first are looked at for leases of processes that have
	// died: leased ones are the oldest.
	headOfQueue = 20_000
)

func newPresence(queues func() map[string]*queue, freed func(q *queue, due time.Time)) *presence {
	return &presence{queues: queues, freed: freed, tried: make(chan struct{})}
}

// own returns the number for new leases.
func (p *presence) own() int32 {
	if p == nil {
		return 0
	}
	return p.number.Load()
}

// await waits until there is a number, or an attempt to get one has failed.
func (p *presence) await(ctx, life context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	p.mu.Lock()
	tried := p.tried
	p.mu.Unlock()
	if p.own() != 0 || p.unable.Load() {
		return
	}
	select {
	case <-tried:
	case <-ctx.Done():
	case <-life.Done():
	}
}

// attempted ends what await waits for.
func (p *presence) attempted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.tried)
	p.tried = make(chan struct{})
}

// attach gets a number, if it is wanted and not there yet, and if possible the one of the session before. An error is
// that of a session that has ended.
func (p *presence) attach(ctx context.Context, conn *pgx.Conn) error {
	if p.attached || p.unable.Load() || !p.wanted.Load() {
		return nil
	}
	defer p.attempted()
	err := p.getNumber(ctx, conn)
	if err == nil || conn.IsClosed() || (postgres{}).classify(err).transient() {
		return err
	}
	p.unable.Store(true) // the server does not know such locks, or the role may not look at them
	return nil
}

func (p *presence) getNumber(ctx context.Context, conn *pgx.Conn) error {
	began := time.Now()
	pid, started, err := p.examine(ctx, conn)
	if err != nil {
		return err
	}
	if pid != conn.PgConn().PID() { // a pooler lends the session, which is not the process's
		p.unable.Store(true)
		return nil
	}
	var left []int32
	for _, n := range p.mine {
		ok, err := p.take(ctx, conn, n)
		if err != nil {
			return err
		}
		if !ok {
			left = append(left, n)
		}
	}
	for len(left) == len(p.mine) { // there is none, or none is to be had
		n := 1 + rand.Int32N(mostNumbers)
		ok, err := p.take(ctx, conn, n)
		if err != nil {
			return err
		}
		if ok {
			p.mine = append(p.mine, n)
		}
	}
	p.left = left
	for _, n := range p.mine {
		if !slices.Contains(left, n) {
			p.number.Store(n)
		}
	}
	p.away, p.release, p.next = map[int64]time.Time{}, true, began
	gap := max(presenceGap, reconnectGap-started)
	if p.again {
		gap = reconnectGap
	}
	p.notBefore = began.Add(gap)
	p.attached, p.again = true, true
	return nil
}

// detach is called when the session has ended, or could not be begun.
func (p *presence) detach() {
	p.number.Store(0)
	p.attached = false
	p.unable.Store(false)
	p.attempted()
}

// examine asks for the session's process and for how long ago the server was started.
func (p *presence) examine(ctx context.Context, conn *pgx.Conn) (pid uint32, started time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	var process, micros int64
	err = conn.QueryRow(ctx, `select pg_backend_pid()::bigint, (extract(epoch from clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint`).Scan(&process, &micros)
	return uint32(process), time.Duration(micros) * time.Microsecond, err
}

// take locks a number, unless another session has it.
func (p *presence) take(ctx context.Context, conn *pgx.Conn, n int32) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `select pg_try_advisory_lock($1::int, $2::int)`, int32(presenceClass), n).Scan(&ok)
	return ok, err
}

// look finds out which numbers are not there any more, and releases their leases. An error is that of a session that has
// ended.
func (p *presence) look(ctx context.Context, conn *pgx.Conn) error {
	err := p.see(ctx, conn)
	for i := len(p.left) - 1; i >= 0 && err == nil; i-- {
		var ok bool
		if ok, err = p.take(ctx, conn, p.left[i]); ok {
			p.left = slices.Delete(p.left, i, i+1)
		}
	}
	if err == nil && p.release && !time.Now().Before(p.notBefore) {
		if err = p.releaseLeases(ctx, conn); err == nil {
			p.release = false
		}
	}
	p.next = time.Now().Add(p.pause())
	if conn.IsClosed() || errors.Is(err, errLeft) {
		return err
	}
	return nil
}

// pause returns how long to wait until the next look.
func (p *presence) pause() time.Duration {
	pause := presenceEvery
	if p.release {
		pause = max(presenceGap, time.Until(p.notBefore))
	}
	for _, since := range p.away {
		if !since.IsZero() {
			pause = min(pause, presenceGap)
		}
	}
	if len(p.left) > 0 { // others release the leases with this number half as fast
		pause = min(pause, presenceGap/2)
	}
	return min(pause, presenceEvery)
}

// heldNumbers are those of processes whose session lives.
const heldNumbers = `select objid::bigint from pg_locks where locktype = 'advisory' and classid = 1382379634 and objsubid = 2
	and granted and database = (select oid from pg_database where datname = current_database())`

// see notes which numbers are there, and which are not any more.
func (p *presence) see(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	var readOnly bool
	var there []int64
	err := conn.QueryRow(ctx, `select current_setting('transaction_read_only')::boolean, array(`+heldNumbers+`)`).Scan(&readOnly, &there)
	switch {
	case err != nil:
		return err
	case readOnly:
		return errLeft
	}
	now := time.Now()
	for n, since := range p.away {
		switch {
		case slices.Contains(there, n):
		case since.IsZero():
			p.away[n] = now
		case now.Sub(since) >= presenceGap:
			delete(p.away, n)
			p.release = true
		}
	}
	for _, n := range there {
		p.away[n] = time.Time{}
	}
	return nil
}

// releaseLeases releases the messages of this process's queues that processes have leased which are
// not there any more.
func (p *presence) releaseLeases(ctx context.Context, conn *pgx.Conn) error {
	living := make([]int64, 0, len(p.away))
	for n := range p.away {
		living = append(living, n)
	}
	var failed error
	for _, q := range p.queues() {
		due, err := freeOrphans(ctx, conn, q, living)
		if conn.IsClosed() {
			return err
		}
		if err != nil { // of this table
			failed = err
		}
		if len(due) > 0 {
			p.freed(q, slices.MinFunc(due, time.Time.Compare))
		}
	}
	return failed
}

// freeOrphans returns the due of the messages that it has released.
func freeOrphans(ctx context.Context, conn *pgx.Conn, q *queue, living []int64) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	rows, err := conn.Query(ctx, q.orphans, living)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}
