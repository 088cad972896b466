package main

import (
	"context"
	"errors"
	"time"
)

// servers are the servers that scenarios share. Each is started when a scenario first
// needs it.
type servers struct {
	postgresURL string // an existing server; "": start one
	rabbitURL   string // likewise
	forgetful   bool   // started servers need not survive a crash of the machine

	database *postgresServer
	broker   *rabbitServer
	queues   map[time.Duration]*sqsServer // by the delay of their answers
	buses    map[time.Duration]*asbServer // likewise
}

// postgres returns the PostgreSQL server.
func (s *servers) postgres(ctx context.Context) (*postgresServer, error) {
	if s.database != nil {
		return s.database, nil
	}
	var err error
	s.database, err = newPostgresServer(ctx, s.postgresURL, !s.forgetful)
	return s.database, err
}

// rabbit returns the RabbitMQ broker.
func (s *servers) rabbit() (*rabbitServer, error) {
	if s.broker != nil {
		return s.broker, nil
	}
	var err error
	s.broker, err = newRabbitServer(s.rabbitURL, !s.forgetful)
	return s.broker, err
}

// sqs returns the server of SQS that delays its answers by away.
func (s *servers) sqs(away time.Duration) (*sqsServer, error) {
	if server := s.queues[away]; server != nil {
		return server, nil
	}
	server, err := newSQSServer(away)
	if err != nil {
		return nil, err
	}
	if s.queues == nil {
		s.queues = make(map[time.Duration]*sqsServer)
	}
	s.queues[away] = server
	return server, nil
}

// asb returns the server of Service Bus that delays its answers by away.
func (s *servers) asb(ctx context.Context, away time.Duration) (*asbServer, error) {
	if server := s.buses[away]; server != nil {
		return server, nil
	}
	server, err := newASBServer(ctx, away)
	if err != nil {
		return nil, err
	}
	if s.buses == nil {
		s.buses = make(map[time.Duration]*asbServer)
	}
	s.buses[away] = server
	return server, nil
}

// describe describes the used servers, one per line.
func (s *servers) describe() (lines []string) {
	if s.database != nil {
		lines = append(lines, s.database.description)
	}
	if s.broker != nil {
		lines = append(lines, s.broker.description)
	}
	if s.queues != nil {
		lines = append(lines, sqsDescription)
	}
	if s.buses != nil {
		lines = append(lines, asbDescription)
	}
	return lines
}

func (s *servers) close() error {
	var errs []error
	if s.database != nil {
		errs = append(errs, s.database.close())
	}
	if s.broker != nil {
		errs = append(errs, s.broker.close())
	}
	for _, server := range s.queues {
		errs = append(errs, server.close())
	}
	for _, server := range s.buses {
		errs = append(errs, server.close())
	}
	return errors.Join(errs...)
}
