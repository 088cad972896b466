package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// leastForPresence is the smallest limit of a pool of database/sql of which one
// connection is taken for the session of the presence.
const leastForPresence = keptForSending + 3

// numberSession holds the number of a transport over database/sql, with a connection of
// its pool: there is no listening connection.
type numberSession struct {
	t        *Transport
	db       *sql.DB
	presence *presence
}

// startNumberSession returns the presence of a transport over database/sql, or nil if
// there cannot be one: it must not take a connection that others need.
func startNumberSession(t *Transport, db *sqlexec.SQLDatabase) *presence {
	if limit := db.Limit(); !t.onPostgres() || limit > 0 && limit < leastForPresence {
		return nil
	}
	s := &numberSession{t: t, db: db.DB}
	s.presence = newPresence(func() map[string]*queues.Queue {
		queues := map[string]*queues.Queue{}
		for _, q := range t.wakeups.queues() {
			queues[q.Table.Address] = q
		}
		return queues
	}, t.free)
	s.presence.wanted.Store(true)
	if !t.life.Go(s.run) {
		return nil
	}
	return s.presence
}

func (s *numberSession) run() {
	life := s.t.life.Context()
	var o transport.Outages
	for {
		began := time.Now()
		ended, err := s.hold(life, &o)
		s.presence.unable.Store(ended)
		if ended || transport.Sleep(life, life, o.Failed(err, began), nil) != nil {
			return
		}
	}
}

// hold holds the number until the connection fails. ended means that there cannot be a
// number.
func (s *numberSession) hold(life context.Context, o *transport.Outages) (ended bool, err error) {
	defer s.presence.detach()
	ctx, cancel := context.WithTimeout(life, operation.Timeout)
	conn, err := s.db.Conn(ctx)
	cancel()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	rawErr := conn.Raw(func(native any) error {
		pg, ok := native.(*stdlib.Conn)
		if ended = !ok; ended {
			return nil
		}
		if err = s.presence.attach(life, pg.Conn()); err == nil {
			if ended = s.presence.unable.Load(); ended {
				return nil
			}
			o.End()
		}
		for err == nil {
			if err = transport.Sleep(life, life, time.Until(s.presence.next), nil); err == nil {
				err = s.presence.look(life, pg.Conn())
			}
		}
		return driver.ErrBadConn // so that the pool ends the session
	})
	if err == nil && !ended {
		err = rawErr
	}
	return ended, err
}
