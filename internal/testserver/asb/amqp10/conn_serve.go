package amqp10

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"
)

// Serve reads the client's frames until the connection ends. When it returns, all its
// links and all its goroutines have ended. It returns nil after a close by either side,
// and otherwise the reason of the end.
func (c *Conn) Serve() error {
	go c.write()
	err := c.read()
	if violation, ok := errors.AsType[*Error](err); ok {
		c.finish(violation)
	}
	c.end(err)
	_ = c.net.Close() // the client sees the end even if this fails
	<-c.written
	c.pumps.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Close closes the connection with err, which may be nil, after the waiting frames are
// written. It waits a second for the client's answer. The handler, inlets and outlets
// must call it only in a separate goroutine.
func (c *Conn) Close(err *Error) {
	c.writeLast(err)
	select {
	case <-c.done:
	case <-time.After(lastWait):
	}
	_ = c.net.Close() // the client sees the end even if this fails
}

// finish is Close for the reader. It continues to read until the client has disconnected:
// a connection that is closed with unread bytes is reset, and the client may lose the
// reason.
func (c *Conn) finish(err *Error) {
	c.writeLast(err)
	if c.net.SetReadDeadline(time.Now().Add(lastWait)) == nil {
		_, _ = io.Copy(io.Discard, c.net)
	}
}

func (c *Conn) writeLast(err *Error) {
	c.mu.Lock()
	c.closeLocked(err)
	c.mu.Unlock()
	select {
	case <-c.written:
	case <-time.After(lastWait): // the client does not read
	}
	if tcp, ok := c.net.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

func (c *Conn) closeLocked(err *Error) {
	if c.closing || c.ended {
		return
	}
	if c.open != nil { // a close may not precede the open
		c.sendLocked(0, &Close{Error: err})
	}
	c.closing = true
	c.wakeLocked()
}

// LoseEnds makes the connection answer no more ends of sessions, as if the answers were lost.
func (c *Conn) LoseEnds() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losesEnds = true
}

// Cut resets the connection, like a lost network. Unwritten frames are lost.
func (c *Conn) Cut() {
	if tcp, ok := c.net.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the client sees a reset rather than an orderly end
	}
	c.end(errors.New("amqp10: the connection was cut"))
	_ = c.net.Close() // the client sees the end even if this fails
}

// end ends the connection and all its links. The reason of the first call is kept.
func (c *Conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	c.reason = reason
	var closed []*Link
	for _, s := range c.sessions {
		closed = append(closed, s.endLocked()...)
	}
	clear(c.sessions)
	close(c.done)
	c.readable.Broadcast()
	c.wakeLocked()
	c.mu.Unlock()
	for _, l := range closed {
		l.notifyClosed()
	}
}

// write writes the waiting frames, all of them with one call, and heartbeats.
func (c *Conn) write() {
	defer close(c.written)
	var spare []byte
	heartbeat := time.NewTimer(math.MaxInt64)
	defer heartbeat.Stop()
	for {
		select {
		case <-c.wake:
		case <-heartbeat.C:
			c.mu.Lock()
			if len(c.out) == 0 && !c.closing {
				c.out = appendHeartbeat(c.out)
			}
			c.mu.Unlock()
		}
		c.mu.Lock()
		if c.ended {
			c.mu.Unlock()
			return
		}
		b, last := c.out, c.closing
		c.out = spare[:0]
		c.readable.Broadcast()
		for _, l := range c.blocked {
			l.Wake()
		}
		c.blocked = c.blocked[:0]
		interval := time.Duration(math.MaxInt64)
		if c.open != nil && c.open.IdleTimeout > 0 {
			interval = max(c.open.IdleTimeout/2, time.Millisecond)
		}
		c.mu.Unlock()
		if len(b) > 0 {
			if _, err := c.net.Write(b); err != nil {
				c.end(fmt.Errorf("amqp10: write to %v: %w", c.net.RemoteAddr(), err))
				return
			}
		}
		if last {
			return
		}
		heartbeat.Reset(interval)
		if spare = b; cap(spare) > 2*pauseLinks {
			spare = nil
		}
	}
}

// deadlineReader sets a deadline before each read.
type deadlineReader struct {
	net     net.Conn
	timeout time.Duration // 0 or less: none
}

