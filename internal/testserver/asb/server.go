//go:build darwin || linux

package asb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/process"
)

// command is the package of the server's command.
const command = "github.com/reprise-go/reprise/internal/testserver/asb/sbserver/cmd"

// Options configure a server. The zero value is usable.
type Options struct {
	// Key is the shared access key that clients must have. By default any key is accepted.
	Key string

	// Durable keeps entities and messages across restarts of the process until Stop.
	Durable bool

	// Latency is the delay of everything that the server sends.
	Latency time.Duration
}

// Server is a server in a separate process. Its methods may be called concurrently.
type Server struct {
	options Options
	dir     string // of the program and the journal
	ports   [3]*loopback.Port
	log     process.Tail
	life    process.Life
}

// The ports of a server.
const (
	portAMQP = iota
	portAdmin
	portControl
)

// Start builds the command and starts a server, which accepts connections when Start returns.
// The working directory must be in a module of this repository, or in one that requires it.
// The caller must call Stop.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{options: o}
	defer func() {
		if err != nil {
			err = fmt.Errorf("testserver/asb: start: %w", errors.Join(err, s.Stop()))
		}
	}()
	if s.dir, err = os.MkdirTemp("", "reprise-asb-"); err != nil {
		return nil, err
	}
	for i := range s.ports {
		if s.ports[i], err = loopback.Reserve(); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(s.journal(), 0o755); err != nil {
		return nil, err
	}
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", s.program(), command).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w; to fix: run this in the repository, with go in the PATH\n%s", command, err, text)
	}
	if err := s.life.Begin(s.run); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) program() string { return filepath.Join(s.dir, "sbserver") }

func (s *Server) journal() string { return filepath.Join(s.dir, "journal") }

// Addr returns the address for AMQP.
func (s *Server) Addr() string { return s.ports[portAMQP].Addr() }

// AdminAddr returns the address of the administration API, which is HTTP.
func (s *Server) AdminAddr() string { return s.ports[portAdmin].Addr() }

// ConnectionString returns the connection string for clients that reach the server without
// TLS at addr, for example the address of a proxy.
func (s *Server) ConnectionString(addr string) string {
	key := s.options.Key
	if key == "" {
		key = "any"
	}
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=%s;UseDevelopmentEmulator=true", addr, key)
}

// run starts a process, and returns when it accepts connections.
func (s *Server) run() (*process.Process, error) {
	args := []string{
		"-addr", s.Addr(), "-admin-addr", s.AdminAddr(), "-control-addr", s.ports[portControl].Addr(),
		"-auto-create=false", "-latency", s.options.Latency.String(),
	}
	if s.options.Durable {
		args = append(args, "-dir", s.journal())
	}
	if s.options.Key != "" {
		args = append(args, "-key", s.options.Key)
	}
	p, err := process.Start(exec.Command(s.program(), args...), &s.log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	// The server listens on the control address last.
	for deadline := time.Now().Add(process.Patience); ; {
		conn, err := net.Dial("tcp", s.ports[portControl].Addr())
		if err == nil {
			return p, conn.Close()
		}
		select {
		case <-p.Exited():
			return nil, errors.Join(fmt.Errorf("the server has ended: %s", &s.log), p.Wait())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("the server does not accept connections: %w", err), p.Kill())
		}
	}
}

// Kill kills the process with SIGKILL, if there is one.
func (s *Server) Kill() error { return s.life.End((*process.Process).Kill) }

// Shutdown asks the process to end, if there is one, and waits until it has.
func (s *Server) Shutdown() error { return s.life.End(shutDown) }

func shutDown(p *process.Process) error { return p.Stop(syscall.SIGTERM) }

// Restart shuts the process down and starts another one, which has no faults.
func (s *Server) Restart() error { return errors.Join(s.Shutdown(), s.life.Begin(s.run)) }

// Freeze stops the process with SIGSTOP.
func (s *Server) Freeze() error { return s.life.Freeze() }

// Thaw continues the process after Freeze.
func (s *Server) Thaw() error { return s.life.Thaw() }

// Stop ends the server for good, and removes its journal.
func (s *Server) Stop() error {
	return s.life.Stop(shutDown, func() error {
		var errs []error
		for _, port := range s.ports {
			if port != nil {
				errs = append(errs, port.Release())
			}
		}
		return errors.Join(append(errs, os.RemoveAll(s.dir))...)
	})
}

// Log returns the end of the output of the processes.
func (s *Server) Log() string { return s.log.String() }

// Inject arms a fault.
func (s *Server) Inject(ctx context.Context, f Fault) error {
	return s.call(ctx, http.MethodPost, PathFaults, f, nil)
}

// ClearFaults ends all faults.
func (s *Server) ClearFaults(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, PathFaults, nil, nil)
}

// DetachLinks detaches the links of all queues and topics.
func (s *Server) DetachLinks(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, PathDetachLinks, nil, nil)
}

// CloseConnections closes all connections, as the service does for maintenance.
func (s *Server) CloseConnections(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, PathCloseConnections, nil, nil)
}

// ExpireLocks ends the locks of all messages and sessions.
func (s *Server) ExpireLocks(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, PathExpireLocks, nil, nil)
}

// Counts returns how many operations the process has had, by name.
func (s *Server) Counts(ctx context.Context) (counts map[string]int, err error) {
	err = s.call(ctx, http.MethodGet, PathCounts, nil, &counts)
	return counts, err
}

// call makes a request to the control address. Body and reply are JSON, unless they are nil.
func (s *Server) call(ctx context.Context, method, path string, body, reply any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.ports[portControl].Addr()+path, content)
	if err != nil {
		return err
	}
	r.Close = true // the process may be killed before the next request
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read to its end, or is an error's
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body) // the text of an error
		return fmt.Errorf("testserver/asb: %s %s: %s: %s", method, path, answer.Status, text)
	}
	if reply == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(reply)
}
