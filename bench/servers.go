package main

import (
	"context"
	"errors"
)

// servers are what scenarios share. Each is started when the first one needs it.
type servers struct {
	postgresURL string // a server that is there already; "": start one
	forgetful   bool   // one that is started need not survive the machine

	started *postgresServer
}

// postgres returns the PostgreSQL server.
func (s *servers) postgres(ctx context.Context) (*postgresServer, error) {
	if s.started != nil {
		return s.started, nil
	}
	var err error
	s.started, err = newPostgresServer(ctx, s.postgresURL, !s.forgetful)
	return s.started, err
}

// describe says which servers were used, a line each.
func (s *servers) describe() []string {
	if s.started == nil {
		return nil
	}
	return []string{s.started.description}
}

func (s *servers) close() error {
	var errs []error
	if s.started != nil {
		errs = append(errs, s.started.close())
	}
	return errors.Join(errs...)
}