func (r *deadlineReader) Read(b []byte) (int, error) {
	var deadline time.Time
	if r.timeout > 0 {
		deadline = time.Now().Add(r.timeout)
	}
	if err := r.net.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return r.net.Read(b)
}

// read negotiates the connection and reads frames until the connection ends. It returns an
// *Error if the peer broke the protocol.
func (c *Conn) read() error {
	in := &deadlineReader{c.net, c.cfg.HandshakeTimeout}
	frames := newFrameReader(in, c.cfg.MaxFrameSize)
	if err := c.negotiate(frames); err != nil {
		return c.readError(err)
	}
	in.timeout = c.cfg.IdleTimeout
	for {
		f, err := frames.next()
		if err != nil {
			return c.readError(err)
		}
		if len(f.body) == 0 {
			continue
		}
		if f.kind != frameAMQP {
			return Errorf(ErrFraming, "a SASL frame after the authentication")
		}
		p, err := DecodePerformative(f.body)
		if err != nil {
			return Errorf(ErrDecode, "%v", err)
		}
		if _, ok := p.(*Close); ok {
			c.writeLast(nil)
			return nil
		}
		if c.isClosing() {
			continue
		}
		if violation := c.handle(f.channel, p); violation != nil {
			return violation
		}
		if !c.await() {
			return nil
		}
	}
}

// readError returns the reason for the end of the connection that follows from err.
func (c *Conn) readError(err error) error {
	var violation *Error
	switch {
	case errors.As(err, &violation):
		return violation
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Errorf(ErrResourceLimitExceeded, "the client was silent for too long; to fix: send heartbeats")
	case c.isClosing() || errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("amqp10: read from %v: %w", c.net.RemoteAddr(), err)
}

// isClosing reports whether the server has closed the connection.
func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// await waits until enough of the replies are written, and reports whether the connection
// is still open.
func (c *Conn) await() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > pauseReader && !c.ended && !c.closing {
		c.readable.Wait()
	}
	return !c.ended
}

// handle handles a frame of the open connection. It returns an error that closes the connection.
func (c *Conn) handle(channel uint16, p Performative) *Error {
	if begin, ok := p.(*Begin); ok {
		return c.begin(channel, begin)
	}
	c.mu.Lock()
	s := c.sessions[channel]
	c.mu.Unlock()
	if s == nil {
		switch p.(type) {
		case *End, *Detach:
			// The vendor's library ignores these: "The session close may timed out already"
			// (Azure/azure-amqp, AmqpConnection.OnReceiveSessionFrame). go-amqp v1.7.0 ends sessions whose
			// begin it has never sent (Conn.freeAbandonedSessions).
			return nil
		}
		return Errorf(ErrNotFound, "a %T on channel %d, on which no session has begun", p, channel)
	}
	if s.discards(p) {
		return nil
	}
	switch p := p.(type) {
	case *Attach:
		s.attach(p)
	case *Flow:
		s.flow(p)
	case *Transfer:
		s.transfer(p)
	case *Disposition:
		s.disposition(p)
	case *Detach:
		s.detach(p)
	case *End:
		s.end()
	default:
		return Errorf(ErrNotAllowed, "a %T on an open connection", p)
	}
	return nil
}

func (c *Conn) begin(channel uint16, p *Begin) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.RemoteChannel != nil {
		return Errorf(ErrNotAllowed, "a begin that answers one on channel %d, which the server never sent", *p.RemoteChannel)
	}
	if channel > c.cfg.ChannelMax {
		return Errorf(ErrFraming, "channel %d; the highest is %d", channel, c.cfg.ChannelMax)
	}
	if c.sessions[channel] != nil {
		return Errorf(ErrNotAllowed, "channel %d has a session already", channel)
	}
	if c.ended {
		return nil
	}
	s := &session{
		conn:                 c,
		channel:              channel,
		nextIncomingID:       p.NextOutgoingID,
		remoteIncomingWindow: p.IncomingWindow,
		links:                map[uint32]*Link{},
		unsettled:            map[uint32]unsettled{},
	}
	c.sessions[channel] = s
	c.sendLocked(channel, &Begin{
		RemoteChannel:  &channel,
		IncomingWindow: c.cfg.Window,
		OutgoingWindow: math.MaxInt32,
		HandleMax:      min(c.cfg.HandleMax, p.HandleMax),
	})
	return nil
}
