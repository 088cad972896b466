package main

import (
	"errors"
	"slices"

	"github.com/reprise-go/reprise/bench/internal/asb"
	"github.com/reprise-go/reprise/bench/internal/inbox"
	"github.com/reprise-go/reprise/bench/internal/inmemory"
	"github.com/reprise-go/reprise/bench/internal/postgres"
	"github.com/reprise-go/reprise/bench/internal/rabbitmq"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/sqs"
)

// systems are the systems under test.
type systems struct {
	postgres postgres.Server
	rabbitmq rabbitmq.Server
	sqs      sqs.Servers
	asb      asb.Servers
}

// scenarios returns all scenarios in the order in which they run and are printed.
func (s *systems) scenarios() []scenario.Scenario {
	return slices.Concat(inmemory.Scenarios(), s.postgres.Scenarios(), inbox.Scenarios(&s.postgres), s.rabbitmq.Scenarios(), s.sqs.Scenarios(), s.asb.Scenarios())
}

// describe describes the servers that scenarios have used, one per line.
func (s *systems) describe() []string {
	lines := []string{s.postgres.Description(), s.rabbitmq.Description(), s.sqs.Description(), s.asb.Description()}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// close stops the servers.
func (s *systems) close() error {
	return errors.Join(s.postgres.Close(), s.rabbitmq.Close(), s.sqs.Close(), s.asb.Close())
}
