package main

import (
	"errors"
	"slices"
)

// systems are the systems under test.
type systems struct {
	postgres postgresSystem
	rabbitmq rabbitSystem
	sqs      sqsSystem
	asb      asbSystem
}

// scenarios returns all scenarios in the order in which they run and are printed.
func (s *systems) scenarios() []scenario {
	return slices.Concat(inMemoryScenarios(), s.postgres.scenarios(), inboxScenarios(&s.postgres), s.rabbitmq.scenarios(), s.sqs.scenarios(), s.asb.scenarios())
}

// describe describes the servers that scenarios have used, one per line.
func (s *systems) describe() []string {
	lines := []string{s.postgres.description(), s.rabbitmq.description(), s.sqs.description(), s.asb.description()}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// close stops the servers.
func (s *systems) close() error {
	return errors.Join(s.postgres.close(), s.rabbitmq.close(), s.sqs.close(), s.asb.close())
}
