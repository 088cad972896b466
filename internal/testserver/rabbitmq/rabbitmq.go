//go:build darwin || linux

// Package rabbitmq starts throwaway RabbitMQ servers for tests: real ones, of one
// node, on ports of 127.0.0.1 of their own, that a test may kill and start again as
// it likes.
//
// RabbitMQ 3.10 or later and 4.x must be installed, whichever is to be started;
// scripts/servers does that on Debian. A server ends with the process that started
// it, also when that is killed (on macOS, with the next Start).
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

// What PasswordURL connects as: a user that is no administrator, has the tag
// "monitoring" and every right in "/" and in what NewVHost makes. The password has
// characters that a URL escapes.
const (
	User     = "reprise"
	Password = "s3cret/pass?word@10%"
)

// Release is a major version of RabbitMQ.
type Release int

// The releases that differ in what an adapter sees.
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

// Config says what a server is like. The zero value will do.
type Config struct {
	// Release is the version that is started. The default is V3. Its programs are
	// in the directory that the environment variable REPRISE_TEST_RABBITMQ_BIN
	// names, REPRISE_TEST_RABBITMQ4_BIN for V4, or else where Debian installs them,
	// or else, for V4, in the Debian 13 that scripts/servers has made.
	Release Release

	// Plugins are enabled beside rabbitmq_management. Each makes the start longer.
	Plugins []string

	// Settings are written to rabbitmq.conf, such as
	// "vm_memory_high_watermark.absolute": "200MB". What is there without them is
	// RabbitMQ's own default. Where the server listens, and its certificate, cannot
	// be set.
	Settings map[string]string

	// OnDisk keeps the server's data in the directory for temporary files. The default is a
	// file system in memory if there is one with room and TMPDIR is not set: what a killed
	// process has written is kept there too.
	OnDisk bool

	// AllProcessors lets the server run on every processor, for measurements and load. The
	// default is one scheduler of Erlang: several servers of tests run side by side, and
	// schedulers that wake one another are a tenth of the work of a small server.
	AllProcessors bool

	// TLS has the server listen on a port with TLS as well, see TLSURL and CA.
	TLS bool
}

// Server is a RabbitMQ server that Start has started. Its methods may be called
// concurrently.
type Server struct {
	installed installation
	dir       *tempdir.Dir
	ports     ports
	files     files
	ca        []byte // PEM, nil without TLS
	log       *process.Tail
	version   string // as the server says

	allProcessors bool // Config.AllProcessors

	vhosts atomic.Int64 // that NewVHost has named

	names  *process.Process // epmd, which other nodes and rabbitmqctl find the server by
	life   process.Life
	frozen atomic.Bool // since Freeze
}

// Start starts a server and returns when it accepts connections, after some
// seconds. The caller calls Stop. Leftovers of test processes that were killed are
// removed first.
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

// initialize writes what the server reads, starts it and creates the user.
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

// Version returns the version that the server says it is, such as "3.10.8".
func (s *Server) Version() string { return s.version }

// URL returns the URL that connects to a vhost as the administrator guest, with
// the password guest. The vhost "/" always exists.
func (s *Server) URL(vhost string) string {
	return amqpURL("amqp", url.UserPassword(guest, guest), s.Addr(), vhost)
}

// PasswordURL returns the URL that connects to a vhost as User with Password.
func (s *Server) PasswordURL(vhost string) string {
	return amqpURL("amqp", url.UserPassword(User, Password), s.Addr(), vhost)
}

// TLSURL returns the URL that connects to a vhost as User with Password on the
// port with TLS. The server's certificate is for 127.0.0.1 and localhost, and
// whoever trusts CA trusts it. TLSURL panics without Config.TLS.
func (s *Server) TLSURL(vhost string) string {
	if s.ca == nil {
		panic("rabbitmq: TLSURL of a server without Config.TLS")
	}
	return amqpURL("amqps", url.UserPassword(User, Password), s.ports.tls.Addr(), vhost)
}

// CA returns the certificate of the authority that signed the server's, in PEM,
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

// Addr returns the address of the server for AMQP without TLS, such as
// "127.0.0.1:40000". It stays the same over restarts, and so do the others.
func (s *Server) Addr() string { return s.ports.amqp.Addr() }

// Via returns what URL, PasswordURL, TLSURL or ManagementURL returned, but with the
// address of a proxy in front of the server. It panics if rawURL is no URL.
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

// Log returns the end of what the server has logged.
func (s *Server) Log() string { return s.log.String() }

// Kill kills every process of the server at once with SIGKILL, and returns when
// all have gone. To clients it is a crash; what is durable and was confirmed is
// kept for Restart. So are the queues, users and so on that exist when Kill is
// called: RabbitMQ does not write them at once, and is given the time to, some
// milliseconds. A server that does not run stays as it is.
func (s *Server) Kill() error {
	return s.end("kill", func(p *process.Process) error {
		return errors.Join(s.sync(p), p.Kill())
	})
}

// Shutdown ends the server in order: it closes the connections of its clients and
// writes what it has to. The data is kept for Restart. A server that does not run
// stays as it is.
func (s *Server) Shutdown() error {
	return s.end("shut down", func(p *process.Process) error { return p.Stop(syscall.SIGTERM) })
}

func (s *Server) end(operation string, how func(*process.Process) error) error {
	if err := s.life.End(how); err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", operation, err)
	}
	return nil
}

// Restart starts the server again after Kill or Shutdown, with its data and at
// its addresses, and returns when it accepts connections. One that runs is shut
// down first.
func (s *Server) Restart() error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	if err := s.life.Begin(s.run); err != nil {
		return fmt.Errorf("rabbitmq: restart: %w", err)
	}
	return nil
}

// Stop ends the server for good and removes its data. The second time it does
// nothing.
func (s *Server) Stop() error {
	err := s.life.Stop((*process.Process).Kill, func() error { // not in order: nobody will read the data
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
