//go:build darwin || linux

// Package rabbitmq starts throwaway RabbitMQ servers for tests. They are real servers of one
// node, on their own ports of 127.0.0.1, and a test may kill and restart them at will.
//
// The release to start, RabbitMQ 3.10 or later or 4.x, must be installed; on Debian,
// scripts/servers installs it. A server ends with the process that started it, even if that
// is killed (on macOS, with the next Start).
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/process"
	"github.com/reprise-go/reprise/internal/testserver/tempdir"
)

// PasswordURL connects as User with Password. The user is not an administrator, has the tag
// "monitoring", and has every right in "/" and in the vhosts that NewVHost makes. The
// password has characters that a URL escapes.
const (
	User     = "reprise"
	Password = "s3cret/pass?word@10%"
)

// Release is a major version of RabbitMQ.
type Release int

// The releases that differ for an adapter.
const (
	V3 Release = iota // 3.10 or later
	V4
)

func (r Release) String() string {
	switch r {
	case V3:
		return "RabbitMQ 3"
	case V4:
		return "RabbitMQ 4"
	default:
		return fmt.Sprintf("Release(%d)", int(r))
	}
}

// Config configures a server. The zero value is usable.
type Config struct {
	// Release is the version to start. The default is V3. Its programs are in the directory
	// in the environment variable REPRISE_TEST_RABBITMQ_BIN, for V4
	// REPRISE_TEST_RABBITMQ4_BIN, or else where Debian installs them, or else, for V4, in the
	// Debian 13 of scripts/servers.
	Release Release

	// Plugins are enabled in addition to rabbitmq_management. Each makes the start longer.
	Plugins []string

	// Settings are written to rabbitmq.conf, such as "vm_memory_high_watermark.absolute":
	// "200MB". The defaults are RabbitMQ's, except that rates and sums are not gathered for
	// the management interface, that the log begins with warnings, and that any user may
	// connect from anywhere. The addresses that the server listens on, and its certificate,
	// cannot be set.
	Settings map[string]string

	// OnDisk keeps the server's data in the directory for temporary files. The default is a
	// file system in memory, if there is one with room and TMPDIR is not set: writes of a
	// killed process survive there too.
	OnDisk bool

	// AllProcessors lets the server run on every processor, for measurements and load. The
	// default is one scheduler of Erlang: several servers of tests run at the same time, and
	// schedulers that wake one another are a tenth of the work of a small server.
	AllProcessors bool

	// TLS has the server also listen on a port with TLS, see TLSURL and CA.
	TLS bool
}

// Server is a RabbitMQ server that Start has started. Its methods may be called concurrently.
type Server struct {
	installed installation
	dir       *tempdir.Dir
	ports     ports
	files     files
	ca        []byte // PEM, nil without TLS
	log       *process.Tail
	version   string // as the server reports it

	allProcessors bool // Config.AllProcessors

	vhosts atomic.Int64 // the number of vhosts that NewVHost has named

	names  *process.Process // epmd, through which other nodes and rabbitmqctl find the server
	life   process.Life
	frozen atomic.Bool // since Freeze
}

