//go:build darwin || linux

// Package loopback reserves ports of 127.0.0.1 for servers that tests start.
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

// Reserve returns an unused port and reserves it until Release: no other Reserve, no listener
// on port 0, in any process, and no outgoing connection gets it. A process that knows the
// number can listen on it, with SO_REUSEADDR as net.Listen and every server set it, and may
// stop and listen again without losing it. (On macOS the port is free but not reserved.)
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

// Release ends the reservation. A process that listens on the port is not affected.
func (p *Port) Release() error {
	if err := p.release(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("loopback: release port %d: %w", p.number, err)
	}
	return nil
}
