//go:build darwin || linux

package sqs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// listening is one run of the server.
type listening struct {
	http     *http.Server
	service  *service
	done     chan struct{} // closed when it accepts no more connections
	handlers sync.WaitGroup
}

// Start starts a server, which answers when Start returns. The caller must call Stop.
func Start(cfg Config) (*Server, error) {
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.Account == "" {
		cfg.Account = "123456789012"
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 120_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, clock: clock.New(cfg.Now)}
	s.SetAccessKey(cfg.AccessKey)
	if cfg.Addr == "" {
		port, err := loopback.Reserve()
		if err != nil {
			return nil, fmt.Errorf("sqs: start: %w", err)
		}
		s.port, s.cfg.Addr = port, port.Addr()
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("sqs: start: %w", err), s.Stop())
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

// Kill ends the server at once with all connections, like the death of its process: changes
// that are not in the journal are lost. If the server does not run, Kill does nothing.
func (s *Server) Kill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	s.mu.Lock()
	run := s.running
	s.running = nil
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	run.service.kill()
	err := run.http.Close()
	<-run.done
	run.handlers.Wait()
	if err = errors.Join(err, run.service.closeFile()); err != nil {
		return fmt.Errorf("sqs: kill: %w", err)
	}
	return nil
}

// Restart starts the server again after Kill, at its address, with the state in the journal;
// without a journal it is empty. If the server runs, Restart kills it first. The clock keeps
// its distance from the machine's clock; faults, switches and counts of requests stay.
func (s *Server) Restart() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.kill(); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return fmt.Errorf("sqs: restart: %w", err)
	}
	return nil
}

// Stop ends the server for good, and returns the first error because of which a request was
// not answered. The journal stays. A second call does nothing.
func (s *Server) Stop() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	err := s.kill()
	if s.port != nil {
		err = errors.Join(err, s.port.Release())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(err, s.err)
	s.err = nil
	return err
}

// listen starts a run.
func (s *Server) listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := newService(s.cfg, s.clock)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		st.kill()
		return errors.Join(err, st.closeFile())
	}
	if strings.HasSuffix(s.cfg.Addr, ":0") {
		s.cfg.Addr = listener.Addr().String()
	}
	run := &listening{service: st, done: make(chan struct{})}
	run.http = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(run, w, r) }),
		ReadHeaderTimeout: time.Hour, // a test may keep a connection for any time
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	s.running, s.service = run, st
	go func() {
		defer close(run.done)
		_ = run.http.Serve(listener) // ends when the server is killed
	}()
	return nil
}

// serve answers a request to a run. A request that arrives after Kill gets no answer, nor
// does a request that was read before but not executed.
func (s *Server) serve(run *listening, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	alive := s.running == run
	if alive {
		run.handlers.Add(1)
	}
	s.mu.Unlock()
	if !alive {
		panic(http.ErrAbortHandler)
	}
	defer run.handlers.Done()
	s.ServeHTTP(w, r)
}
