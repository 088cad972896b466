//go:build darwin || linux

package rabbitmq

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// A client sends header first, and a server answers with a method frame: start, of the class
// connection.
const (
	header          = "AMQP\x00\x00\x09\x01"
	methodFrame     = 1
	connectionStart = 10<<16 | 10
)

type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// greet returns an error unless a server of AMQP 0-9-1 answers at addr.
func greet(ctx context.Context, d dialer, addr string) error {
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the answer has been read
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, header); err != nil {
		return err
	}
	var frame struct {
		Type    uint8
		Channel uint16
		Size    uint32
		Method  uint32
	}
	if err := binary.Read(c, binary.BigEndian, &frame); err != nil {
		return fmt.Errorf("%s does not answer in AMQP: %w", addr, err)
	}
	if frame.Type != methodFrame || frame.Method != connectionStart {
		return fmt.Errorf("%s answers %v, not connection.start", addr, frame)
	}
	return nil
}