// Start starts a server and returns when it accepts connections, after some seconds. It first
// removes leftovers of killed test processes. The caller must call Stop.
func Start(cfg Config) (*Server, error) {
	s, err := start(cfg)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: start %v: %w", cfg.Release, err)
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

func start(cfg Config) (*Server, error) {
	installed, err := find(cfg.Release)
	if err != nil {
		return nil, err
	}
	conf, err := configuration(cfg.Settings)
	if err != nil {
		return nil, err
	}
	plugins, err := enabledPlugins(cfg.Plugins)
	if err != nil {
		return nil, err
	}
	for _, parent := range tempdir.Parents(installed.tempDir()) {
		tempdir.RemoveLeftovers(parent, prefix, killLeftovers)
	}
	dir, err := tempdir.New(tempdir.Parent(installed.tempDir(), cfg.OnDisk), prefix)
	if err != nil {
		return nil, err
	}
	ports, err := reservePorts()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	s := &Server{installed: installed, dir: dir, ports: ports, files: files(dir.Path()), allProcessors: cfg.AllProcessors, log: &process.Tail{}}
	if err := s.initialize(conf, plugins, cfg); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// initialize writes the server's files, starts it and creates the user.
func (s *Server) initialize(conf settings, plugins string, cfg Config) error {
	if err := s.files.make(); err != nil {
		return err
	}
	if err := s.linkPrograms(cfg.Plugins); err != nil {
		return err
	}
	if cfg.TLS {
		certificate, err := newCertificate()
		if err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		s.ca = certificate.ca
		if err := s.files.writeCertificate(certificate); err != nil {
			return err
		}
	}
	if err := s.files.writeConfiguration(s.configure(conf), plugins); err != nil {
		return err
	}
	names, err := s.startNames()
	if err != nil {
		return err
	}
	s.names = names
	if err := s.life.Begin(s.run); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	if s.version, err = s.readVersion(ctx); err != nil {
		return err
	}
	if err := s.installed.check(s.version); err != nil {
		return err
	}
	if err := s.createUser(ctx); err != nil {
		return err
	}
	return s.grant(ctx, "/", User)
}

// Version returns the version that the server reports, such as "3.10.8".
func (s *Server) Version() string { return s.version }

// URL returns the URL that connects to a vhost as the administrator guest, with the password
// guest. The vhost "/" always exists.
func (s *Server) URL(vhost string) string {
	return amqpURL("amqp", url.UserPassword(guest, guest), s.Addr(), vhost)
}

// PasswordURL returns the URL that connects to a vhost as User with Password.
func (s *Server) PasswordURL(vhost string) string {
	return amqpURL("amqp", url.UserPassword(User, Password), s.Addr(), vhost)
}

// TLSURL returns the URL that connects to a vhost as User with Password on the port with TLS.
// The server's certificate is for 127.0.0.1 and localhost, and signed by CA. TLSURL panics
// without Config.TLS.
func (s *Server) TLSURL(vhost string) string {
	if s.ca == nil {
		panic("rabbitmq: TLSURL of a server without Config.TLS")
	}
	return amqpURL("amqps", url.UserPassword(User, Password), s.ports.tls.Addr(), vhost)
}

// CA returns the certificate of the authority that signed the server's certificate, in PEM,
// or nil without Config.TLS.
func (s *Server) CA() []byte { return s.ca }

// amqpURL writes "/" as %2F, which every client reads the same way.
func amqpURL(scheme string, user *url.Userinfo, addr, vhost string) string {
	u := url.URL{Scheme: scheme, User: user, Host: addr, Path: "/" + vhost, RawPath: "/" + url.PathEscape(vhost)}
	return u.String()
}

// ManagementURL returns the URL of the management API, without a path, as User
// with Password.
func (s *Server) ManagementURL() string {
	u := url.URL{Scheme: "http", User: url.UserPassword(User, Password), Host: s.ports.management.Addr()}
	return u.String()
}

// Addr returns the address of the server for AMQP without TLS, such as "127.0.0.1:40000". It
// stays the same over restarts, and so do the server's other addresses.
func (s *Server) Addr() string { return s.ports.amqp.Addr() }

// Via returns a URL of URL, PasswordURL, TLSURL or ManagementURL with the address replaced by
// addr, that of a proxy in front of the server. It panics if rawURL is not a URL.
func Via(rawURL, addr string) string {
	u, err := url.Parse(rawURL)
	if err == nil {
		_, _, err = net.SplitHostPort(addr)
	}
	if err != nil {
		panic("rabbitmq: Via: " + err.Error())
	}
	u.Host = addr
	return u.String()
}

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.log.String() }

// Kill kills every process of the server at once with SIGKILL, and returns when all have
// ended. To clients it is a crash; durable and confirmed messages are kept for Restart. So
// are queues, users and other objects that exist when Kill is called: RabbitMQ writes them
// with a delay, so Kill has them written first, which takes some milliseconds. If the server
// does not run, Kill does nothing.
func (s *Server) Kill() error {
	return s.end("kill", func(p *process.Process) error {
		return errors.Join(s.sync(p), p.Kill())
	})
}

// Shutdown ends the server in order: it closes the connections of its clients and writes its
// data. The data is kept for Restart. If the server does not run, Shutdown does nothing.
func (s *Server) Shutdown() error {
	return s.end("shut down", func(p *process.Process) error { return p.Stop(syscall.SIGTERM) })
}

func (s *Server) end(operation string, how func(*process.Process) error) error {
	if err := s.life.End(how); err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", operation, err)
	}
	return nil
}

// Restart starts the server again after Kill or Shutdown, with its data and at its addresses,
// and returns when it accepts connections. If the server runs, Restart shuts it down first.
func (s *Server) Restart() error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	if err := s.life.Begin(s.run); err != nil {
		return fmt.Errorf("rabbitmq: restart: %w", err)
	}
	return nil
}

// Stop ends the server for good and removes its data. A second call does nothing.
func (s *Server) Stop() error {
	err := s.life.Stop((*process.Process).Kill, func() error { // not in order: the data is not needed any more
		var err error
		if s.names != nil {
			err = s.names.Kill()
		}
		return errors.Join(err, s.dir.Remove(), s.ports.release())
	})
	if err != nil {
		return fmt.Errorf("rabbitmq: stop: %w", err)
	}
	return nil
}
