package presence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// session holds the number of a transport over database/sql, with a connection of its
// pool: there is no listening connection.
type session struct {
	life     context.Context
	db       *sql.DB
	presence *Presence
}

// StartSession returns the presence of a transport over database/sql, or nil if the
// transport is closed. The session ends with life. queues and freed are those of New.
func StartSession(life *transport.Lifecycle, db *sql.DB, queues func() map[string]*queues.Queue, freed func(q *queues.Queue, due time.Time)) *Presence {
	s := &session{life: life.Context(), db: db, presence: New(queues, freed)}
	s.presence.wanted.Store(true)
	if !life.Go(s.run) {
		return nil
	}
	return s.presence
}

func (s *session) run() {
	life := s.life
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
func (s *session) hold(life context.Context, o *transport.Outages) (ended bool, err error) {
	defer s.presence.Detach()
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
		if err = s.presence.Attach(life, pg.Conn()); err == nil {
			if ended = s.presence.unable.Load(); ended {
				return nil
			}
			o.End()
		}
		for err == nil {
			if err = transport.Sleep(life, life, time.Until(s.presence.next), nil); err == nil {
				err = s.presence.Look(life, pg.Conn())
			}
		}
		return driver.ErrBadConn // so that the pool ends the session
	})
	if err == nil && !ended {
		err = rawErr
	}
	return ended, err
}
