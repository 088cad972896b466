//go:build darwin || linux

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
	"github.com/reprise-go/reprise/internal/testserver/process"
)

// StartStandby starts a hot standby of s: another server with a copy of its data, which
// follows s, answers queries, and refuses writes until Promote. The caller must call Stop,
// before that of s.
func (s *Server) StartStandby() (*Server, error) {
	standby, err := s.startStandby()
	if err != nil {
		return nil, fmt.Errorf("postgres: start a standby: %w", err)
	}
	return standby, nil
}

func (s *Server) startStandby() (*Server, error) {
	// No other machine can reach the server, and the superuser needs no password anyway.
	if err := s.dir.appendFile("pg_hba.conf", "host replication postgres 127.0.0.1/32 trust\n"); err != nil {
		return nil, err
	}
	if _, err := s.psql(context.Background(), "postgres", "select pg_reload_conf()"); err != nil {
		return nil, err
	}
	dir, err := newDirectory(s.dir.account, s.onDisk)
	if err != nil {
		return nil, err
	}
	port, err := loopback.Reserve()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	standby := &Server{bin: s.bin, dir: dir, onDisk: s.onDisk, port: port, log: &process.Tail{}}
	err = s.bin.copyServer(s.Addr(), dir)
	if err == nil {
		err = standby.life.Begin(standby.run)
	}
	if err != nil {
		return nil, errors.Join(err, standby.Stop())
	}
	return standby, nil
}

// copyServer copies the data of a running server so that a server on the copy follows it.
func (p programs) copyServer(addr string, to *directory) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	var out process.Tail
	cmd := p.serverCommand(to, "pg_basebackup", "-D", to.data, "-h", host, "-p", port, "-U", "postgres",
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	copying, err := process.Start(cmd, &out, death)
	if err != nil {
		return err
	}
	if err := copying.Wait(); err != nil {
		return fmt.Errorf("pg_basebackup: %w:\n%s", err, &out)
	}
	return nil
}

// Promote ends recovery, and returns when the server accepts writes.
func (s *Server) Promote() error {
	if _, err := s.psql(context.Background(), "postgres", "select pg_promote()"); err != nil {
		return fmt.Errorf("postgres: promote: %w", err)
	}
	return nil
}
