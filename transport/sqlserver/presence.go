package sqlserver

import (
	"context"
	"database/sql/driver"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
)

// presence tells other processes that this one is there: a session of its own holds an advisory lock on
// a number, which each lease has in its own number. When a process dies, the server ends its sessions,
// and others need not wait until its leases end. A process that is slow, or that the network has cut
// off, keeps its number until the server gives its session up; then its leases end by themselves
// first. Where only the session breaks, the process takes its number again before others release its
// leases. If it is too late, each of those messages has two receivers for a while, as after any lost
// lease: the number of the lease decides which of them settles it.
type presence struct {
	t      *Transport
	number atomic.Int32  // 0: it has none, and its leases have to end by themselves
	tried  chan struct{} // closed after the first attempt to get one

	mu      sync.Mutex
	started bool
}

const (
	// presenceClass is the first half of the key of the lock. The second is the number.
	presenceClass = 1382379634
	mostNumbers   = 1<<16 - 1
	// claimBits are those of a row's column claims that count its leases. The others are the number of
	// the process which has leased it.
	claimBits = 15

	// presenceEvery is how often the numbers of others are looked at, and presenceGap how long one is
	// away before its leases are released. After a lost connection all processes may have to come
	// back: reconnectGap is how long they may take.
	presenceEvery = 400 * time.Millisecond
	presenceGap   = time.Second
	reconnectGap  = 10 * time.Second
	// presencePause is the longest pause between attempts to connect.
	presencePause   = time.Second
	presenceTimeout = 5 * time.Second
	// headOfQueue is how many messages from the first are looked at for leases of processes that have
	// died: leased ones are the oldest.
	headOfQueue = 20_000
	// leastForPresence is the least limit of a pool of database/sql of which one connection is taken.
	leastForPresence = keptForSending + 3
)

func newPresence(t *Transport) *presence {
	return &presence{t: t, tried: make(chan struct{})}
}

// start begins to hold a number, and waits for the first attempt to get one.
func (p *presence) start(ctx context.Context) {
	if !p.mayHold() {
		return
	}
	p.mu.Lock()
	if !p.started {
		p.started = p.t.life.Go(p.run)
	}
	p.mu.Unlock()
	select {
	case <-p.tried:
	case <-ctx.Done():
	case <-p.t.life.Context().Done():
	}
}

func (p *presence) run() {
	life := p.t.life.Context()
	first := sync.OnceFunc(func() { close(p.tried) })
	defer first()
	var mine []int32
	gap, pause := presenceGap, presenceEvery/8
	for life.Err() == nil {
		lasted := false
		err := p.session(func(conn *pgx.Conn) (err error) {
			lasted, err = p.hold(conn, &mine, gap, first)
			return err
		})
		p.number.Store(0)
		first()
		if err == nil { // there is a pooler between, whose sessions are not the process's
			return
		}
		if pause = min(2*pause, presencePause); lasted {
			gap, pause = reconnectGap, presenceEvery/8
		}
		if transport.Sleep(life, life, pause, nil) != nil {
			return
		}
	}
}

// mayHold reports whether there can be a session. Through database/sql it is one of the pool's, of which
// enough must be left.
func (p *presence) mayHold() bool {
	limit := p.t.db.limit()
	_, overPgx := p.t.db.(*pgxDatabase)
	return p.t.onPostgres() && (overPgx || limit == 0 || limit >= leastForPresence)
}

// session calls do with a session that it closes afterwards.
func (p *presence) session(do func(conn *pgx.Conn) error) error {
	if pooled, ok := p.t.db.(*pgxDatabase); ok {
		conn, err := connectBeside(p.t.life.Context(), pooled.connections)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.life.Context()), time.Second)
			defer cancel()
			_ = conn.Close(ctx)
		}()
		return do(conn)
	}
	ctx, cancel := context.WithTimeout(p.t.life.Context(), operationTimeout)
	defer cancel()
	conn, err := p.t.db.(*sqlDatabase).db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.Raw(func(native any) error {
		pg, ok := native.(*stdlib.Conn)
		if !ok {
			return nil // as where there is a pooler
		}
		err = do(pg.Conn())
		return driver.ErrBadConn // so that the session ends
	})
	return err
}

