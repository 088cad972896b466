//go:build darwin || linux

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// node is the name of every server's node. The nodes do not meet, because each is registered
// with its own epmd.
const node = "reprise@localhost"

// mark precedes the name of a server's directory on the command lines of its processes, for
// killLeftovers.
const mark = "-reprise"

// startNames runs epmd, which the server would otherwise start and never stop.
func (s *Server) startNames() (*process.Process, error) {
	var log process.Tail
	cmd := s.installed.program(context.Background(), s.installed.epmd, "-port", strconv.Itoa(s.ports.names.Number()), "-address", "127.0.0.1")
	if s.installed.root == "" {
		cmd.Args[0] = "epmd " + mark + " " + filepath.Base(s.dir.Path()) // it refuses options that it does not know
	}
	p, err := process.Start(cmd, &log, syscall.SIGKILL)
	if errors.Is(err, os.ErrPermission) && s.installed.root != "" {
		err = fmt.Errorf("%w: who starts it in %s needs the right to mount, which in a container is CAP_SYS_ADMIN", err, s.installed.root)
	}
	if err != nil {
		return nil, fmt.Errorf("epmd: %w", err)
	}
	err = await(p, func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.ports.names.Addr())
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("epmd: %w", err), p.Kill(), fmt.Errorf("its output ends with:\n%s", &log))
	}
	return p, nil
}

// run runs the server and waits until it accepts connections, which is after its recovery.
func (s *Server) run() (*process.Process, error) {
	cmd := s.installed.program(context.Background(), s.program("rabbitmq-server"))
	cmd.Env = append(cmd.Env, s.environment()...)
	s.frozen.Store(false) // the new process is not frozen
	p, err := process.Start(cmd, s.log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	if err := await(p, s.ready); err != nil {
		return nil, errors.Join(err, p.Kill(), fmt.Errorf("its log ends with:\n%s", s.log))
	}
	return p, nil
}

// program returns the path of one of the server's commands.
func (s *Server) program(name string) string {
	return s.installed.inside(s.files.path(linked + "/sbin/" + name))
}

// ready returns an error until the server answers on all its ports.
func (s *Server) ready(ctx context.Context) error {
	if err := greet(ctx, &net.Dialer{}, s.Addr()); err != nil {
		return err
	}
	if s.ca != nil {
		dialer, err := s.tlsDialer()
		if err != nil {
			return err
		}
		if err := greet(ctx, dialer, s.ports.tls.Addr()); err != nil {
			return err
		}
	}
	if _, err := s.eval(ctx, "ok."); err != nil {
		return err
	}
	_, err := s.Manage(ctx, "GET", "/api/health/checks/virtual-hosts", "")
	return err
}

// await calls ready until it returns no error, as long as the process lives.
func await(p *process.Process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("it ended instead of accepting connections: %w", p.Wait())
		case <-ctx.Done():
			return fmt.Errorf("it is not ready after %v: %w", process.Patience, err)
		case <-ticks.C:
		}
	}
}

// Ctl runs rabbitmqctl and returns its output without progress messages. It takes half a
// second of processor time; Eval and Manage take none.
func (s *Server) Ctl(ctx context.Context, args ...string) (string, error) {
	cmd := s.installed.program(ctx, s.program("rabbitmqctl"), append([]string{"--quiet"}, args...)...)
	cmd.Env = append(cmd.Env, s.environment()...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		// The arguments after the first may be secret.
		return "", fmt.Errorf("rabbitmq: rabbitmqctl %s: %w: %s", strings.Join(args[:min(1, len(args))], ""), err,
			strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// killLeftovers kills processes that still run on the directory of a dead test process. On
// Linux there are none: the server died with the test process.
func killLeftovers(path string) {
	all, err := exec.Command("ps", "-A", "-o", "pid=,command=").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(all)) {
		line = strings.TrimSpace(line)
		number, command, _ := strings.Cut(line, " ")
		if !strings.Contains(command+" ", " "+mark+" "+filepath.Base(path)+" ") {
			continue
		}
		if pid, err := strconv.Atoi(number); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // another process may have been quicker
		}
	}
}
