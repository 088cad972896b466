//go:build darwin || linux

package postgres

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// death is what a server gets when this process dies. It ends at once then: an
// immediate shutdown.
const death = syscall.SIGQUIT

// run runs the server and waits until it answers queries, which it does not before
// it has recovered.
func (s *Server) run() (*process.Process, error) {
	p, err := process.Start(s.bin.postgres(s.dir, s.port.Number()), s.log, death)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(p); err != nil {
		return nil, errors.Join(err, p.Kill(), fmt.Errorf("its log ends with:\n%s", s.log))
	}
	return p, nil
}

func (s *Server) awaitReady(p *process.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		_, err := s.psql(ctx, "postgres", "select 1")
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("the server ended instead of answering a query: %w", p.Wait())
		case <-ctx.Done():
			return fmt.Errorf("the server answers no query after %v: %w", process.Patience, err)
		case <-ticks.C:
		}
	}
}