// hold gets a number, if possible the last of its own, and watches those of others until the session
// ends. Without an error there cannot be one.
func (p *presence) hold(conn *pgx.Conn, mine *[]int32, gap time.Duration, first func()) (lasted bool, err error) {
	if pooled, err := p.isPooled(conn); err != nil || pooled {
		return false, err
	}
	var left []int32 // that the session before still has: the server has not noticed its end
	for _, n := range *mine {
		ok, err := p.take(conn, n)
		if err != nil {
			return false, err
		}
		if !ok {
			left = append(left, n)
		}
	}
	for len(left) == len(*mine) { // there is none, or the last one is not to be had
		n := 1 + rand.Int32N(mostNumbers)
		ok, err := p.take(conn, n)
		if err != nil {
			return false, err
		}
		if ok {
			*mine = append(*mine, n)
		}
	}
	for _, n := range *mine {
		if !slices.Contains(left, n) {
			p.number.Store(n)
		}
	}
	first()
	seen := map[int64]time.Time{} // when each number was there last
	release, notBefore := true, time.Now().Add(gap)
	for {
		numbers, err := p.look(conn)
		if err != nil {
			return true, err
		}
		now := time.Now()
		for _, n := range numbers {
			seen[n] = now
		}
		for n, at := range seen {
			if now.Sub(at) >= presenceGap {
				delete(seen, n)
				release = true
			}
		}
		for i := len(left) - 1; i >= 0; i-- {
			ok, err := p.take(conn, left[i])
			if err != nil {
				return true, err
			}
			if ok {
				left = slices.Delete(left, i, i+1)
			}
		}
		if release && now.After(notBefore) {
			release = !p.release(seen)
		}
		if err := transport.Sleep(p.t.life.Context(), p.t.life.Context(), presenceEvery, nil); err != nil {
			return true, err
		}
	}
}

// isPooled reports whether the session is one that a connection pooler lends.
func (p *presence) isPooled(conn *pgx.Conn) (bool, error) {
	ctx, cancel := context.WithTimeout(p.t.life.Context(), presenceTimeout)
	defer cancel()
	var pid int64
	err := conn.QueryRow(ctx, `select pg_backend_pid()::bigint`).Scan(&pid)
	return pid != int64(conn.PgConn().PID()), err
}

// take locks a number, unless another session has it.
func (p *presence) take(conn *pgx.Conn, n int32) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(p.t.life.Context(), presenceTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `select pg_try_advisory_lock($1::int, $2::int)`, int32(presenceClass), n).Scan(&ok)
	return ok, err
}

// heldNumbers are those of processes whose session lives.
const heldNumbers = `select objid::bigint from pg_locks where locktype = 'advisory' and classid = 1382379634 and objsubid = 2
	and granted and database = (select oid from pg_database where datname = current_database())`

func (p *presence) look(conn *pgx.Conn) (numbers []int64, err error) {
	ctx, cancel := context.WithTimeout(p.t.life.Context(), presenceTimeout)
	defer cancel()
	rows, err := conn.Query(ctx, heldNumbers)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// release releases the messages of this process's queues that processes have leased which are not
// there any more. It reports whether it could.
func (p *presence) release(there map[int64]time.Time) bool {
	numbers := make([]int64, 0, len(there))
	for n := range there {
		numbers = append(numbers, n)
	}
	ok := true
	for _, q := range p.t.bells.queues() {
		ctx, cancel := context.WithTimeout(p.t.life.Context(), presenceTimeout)
		var due []time.Time
		err := p.t.db.exec(ctx, query(func(scan scanner) error {
			var at time.Time
			err := scan(&at)
			due = append(due, at)
			return err
		}, q.orphans, numbers))
		cancel()
		ok = ok && err == nil
		if len(due) == 0 {
			continue
		}
		first := slices.MinFunc(due, time.Time.Compare)
		for _, r := range p.t.life.Receivers() {
			if r, is := r.(*receiver); is && r.q == q {
				r.lower(first)
			}
		}
		p.t.ring(q)
	}
	return ok
}
