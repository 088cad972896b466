// Package presence shows other processes that this one lives, and releases the leases of
// processes that have died.
package presence

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// Presence tells other processes that this one lives: a session holds an advisory lock on
// a number, which is part of the number of each lease of the process. When a process
// dies, the server ends its sessions, and other processes need not wait until its leases
// end. A process that is slow, or that the network has cut off, keeps its number until
// the server ends its session; by then its leases have ended anyway. If only the session
// breaks, the process takes its number again before others release its leases. If it is
// too late, each of those messages has two receivers for a while, as after any lost
// lease: the number of the lease decides which of them settles the message.
//
// The session is that of a pool's listening connection (package notify), or a separate one
// of a database/sql pool (StartSession).
type Presence struct {
	number atomic.Int32 // 0: there is no number, and leases have to end by themselves
	wanted atomic.Bool  // there is a receiver that leases
	unable atomic.Bool  // this session cannot have a number

	queues func() map[string]*queues.Queue      // of the process's receivers
	freed  func(q *queues.Queue, due time.Time) // called for available messages, with the first one's due

	mu    sync.Mutex
	tried chan struct{} // closed when the next attempt to get a number ends; guarded by mu

	// The fields below belong to the goroutine with the session.

	attached    bool
	reconnected bool                // there was a session before
	mine        []int32             // numbers that leases of this process may have; new leases get the last one
	left        []int32             // those of mine that an earlier session still has: the server has not noticed its end
	disappeared map[int64]time.Time // by number of a process: when it disappeared; zero: it is connected
	release     bool                // there may be leases to release
	notBefore   time.Time           // earliest time to release them
	next        time.Time           // time of the next look
}

const (
	maxNumbers = 1<<16 - 1

	// lookEvery is the interval at which the numbers of other processes are read, and
	// lookGap the time until the next look after a number has disappeared: if it is
	// still missing, its process has died. After a lost connection all processes may have
	// to reconnect: reconnectGap is the time they have for that.
	lookEvery    = time.Second
	lookGap      = lookEvery / 2
	reconnectGap = 20 * time.Second
	// timeout limits each statement, and the time that the opening of a receiver
	// waits for a number.
	timeout = 5 * time.Second
)

// ErrReadOnly is the error of a session whose server has become a standby.
var ErrReadOnly = errors.New("the server cannot be written to any more")

// New returns the presence of a process that receives from these queues. freed is called
// when messages of a queue were released.
func New(queues func() map[string]*queues.Queue, freed func(q *queues.Queue, due time.Time)) *Presence {
	return &Presence{queues: queues, freed: freed, tried: make(chan struct{})}
}

// Want makes the session get a number. It reports whether none was wanted before.
func (p *Presence) Want() bool { return !p.wanted.Swap(true) }

// NextLook returns the time of the next look, if there is a number.
func (p *Presence) NextLook() (at time.Time, ok bool) { return p.next, p.attached }

// Own returns the number for new leases.
func (p *Presence) Own() int32 {
	if p == nil {
		return 0
	}
	return p.number.Load()
}

// Await waits until there is a number, or an attempt to get one has failed.
func (p *Presence) Await(ctx, life context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p.mu.Lock()
	tried := p.tried
	p.mu.Unlock()
	if p.Own() != 0 || p.unable.Load() {
		return
	}
	select {
	case <-tried:
	case <-ctx.Done():
	case <-life.Done():
	}
}

// attempted wakes await.
func (p *Presence) attempted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.tried)
	p.tried = make(chan struct{})
}

// Attach gets a number, if it is wanted and there is none, and if possible the number of
// the previous session. An error means that the session has ended.
func (p *Presence) Attach(ctx context.Context, conn *pgx.Conn) error {
	if p.attached || p.unable.Load() || !p.wanted.Load() {
		return nil
	}
	defer p.attempted()
	err := p.getNumber(ctx, conn)
	if err == nil || conn.IsClosed() || (postgres.Dialect{}).Classify(err).Transient() {
		return err
	}
	p.unable.Store(true) // the server has no such locks, or the role may not read them
	return nil
}

func (p *Presence) getNumber(ctx context.Context, conn *pgx.Conn) error {
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
	for len(left) == len(p.mine) { // none of our numbers could be locked, or there is none yet
		n := 1 + rand.Int32N(maxNumbers)
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
	p.disappeared, p.release, p.next = map[int64]time.Time{}, true, began
	gap := max(lookGap, reconnectGap-started)
	if p.reconnected {
		gap = reconnectGap
	}
	p.notBefore = began.Add(gap)
	p.attached, p.reconnected = true, true
	return nil
}

// Detach is called when the session has ended, or could not be begun.
func (p *Presence) Detach() {
	p.number.Store(0)
	p.attached = false
	p.unable.Store(false)
	p.attempted()
}

// examine asks for the session's process and the time since the start of the server.
func (p *Presence) examine(ctx context.Context, conn *pgx.Conn) (pid uint32, started time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var process, micros int64
	err = conn.QueryRow(ctx, `select pg_catalog.pg_backend_pid()::bigint,
	(extract(epoch from pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.pg_postmaster_start_time()) operator(pg_catalog.*) 1000000)::bigint`).Scan(&process, &micros)
	return uint32(process), time.Duration(micros) * time.Microsecond, err
}

// take locks a number, unless another session has it.
func (p *Presence) take(ctx context.Context, conn *pgx.Conn, n int32) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = conn.QueryRow(ctx, `select pg_catalog.pg_try_advisory_lock($1::int, $2::int)`, int32(postgres.PresenceClass), n).Scan(&ok)
	return ok, err
}

// Look finds numbers that have disappeared, and releases their leases. An error means
// that the session has ended.
func (p *Presence) Look(ctx context.Context, conn *pgx.Conn) error {
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
	if conn.IsClosed() || errors.Is(err, ErrReadOnly) {
		return err
	}
	return nil
}

// pause returns the time until the next look.
func (p *Presence) pause() time.Duration {
	pause := lookEvery
	if p.release {
		pause = max(lookGap, time.Until(p.notBefore))
	}
	for _, since := range p.disappeared {
		if !since.IsZero() {
			pause = min(pause, lookGap)
		}
	}
	if len(p.left) > 0 { // other processes release the leases with this number half as fast
		pause = min(pause, lookGap/2)
	}
	return min(pause, lookEvery)
}

// see records which numbers are there, and which have disappeared.
func (p *Presence) see(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var readOnly bool
	var there []int64
	err := conn.QueryRow(ctx, `select pg_catalog.current_setting('transaction_read_only')::boolean, array(`+postgres.HeldNumbers+`)`).Scan(&readOnly, &there)
	switch {
	case err != nil:
		return err
	case readOnly:
		return ErrReadOnly
	}
	now := time.Now()
	for n, since := range p.disappeared {
		switch {
		case slices.Contains(there, n):
		case since.IsZero():
			p.disappeared[n] = now
		case now.Sub(since) >= lookGap:
			delete(p.disappeared, n)
			p.release = true
		}
	}
	for _, n := range there {
		p.disappeared[n] = time.Time{}
	}
	return nil
}

// releaseLeases releases messages of this process's queues that are leased by processes
// which have disappeared.
func (p *Presence) releaseLeases(ctx context.Context, conn *pgx.Conn) error {
	living := make([]int64, 0, len(p.disappeared))
	for n := range p.disappeared {
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
func freeOrphans(ctx context.Context, conn *pgx.Conn, q *queues.Queue, living []int64) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, err := conn.Query(ctx, q.Orphans, living)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}
