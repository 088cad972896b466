//go:build darwin || linux

// Package postgres starts throwaway PostgreSQL servers for tests. They are real servers, each
// on its own port of 127.0.0.1, and a test may kill and restart them at will.
//
// The programs of PostgreSQL 13 or later must be installed; on Debian, scripts/servers
// installs them. A server ends with the process that started it, even if that is killed (on
// macOS, within a minute of the next Start).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/process"
)

// PasswordURL connects as User with Password. The role logs in with SCRAM-SHA-256, is not a
// superuser, and owns the databases that CreateDatabase and NewDatabase make. The password
// has characters that a URL escapes.
const (
	User     = "reprise"
	Password = "s3cret/pass?word@10%"
)

// Config configures a server. The zero value is usable.
type Config struct {
	// Bin is the directory of initdb, postgres and psql. The default is the environment
	// variable REPRISE_TEST_POSTGRES_BIN, or else the newest of /usr/lib/postgresql/*/bin, or
	// else the directory of pg_config.
	Bin string

	// Settings are written to postgresql.conf, such as "max_connections": "20". The defaults
	// are PostgreSQL's, except
	//
	//	fsync = off             a killed process loses nothing that it has written,
	//	full_page_writes = off  not even half of a page; on if fsync is
	//	max_connections = 400
	//
	// If a test kills nothing, "synchronous_commit": "off" saves further time. The address
	// that the server listens on cannot be set.
	Settings map[string]string

	// OnDisk keeps the server's data in the directory for temporary files. The default is a
	// file system in memory, if there is one with room and TMPDIR is not set: writes of a
	// killed process survive there too.
	OnDisk bool
}

// Server is a PostgreSQL server that Start has started. Its methods may be called
// concurrently.
type Server struct {
	bin    programs
	dir    *directory
	onDisk bool
	port   *loopback.Port
	log    *process.Tail

	console      console
	knownVersion atomic.Int64 // 0: not known yet
	databases    atomic.Int64 // the number of databases that NewDatabase has named

	life process.Life
}

// Start starts a server and returns when it answers queries, usually within a second. It
// first removes leftovers of killed test processes. The caller must call Stop.
func Start(cfg Config) (*Server, error) {
	s, err := start(cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: start: %w", err)
	}
	return s, nil
}

// StartFor is Start for a test, and stops the server at its end.
func StartFor(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func start(cfg Config) (_ *Server, err error) {
	bin, err := findPrograms(cfg.Bin, packaged)
	if err != nil {
		return nil, err
	}
	conf, err := configuration(cfg.Settings)
	if err != nil {
		return nil, err
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	removeLeftovers()
	dir, err := newDirectory(account, cfg.OnDisk)
	if err != nil {
		return nil, err
	}
	port, err := loopback.Reserve()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	s := &Server{bin: bin, dir: dir, onDisk: cfg.OnDisk, port: port, log: &process.Tail{}}
	s.console.start = func() *exec.Cmd { return s.psqlCommand(context.Background(), "postgres") }
	if err := s.initialize(conf); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// initialize makes the cluster, starts the server and creates the role.
func (s *Server) initialize(conf string) error {
	if err := s.bin.cluster(s.dir); err != nil {
		return err
	}
	if err := s.dir.configure(conf); err != nil {
		return err
	}
	if err := s.life.Begin(s.run); err != nil {
		return err
	}
	_, err := s.psql(context.Background(), "postgres", "create role "+User+" login password "+literal(verifier(Password)))
	return err
}

// URL returns the URL that connects to a database as the superuser postgres, without a
// password. The database "postgres" always exists.
func (s *Server) URL(database string) string {
	return s.url(url.User("postgres"), database)
}

// PasswordURL returns the URL that connects to a database as User with Password.
func (s *Server) PasswordURL(database string) string {
	return s.url(url.UserPassword(User, Password), database)
}

func (s *Server) url(user *url.Userinfo, database string) string {
	u := url.URL{Scheme: "postgres", User: user, Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Addr returns the address of the server, such as "127.0.0.1:40000". It stays the same over
// restarts.
func (s *Server) Addr() string { return s.port.Addr() }

// Via returns a URL of URL or PasswordURL with the address replaced by addr, that of a proxy
// in front of the server. It panics if rawURL is not a URL.
func Via(rawURL, addr string) string {
	u, err := url.Parse(rawURL)
	if err == nil {
		_, _, err = net.SplitHostPort(addr)
	}
	if err != nil {
		panic("postgres: Via: " + err.Error())
	}
	u.Host = addr
	return u.String()
}

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.log.String() }

// Kill kills every process of the server at once with SIGKILL, and returns when all have
// ended. To clients it is a crash; committed data is kept for Restart. If the server does not
// run, Kill does nothing.
func (s *Server) Kill() error {
	return s.end("kill", (*process.Process).Kill)
}

// Shutdown ends the server in order: it disconnects the clients, rolls back their
// transactions, and writes a checkpoint. The data is kept for Restart. If the server does not
// run, Shutdown does nothing.
func (s *Server) Shutdown() error {
	return s.end("shut down", func(p *process.Process) error { return p.Stop(syscall.SIGINT) })
}

func (s *Server) end(operation string, how func(*process.Process) error) error {
	if err := s.life.End(how); err != nil {
		return fmt.Errorf("postgres: %s: %w", operation, err)
	}
	return nil
}

// Restart starts the server again after Kill or Shutdown, with its data and at its address,
// and returns when it answers queries. If the server runs, Restart shuts it down first.
func (s *Server) Restart() error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	if err := s.life.Begin(s.run); err != nil {
		return fmt.Errorf("postgres: restart: %w", err)
	}
	return nil
}

// Stop ends the server for good and removes its data. A second call does nothing.
func (s *Server) Stop() error {
	s.console.close()
	// The server ends without a checkpoint, because its data is not needed any more.
	err := s.life.Stop(func(p *process.Process) error { return p.Stop(syscall.SIGQUIT) }, func() error {
		return errors.Join(s.releaseSharedMemory(), s.dir.Remove(), s.port.Release())
	})
	if err != nil {
		return fmt.Errorf("postgres: stop: %w", err)
	}
	return nil
}

// releaseSharedMemory removes the shared memory that a killed server has left in the system.
// Only a server on the same data knows which that is.
func (s *Server) releaseSharedMemory() error {
	if !exists(filepath.Join(s.dir.data, "postmaster.pid")) {
		return nil // it ended in order, or never ran
	}
	p, err := s.run()
	if err != nil {
		return err
	}
	return p.Stop(syscall.SIGQUIT)
}
