package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

var placed = core.NewMessageType[[]byte]("orders.placed")

// rawSetup is the code of a user who needs only the rate, with pgx, on a table like
// Reprise's: no endpoint, no recoverability, no delivery count, headers that are searched
// instead of parsed.
type rawSetup struct {
	batch   int  // messages that are leased together; 0 is a transaction for each
	workers int  // goroutines, each with its own connection
	sends   bool // a message is sent for each, in the transaction of its end
	writes  bool // a row is written for each, in its transaction
}

func (setup rawSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

type rawStore struct {
	setup rawSetup
	*Database
	pool           *pgxpool.Pool
	before, after  string // the text of headers around the sequence
	body           []byte
	handlerHeaders string // headers of the messages that handlers send
	handled        atomic.Int64

	wg   sync.WaitGroup
	errs []error
	end  context.CancelFunc
}

func (setup rawSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	s := &rawStore{setup: setup, body: make([]byte, workload.BodySize)}
	if s.Database, err = server.NewDatabase(ctx); err != nil {
		return nil, err
	}
	if s.pool, err = s.Database.Connect(ctx, max(setup.workers, rawSenders)); err != nil {
		return nil, errors.Join(err, s.Database.Drop(ctx))
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// rawSenders is the number of goroutines that may send at a time.
const rawSenders = 16

// prepare makes the tables like Reprise, and the texts that Reprise would write.
func (s *rawStore) prepare(ctx context.Context) error {
	t, err := sqlserver.Open(s.Database.url)
	if err != nil {
		return err
	}
	text := string(transport.AppendHeadersJSON(nil, reprise.Message(workload.Placeholder, nil).Headers))
	s.before, s.after, _ = strings.Cut(text, workload.Placeholder)
	err = t.Provision(ctx, core.Topology{InputQueue: workload.Queue, Queues: []string{workload.Queue, reprise.ErrorQueue, workload.HandlerQueue}})
	if err == nil && s.setup.writes {
		err = s.Database.createRows(ctx)
	}
	if err == nil && s.setup.sends {
		s.handlerHeaders, err = s.whatHandlersSend(ctx, t)
	}
	return errors.Join(err, t.Close(ctx))
}

// whatHandlersSend lets an endpoint send a message as handlers do, and returns its
// headers.
func (s *rawStore) whatHandlersSend(ctx context.Context, t core.Transport) (headers string, err error) {
	ep, err := reprise.Setup{Sends: true}.NewEndpoint(t, func(string) error { return nil })
	if err != nil {
		return "", err
	}
	if err := ep.Invoke(ctx, placed.Of(s.body)); err != nil {
		return "", err
	}
	err = s.pool.QueryRow(ctx, "delete from shipping returning headers").Scan(&headers)
	return headers, err
}

func (s *rawStore) headers(sequence string) string { return s.before + sequence + s.after }

// sequence finds the sequence in the text of headers, where it is last.
func (s *rawStore) sequence(headers string) string {
	return headers[len(headers)-len(s.after)-workload.SequenceDigits : len(headers)-len(s.after)]
}

func (s *rawStore) Send(ctx context.Context, sequences []string) error {
	if len(sequences) == 1 {
		_, err := s.pool.Exec(ctx, `insert into orders (id, headers, body) values (gen_random_uuid(), $1, $2)`, s.headers(sequences[0]), s.body)
		return err
	}
	headers, bodies := make([]string, len(sequences)), make([][]byte, len(sequences))
	for i, sequence := range sequences {
		headers[i], bodies[i] = s.headers(sequence), s.body
	}
	_, err := s.pool.Exec(ctx, `insert into orders (id, headers, body) select gen_random_uuid(), h, b from unnest($1::text[], $2::bytea[]) as m(h, b)`, headers, bodies)
	return err
}

func (s *rawStore) Start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.errs = make([]error, s.setup.workers)
	for i := range s.setup.workers {
		s.wg.Go(func() {
			loop := s.lease
			if s.setup.batch == 0 {
				loop = s.transact
			}
			conn, err := s.pool.Acquire(context.WithoutCancel(ctx)) // the loop ends the wait
			if err != nil {
				s.errs[i] = err
				return
			}
			defer conn.Release()
			s.errs[i] = loop(ctx, conn.Conn(), handle)
		})
	}
	return nil
}

const (
	rawClaim = `update orders set leased_until = clock_timestamp() + interval '30 seconds', claims = claims + 1, deliveries = deliveries + 1
where ctid = any(array(
	select ctid from orders where due <= now() and (leased_until is null or leased_until <= now())
	order by due, seq limit $1 for update skip locked))
returning seq, headers, body, deliveries, claims`
	rawComplete = `delete from orders where seq = any($1)`
	// A message is sent together with the removal, and only if the lease is valid.
	rawForward = `with removed as (delete from orders as m using unnest($1::bigint[], $2::int[]) as s(seq, claims)
	where m.seq = s.seq and m.claims = s.claims and m.leased_until > now() returning m.seq),
sent as (insert into shipping (id, headers, body) select gen_random_uuid(), h, b from unnest($1::bigint[], $3::text[], $4::bytea[]) as m(of, h, b)
	where of in (select seq from removed))
select count(*) from removed`
)

// lease is the loop that leases a batch, handles it, and removes it.
func (s *rawStore) lease(ctx context.Context, conn *pgx.Conn, handle func(string) error) error {
	var done []int64
	var leases []int32
	var texts []string
	var bodies [][]byte
	for ctx.Err() == nil {
		under := context.WithoutCancel(ctx)
		rows, err := conn.Query(under, rawClaim, s.setup.batch)
		if err != nil {
			return err
		}
		done, leases, texts, bodies = done[:0], leases[:0], texts[:0], bodies[:0]
		for rows.Next() {
			var seq int64
			var headers string
			var body []byte
			var deliveries, claims int
			if err := rows.Scan(&seq, &headers, &body, &deliveries, &claims); err != nil {
				rows.Close()
				return err
			}
			if err := handle(s.sequence(headers)); err != nil {
				rows.Close()
				return err
			}
			done = append(done, seq)
			if s.setup.sends {
				leases, texts, bodies = append(leases, int32(claims)), append(texts, s.handlerHeaders), append(bodies, s.body)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if len(done) == 0 {
			measure.WaitPollInterval(ctx)
			continue
		}
		if s.setup.sends {
			var removed int
			if err := conn.QueryRow(under, rawForward, done, leases, texts, bodies).Scan(&removed); err != nil {
				return err
			}
			s.handled.Add(int64(removed))
			continue
		}
		if _, err := conn.Exec(under, rawComplete, done); err != nil {
			return err
		}
	}
	return nil
}

const (
	rawTake = `delete from orders where ctid = any(array(
	select ctid from orders where due <= now() and (leased_until is null or leased_until <= now())
	order by due, seq limit 1 for update skip locked))
returning headers, body, deliveries`
	rawSend = `insert into shipping (id, headers, body) values (gen_random_uuid(), $1, $2)`
)

// transact is the loop with a transaction for each message, of two round trips.
func (s *rawStore) transact(ctx context.Context, conn *pgx.Conn, handle func(string) error) error {
	for ctx.Err() == nil {
		under := context.WithoutCancel(ctx)
		var headers string
		var body []byte
		var deliveries int
		take := &pgx.Batch{}
		take.Queue("begin")
		take.Queue(rawTake)
		take.Queue("savepoint handler")
		results := conn.SendBatch(under, take)
		_, err := results.Exec()
		if err == nil {
			err = results.QueryRow().Scan(&headers, &body, &deliveries)
		}
		none := errors.Is(err, pgx.ErrNoRows)
		if err := results.Close(); err != nil {
			return err
		}
		switch {
		case none:
			if _, err := conn.Exec(under, "rollback"); err != nil {
				return err
			}
			measure.WaitPollInterval(ctx)
			continue
		case err != nil:
			return err
		}
		if err := handle(s.sequence(headers)); err != nil {
			return err
		}
		s.handled.Add(1)
		if s.setup.writes {
			if _, err := conn.Exec(under, rawWrite, s.sequence(headers)); err != nil {
				return err
			}
		}
		commit := &pgx.Batch{}
		if s.setup.sends {
			commit.Queue(rawSend, s.handlerHeaders, s.body)
		}
		commit.Queue("commit")
		if err := conn.SendBatch(under, commit).Close(); err != nil {
			return err
		}
	}
	return nil
}

func (s *rawStore) Stop(ctx context.Context) error {
	s.end()
	s.wg.Wait()
	err := errors.Join(s.errs...)
	if s.setup.sends {
		err = errors.Join(err, s.Database.sent(ctx, int(s.handled.Load())))
	}
	return err
}

func (s *rawStore) Close(ctx context.Context) error {
	if s.end != nil {
		s.end()
		s.wg.Wait()
	}
	s.pool.Close()
	return s.Database.Drop(ctx)
}
