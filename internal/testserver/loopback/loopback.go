//go:build darwin || linux

// Package loopback keeps ports of 127.0.0.1 for servers that tests start.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// A Port is a TCP port of 127.0.0.1. Its methods may be called concurrently.
type Port struct {
	number  int
	release func() error
}

// Reserve returns a port that nobody uses, and that nobody else gets until
// Release: neither another Reserve or a listener on port 0, in whatever process,
// nor an outgoing connection. Whoever knows the number can listen on it, with
// SO_REUSEADDR as net.Listen and every server set it, and may end and start
// again without losing it. (On macOS the port is free rather than kept.)
func Reserve() (*Port, error) {
	p, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("loopback: reserve a port of 127.0.0.1: %w", err)
	}
	return p, nil
}

// Number returns the port's number.
func (p *Port) Number() int { return p.number }

// Addr returns the port's address, such as "127.0.0.1:40000".
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Release gives the port back. Whoever listens on it is not affected.
func (p *Port) Release() error {
	if err := p.release(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("loopback: release port %d: %w", p.number, err)
	}
	return nil
}
