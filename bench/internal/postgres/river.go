package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// riverSetup is one way of running River. It logs as Reprise does.
type riverSetup struct {
	workers        int
	cooldown, poll time.Duration // 0 is River's default
}

// riverTuned is the preset of River's own benchmark, and riverDefaults the configuration
// with which its documentation begins.
var (
	riverTuned    = riverSetup{workers: 2000, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}
	riverDefaults = riverSetup{workers: 100}
)

func (setup riverSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

// riverConnections is the limit of the pool of River's client.
const riverConnections = 16

type riverStore struct {
	setup riverSetup
	*Database
	pool   *pgxpool.Pool
	sender *river.Client[pgx.Tx]
	client *river.Client[pgx.Tx]
	body   string
}

// riverMessage has the headers as fields, which River does not have.
type riverMessage struct {
	Tenant   string `json:"tenant"`
	Region   string `json:"region"`
	Schema   string `json:"schema"`
	Sequence string `json:"sequence"`
	Body     string `json:"body"`
}

// Kind implements river.JobArgs.
func (riverMessage) Kind() string { return workload.MessageType }

type riverWorker struct {
	river.WorkerDefaults[riverMessage]
	handle func(string) error
}

// Work implements river.Worker.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverMessage]) error {
	return w.handle(job.Args.Sequence)
}

func (setup riverSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	s := &riverStore{setup: setup, body: strings.Repeat("x", workload.BodySize)}
	if s.Database, err = server.NewDatabase(ctx); err != nil {
		return nil, err
	}
	if s.pool, err = s.Database.Connect(ctx, riverConnections); err != nil {
		return nil, errors.Join(err, s.Database.Drop(ctx))
	}
	driver := riverpgxv5.New(s.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: workload.DiscardingLogger()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		s.sender, err = river.NewClient(driver, &river.Config{Logger: workload.DiscardingLogger()})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *riverStore) message(sequence string) riverMessage {
	return riverMessage{workload.Headers[0].Value, workload.Headers[1].Value, workload.Headers[2].Value, sequence, s.body}
}

func (s *riverStore) Send(ctx context.Context, sequences []string) error {
	if len(sequences) == 1 {
		_, err := s.sender.Insert(ctx, s.message(sequences[0]), nil)
		return err
	}
	jobs := make([]river.InsertManyParams, len(sequences))
	for i, sequence := range sequences {
		jobs[i].Args = s.message(sequence)
	}
	_, err := s.sender.InsertMany(ctx, jobs)
	return err
}

func (s *riverStore) Start(ctx context.Context, handle func(string) error) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	var err error
	s.client, err = river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.setup.workers}},
		Workers:           workers,
		FetchCooldown:     s.setup.cooldown,
		FetchPollInterval: s.setup.poll,
		Logger:            workload.DiscardingLogger(),
	})
	if err != nil {
		return err
	}
	return s.client.Start(ctx)
}

func (s *riverStore) Stop(ctx context.Context) error { return s.client.Stop(ctx) }

// Waiting counts the jobs that are not completed; River keeps completed ones for a day.
func (s *riverStore) Waiting(ctx context.Context) (int, error) {
	return s.Database.Count(ctx, "river_job", "where state <> 'completed'")
}

func (s *riverStore) Close(ctx context.Context) error {
	s.pool.Close()
	return s.Database.Drop(ctx)
}
