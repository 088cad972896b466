//go:build darwin || linux

package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// death is the signal that a server gets when this process dies. It causes an immediate
// shutdown.
const death = syscall.SIGQUIT

// run runs the server and waits until it accepts connections, which is after its recovery.
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

// awaitReady waits until postmaster.pid, which the server writes, says that it is ready. A
// query would work as well, but each try starts two processes, which takes more processor
// time than the recovery.
func (s *Server) awaitReady(p *process.Process) error {
	patience := time.NewTimer(process.Patience)
	defer patience.Stop()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		ready, err := s.isReady(p.ID())
		if ready {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("the server ended instead of accepting connections: %w", p.Wait())
		case <-patience.C:
			return errors.Join(fmt.Errorf("the server accepts no connections after %v", process.Patience), err)
		case <-ticks.C:
		}
	}
}

// Lines of postmaster.pid, counted from 0.
const (
	pidLine    = 0 // the pid of the server's first process
	statusLine = 7
)

// isReady reports whether the server with this pid accepts connections. The file may still
// belong to a killed server, be partly written, or not exist yet.
func (s *Server) isReady(pid int) (bool, error) {
	content, err := os.ReadFile(filepath.Join(s.dir.data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lines := strings.Split(string(content), "\n")
	return len(lines) > statusLine && lines[pidLine] == strconv.Itoa(pid) && strings.TrimSpace(lines[statusLine]) == "ready", err
}
