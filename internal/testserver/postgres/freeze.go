//go:build darwin || linux

package postgres

import (
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// Freeze stops every process of the server: its connections stay open, and nothing
// answers, as on a machine that hangs. Thaw continues them. A server that does not run
// stays as it is.
func (s *Server) Freeze() error { return s.whileRunning("freeze", (*process.Process).Freeze) }

// Thaw continues a server that Freeze has stopped.
func (s *Server) Thaw() error { return s.whileRunning("thaw", (*process.Process).Thaw) }

func (s *Server) whileRunning(operation string, do func(*process.Process) error) error {
	p := s.life.Running()
	if p == nil {
		return nil
	}
	if err := do(p); err != nil {
		return fmt.Errorf("postgres: %s: %w", operation, err)
	}
	return nil
}
