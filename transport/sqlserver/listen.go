package sqlserver

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/reprise-go/reprise/transport"
)

// aliveEvery is how often the connection that listens is tried: nothing else
// travels on it.
const aliveEvery = 30 * time.Second

// listen makes the server wake the receivers of this process, whose queues may have
// changed.
func (b *bellman) listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.listens {
		b.listens = b.t.life.Go(b.hearing)
	}
	b.changed.Notify()
	if b.interrupt != nil {
		b.interrupt()
	}
}

// hearing keeps a connection that listens, while there is a queue to listen for.
func (b *bellman) hearing() {
	var o transport.Outages
	for b.t.life.Context().Err() == nil {
		if len(b.t.bells.queues()) == 0 {
			select {
			case <-b.changed:
			case <-b.t.life.Context().Done():
			}
			continue
		}
		began := time.Now()
		err := b.hear(&o)
		b.listening.Store(false)
		if err != nil && transport.Sleep(b.t.life.Context(), b.t.life.Context(), o.Failed(err, began), nil) != nil {
			return
		}
	}
}

// leave makes it listen to the server that can be written to, which may be another one
// now: at the old one nobody notifies any more.
func (b *bellman) leave() {
	b.left.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interrupt != nil {
		b.interrupt()
	}
}

var errLeft = errors.New("the server that it listened to cannot be written to")

var errNotify = errors.New("the connection that listens does not answer")

// hear listens until the connection fails, or there is nothing to listen for.
func (b *bellman) hear(o *transport.Outages) error {
	b.left.Store(false)
	conn, err := b.connect()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.life.Context()), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	heard := map[string]*queue{} // by channel
	for {
		queues := b.t.bells.queues()
		if len(queues) == 0 {
			return nil
		}
		if err := b.hearFor(conn, heard, queues); err != nil {
			return err
		}
		o.End()
		b.listening.Store(true)
		for b.quiet() {
			n, err := b.next(conn)
			if err != nil {
				return err
			}
			if b.left.Load() {
				return errLeft
			}
			if q := heard[n]; q != nil { // nil: it was on its way when we ceased to listen for it
				b.t.bells.ring(q)
			}
		}
	}
}

// connect opens a connection as the pool does, whose hooks may know the password.
func (b *bellman) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(b.t.life.Context(), operationTimeout)
	defer cancel()
	cfg := b.db.connections.Config()
	// To cease to wait for a notification is no reason to ask the server to cancel
	// something, and to wait until it has.
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

// quiet reports whether the queues to listen for are still the same.
func (b *bellman) quiet() bool {
	select {
	case <-b.changed:
		return false
	default:
		return b.t.life.Context().Err() == nil
	}
}

// hearFor listens for these queues and no others. What came to one before it was
// listened for is looked for at once.
func (b *bellman) hearFor(conn *pgx.Conn, heard map[string]*queue, queues []*queue) error {
	ctx, cancel := context.WithTimeout(b.t.life.Context(), operationTimeout)
	defer cancel()
	wanted := map[string]*queue{}
	for _, q := range queues {
		wanted[q.channel] = q
		if heard[q.channel] == nil {
			if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{q.channel}.Sanitize()); err != nil {
				return err
			}
			heard[q.channel] = q
			b.t.bells.ring(q)
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

// next returns the channel of the next notification, or "" after a while without
// one, or when the queues to listen for have changed.
func (b *bellman) next(conn *pgx.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(b.t.life.Context(), aliveEvery)
	defer cancel()
	b.mu.Lock()
	b.interrupt = cancel
	b.mu.Unlock()
	if len(b.changed) > 0 || b.left.Load() {
		return "", nil
	}
	n, err := conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		return n.Channel, nil
	case conn.IsClosed():
		return "", err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		ctx, cancel := context.WithTimeout(b.t.life.Context(), notifyTimeout)
		defer cancel()
		if err := conn.Ping(ctx); err != nil {
			return "", errors.Join(errNotify, err)
		}
	}
	return "", nil
}
