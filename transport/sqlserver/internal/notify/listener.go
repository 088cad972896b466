package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/presence"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// aliveEvery is how often the listening connection is tested: nothing else is sent on it.
const aliveEvery = 30 * time.Second

// listener keeps a connection that listens while there is a queue to listen for. All
// transports of a pool share it: a connection for each would cost the server a process for
// each.
type listener struct {
	pool  *pgxpool.Pool
	life  context.Context
	end   context.CancelFunc
	ended chan struct{} // closed when its goroutine has ended

	listening atomic.Bool
	left      atomic.Bool // the connection leads to a server that is not to be used any more

	changed transport.Signal // the queues have changed, or the number is wanted now

	presence *presence.Presence // on the same connection

	mu         sync.Mutex // guards the fields below
	transports map[*Notifier]struct{}
	interrupt  context.CancelFunc
}

var listeners = struct {
	mu sync.Mutex
	by map[*pgxpool.Pool]*listener
}{by: map[*pgxpool.Pool]*listener{}}

// joinListener returns the listener of a pool, for one more transport, which has to
// call leave.
func joinListener(pool *pgxpool.Pool, b *Notifier) *listener {
	listeners.mu.Lock()
	defer listeners.mu.Unlock()
	l := listeners.by[pool]
	if l == nil {
		// It has no values of a transport's context, since it may outlive the transport.
		life, end := context.WithCancel(context.Background())
		l = &listener{pool: pool, life: life, end: end, ended: make(chan struct{}), changed: transport.NewSignal(), transports: map[*Notifier]struct{}{}}
		l.presence = presence.New(l.queues, l.free)
		listeners.by[pool] = l
		go l.run()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transports[b] = struct{}{}
	return l
}

// leave is called when a transport is closed. The last transport waits for the end of the
// listener.
func (l *listener) leave(b *Notifier) {
	listeners.mu.Lock()
	l.mu.Lock()
	delete(l.transports, b)
	last := len(l.transports) == 0
	l.mu.Unlock()
	if last {
		delete(listeners.by, l.pool)
	}
	listeners.mu.Unlock()
	if last {
		l.end()
		<-l.ended
		return
	}
	l.update()
}

// update makes the listener read its list of queues again.
func (l *listener) update() {
	l.changed.Notify()
	l.wake()
}

// wake interrupts the listener's wait for a notification.
func (l *listener) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupt != nil {
		l.interrupt()
	}
}

// changeServer makes the listener connect to the server that can be written to, which may
// be another one now: the old server gets no more notifications.
func (l *listener) changeServer() {
	l.left.Store(true)
	l.wake()
}

// members returns the listener's transports.
func (l *listener) members() []*Notifier {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.transports))
}

// queues returns the queues to listen for, by channel.
func (l *listener) queues() map[string]*queues.Queue {
	queues := map[string]*queues.Queue{}
	for _, b := range l.members() {
		for _, q := range b.wakeups.queues() {
			queues[q.Channel] = q
		}
	}
	return queues
}

// wakeReceivers wakes the receivers of a queue, in each transport.
func (l *listener) wakeReceivers(q *queues.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range l.transports {
		b.wakeups.Wake(q)
	}
}

// free wakes receivers that may get released messages, also in other processes.
func (l *listener) free(q *queues.Queue, due time.Time) {
	for _, b := range l.members() {
		b.freed(q, due)
	}
}

func (l *listener) run() {
	defer close(l.ended)
	var o transport.Outages
	for l.life.Err() == nil {
		if len(l.queues()) == 0 {
			select {
			case <-l.changed:
			case <-l.life.Done():
			}
			continue
		}
		began := time.Now()
		err := l.hear(&o)
		l.listening.Store(false)
		if err != nil && transport.Sleep(l.life, l.life, o.Failed(err, began), nil) != nil {
			return
		}
	}
}

var errNotify = errors.New("the connection that listens does not answer")

// hear listens until the connection fails, or there is no queue to listen for.
func (l *listener) hear(o *transport.Outages) error {
	l.left.Store(false)
	defer l.presence.Detach()
	conn, err := connectBeside(l.life, l.pool)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.life), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	heard := map[string]*queues.Queue{} // by channel
	for {
		queues := l.queues()
		if len(queues) == 0 {
			return nil
		}
		if err := l.hearFor(conn, heard, queues); err != nil {
			return err
		}
		if err := l.presence.Attach(l.life, conn); err != nil {
			return err
		}
		o.End()
		l.listening.Store(true)
		for l.quiet() {
			n, err := l.next(conn)
			if err != nil {
				return err
			}
			if l.left.Load() {
				return presence.ErrReadOnly
			}
			if q := heard[n]; q != nil { // nil: it was sent before UNLISTEN
				l.wakeReceivers(q)
			}
		}
	}
}

// connectBeside opens a connection as the pool does, whose hooks may know the password.
// The connection does not belong to the pool.
func connectBeside(life context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(life, operation.Timeout)
	defer cancel()
	cfg := pool.Config()
	// When the wait for a notification ends, there is no statement that the server would
	// have to cancel.
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	if cfg.AfterConnect != nil {
		if err := cfg.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
	}
	return conn, nil
}

// quiet reports whether the queues to listen for are unchanged.
func (l *listener) quiet() bool {
	select {
	case <-l.changed:
		return false
	default:
		return l.life.Err() == nil
	}
}

// hearFor listens for these queues and no others. It wakes receivers of new queues at
// once, because messages may have arrived before it listened.
func (l *listener) hearFor(conn *pgx.Conn, heard, wanted map[string]*queues.Queue) error {
	ctx, cancel := context.WithTimeout(l.life, operation.Timeout)
	defer cancel()
	for channel, q := range wanted {
		if heard[channel] == nil {
			if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
				return err
			}
			heard[channel] = q
			l.wakeReceivers(q)
		}
	}
	for channel := range heard {
		if wanted[channel] == nil {
			if _, err := conn.Exec(ctx, "unlisten "+pgx.Identifier{channel}.Sanitize()); err != nil {
				return err
			}
			delete(heard, channel)
		}
	}
	return nil
}

// next returns the channel of the next notification, or "" if none arrives for a while,
// or if the queues to listen for have changed.
func (l *listener) next(conn *pgx.Conn) (string, error) {
	nextLook, looks := l.presence.NextLook()
	if !looks {
		nextLook = time.Now().Add(aliveEvery)
	}
	ctx, cancel := context.WithDeadline(l.life, nextLook)
	defer cancel()
	l.mu.Lock()
	l.interrupt = cancel
	l.mu.Unlock()
	if len(l.changed) > 0 || l.left.Load() {
		return "", nil
	}
	n, err := conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		return n.Channel, nil
	case conn.IsClosed():
		return "", err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if err := l.tryConnection(conn, looks); err != nil {
			return "", errors.Join(errNotify, err)
		}
	}
	return "", nil
}

// tryConnection tests whether the connection still works.
func (l *listener) tryConnection(conn *pgx.Conn, looks bool) error {
	if looks {
		return l.presence.Look(l.life, conn)
	}
	ctx, cancel := context.WithTimeout(l.life, timeout)
	defer cancel()
	return conn.Ping(ctx)
}
