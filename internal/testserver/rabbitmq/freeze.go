//go:build darwin || linux

package rabbitmq

import "fmt"

// Freeze stops every process of the server: its connections stay open, and it does not
// answer, as on a machine that hangs. Thaw continues them. If the server does not run, Freeze
// does nothing.
func (s *Server) Freeze() error {
	s.frozen.Store(true)
	if err := s.life.Freeze(); err != nil {
		return fmt.Errorf("rabbitmq: freeze: %w", err)
	}
	return nil
}

// Thaw continues a server that Freeze has stopped.
func (s *Server) Thaw() error {
	if err := s.life.Thaw(); err != nil {
		return fmt.Errorf("rabbitmq: thaw: %w", err)
	}
	s.frozen.Store(false)
	return nil
}
