//go:build darwin || linux

package sbserver

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/loopback"
)

// Start starts a server, which accepts connections when it returns. The caller must call
// Close.
func Start(cfg Config) (*Server, error) {
	if cfg.KeyName == "" {
		cfg.KeyName = "RootManageSharedAccessKey"
	}
	if cfg.AcceptTimeout == 0 {
		cfg.AcceptTimeout = time.Minute
	}
	if cfg.AMQP.ContainerID == "" {
		cfg.AMQP.ContainerID = "sbserver"
	}
	s := &Server{cfg: cfg, addr: cfg.Addr, adminAddr: cfg.AdminAddr}
	for _, addr := range []*string{&s.addr, &s.adminAddr} {
		if *addr != "" {
			continue
		}
		port, err := loopback.Reserve()
		if err != nil {
			s.release()
			return nil, fmt.Errorf("sbserver: start: %w", err)
		}
		s.ports = append(s.ports, port)
		*addr = port.Addr()
	}
	if err := s.open(); err != nil {
		s.release()
		return nil, fmt.Errorf("sbserver: start: %w", err)
	}
	if err := s.listen(); err != nil {
		_ = s.broker.Close() // its journal has nothing yet
		s.release()
		return nil, fmt.Errorf("sbserver: start: %w", err)
	}
	return s, nil
}

func (s *Server) open() error {
	b, err := broker.New(s.cfg.Broker)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.broker = b
	s.mu.Unlock()
	return nil
}

func (s *Server) release() {
	for _, p := range s.ports {
		_ = p.Release() // it belongs to this process, which then has one port less
	}
}

func (s *Server) listen() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	run := &listening{listener: l, closing: make(chan struct{}), clients: map[*client]struct{}{}}
	if err := s.administer(run); err != nil {
		return errors.Join(err, l.Close())
	}
	s.mu.Lock()
	s.running = run
	s.addr = l.Addr().String() // of an Addr with the port 0
	s.mu.Unlock()
	run.tasks.Go(func() { s.accept(run) })
	return nil
}

// accept serves connections until the listener is closed.
func (s *Server) accept(run *listening) {
	for {
		nc, err := run.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // perhaps there are no free file descriptors
			continue
		}
		if s.faults.take(OpConnect, "") != nil {
			s.counts.add(OpConnect, "")
			_ = nc.Close() // that is the fault
			continue
		}
		s.serve(run, nc)
	}
}

// ServeConn serves a connection that did not come through the listener, such as one end
// of a net.Pipe. It returns at once. If the server is not running, it closes the
// connection.
func (s *Server) ServeConn(nc net.Conn) {
	s.mu.Lock()
	run := s.running
	s.mu.Unlock()
	if run == nil {
		_ = nc.Close() // the server reads nothing more
		return
	}
	s.serve(run, nc)
}

func (s *Server) serve(run *listening, nc net.Conn) {
	if s.cfg.Latency > 0 {
		nc = delayed(nc, s.cfg.Latency)
	}
	c := newClient(s, run, nc)
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.ended {
		_ = nc.Close() // the server reads nothing more
		return
	}
	s.counts.add(OpConnect, "")
	run.clients[c] = struct{}{}
	run.tasks.Go(func() {
		_ = c.conn.Serve() // the client gets the reason
		c.close()
		run.mu.Lock()
		delete(run.clients, c)
		run.mu.Unlock()
	})
}

// Close closes all connections in an orderly way, and ends the server permanently. When
// it returns, none of the server's goroutines is running.
func (s *Server) Close() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stop(func(c *client) {
		c.conn.Close(amqp10.Errorf(amqp10.ErrConnectionForced, "the server is shutting down"))
	})
	s.faults.clear()
	s.release()
	return s.Broker().Close()
}

// Kill ends the server in the same way as the death of its process: all connections are
// cut, and waiting replies are lost. With a journal the entities in memory are discarded;
// without one they are kept until Restart. It does nothing if the server is not running.
func (s *Server) Kill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.stop(func(c *client) { c.conn.Cut() }) || s.cfg.Broker.Dir == "" {
		return nil
	}
	return s.Broker().Close()
}

// Restart starts the server after Kill, on the same address and with the same entities.
func (s *Server) Restart() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	running := s.running != nil
	s.mu.Unlock()
	if running {
		return errors.New("sbserver: restart: the server runs; to fix: call Kill before")
	}
	if s.cfg.Broker.Dir != "" {
		if err := s.open(); err != nil {
			return fmt.Errorf("sbserver: restart: %w", err)
		}
	}
	if err := s.listen(); err != nil {
		return fmt.Errorf("sbserver: restart: %w", err)
	}
	return nil
}

// stop ends the run and its connections, and reports whether there was one.
func (s *Server) stop(end func(*client)) bool {
	s.mu.Lock()
	run := s.running
	s.running = nil
	s.mu.Unlock()
	if run == nil {
		return false
	}
	_ = run.listener.Close() // in any case it accepts no further connections
	close(run.closing)
	_ = run.administration.server.Close() // the same
	run.mu.Lock()
	run.ended = true
	clients := run.clientsLocked()
	run.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range clients {
		ending.Go(func() { end(c) })
	}
	ending.Wait()
	run.tasks.Wait()
	return true
}
