package wire

import (
	"encoding/binary"
	"io"
	"slices"
	"sync/atomic"
)

// DefaultFrameMax is the frame size that the broker and the client library agree on by
// default.
const DefaultFrameMax = 128 << 10

// frameReader passes the frames of a connection on to the client library. The library
// closes the connection when it cannot decode the headers of a message: the message would
// be redelivered on the next connection, close that one too, and block its queue. The
// reader replaces such headers by decodable ones with the reason in header.Undecodable. It
// passes on everything else unchanged.
//
// Only the goroutine that reads the connection uses it, except for frameMax.
type frameReader struct {
	frameMax atomic.Int64 // the negotiated maximum size of a frame, including the 8 bytes around the payload; 0: not known yet

	passThrough uint64 // remaining bytes of a frame that is passed on as it is read
	pending     []byte // input not passed on yet, from the beginning of a frame
	ready       []byte // output to pass on before anything else
	foreign     bool   // the other end does not speak AMQP: all input is passed on
}

// A frame consists of its type, channel and size, the payload, and frameEnd.
const (
	frameMethod    = 1
	frameHeader    = 2 // of a message: properties and headers
	frameBody      = 3
	frameHeartbeat = 8

	frameHead  = 1 + 2 + 4
	frameExtra = frameHead + 1
	frameEnd   = 0xCE

	// maxFrame is the size of the largest header frame that is examined. Brokers agree to
	// frames of 128 KiB unless they are configured otherwise.
	maxFrame = 4 << 20
)

// read reads from a connection as net.Conn.Read does.
func (f *frameReader) read(conn io.Reader, p []byte) (int, error) {
	for len(f.ready) == 0 {
		if len(f.pending) > 0 {
			if f.advance() {
				continue
			}
			f.pending = slices.Grow(f.pending, max(f.missing(), 4<<10))
			n, err := conn.Read(f.pending[len(f.pending):cap(f.pending)])
			f.pending = f.pending[:len(f.pending)+n]
			if n == 0 {
				return 0, err
			}
			continue
		}
		n, err := conn.Read(p)
		if f.foreign || n == 0 {
			return n, err
		}
		passed := f.scan(p[:n])
		f.pending = append(f.pending[:0], p[passed:n]...)
		if passed > 0 {
			if len(f.pending) > 0 {
				err = nil // it is returned by the next read
			}
			return passed, err
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// advance moves complete input from pending to ready. It returns false if more must be read
// first.
func (f *frameReader) advance() bool {
	n := f.scan(f.pending)
	if n > 0 {
		f.ready, f.pending = f.pending[:n], f.pending[n:]
		return true
	}
	if f.missing() > 0 {
		return false
	}
	size := frameSize(f.pending)
	f.ready = rewriteHeader(f.pending[:size], f.limit())
	f.pending = f.pending[size:]
	return true
}

// missing returns how many bytes the first frame in pending still lacks, as far as is
// known.
func (f *frameReader) missing() int {
	if len(f.pending) < frameHead {
		return frameHead - len(f.pending)
	}
	return max(0, int(frameSize(f.pending))-len(f.pending)) // a frame in pending has at most maxFrame bytes
}

func (f *frameReader) limit() int {
	if n := int(f.frameMax.Load()); n > 0 {
		return n
	}
	return DefaultFrameMax
}

// scan returns how many bytes of the input can be passed on unchanged. It stops before a
// message header that is incomplete or has to be rewritten.
func (f *frameReader) scan(p []byte) int {
	n := min(f.passThrough, uint64(len(p)))
	f.passThrough -= n
	at := int(n)
	for at < len(p) {
		frame := p[at:]
		switch frame[0] {
		case frameMethod, frameHeader, frameBody, frameHeartbeat:
		default:
			f.foreign = true
			return len(p)
		}
		if len(frame) < frameHead {
			return at
		}
		size := frameSize(frame)
		if frame[0] == frameHeader && size <= maxFrame {
			if uint64(len(frame)) < size || f.mustRewrite(frame[:size]) {
				return at
			}
			at += int(size)
			continue
		}
		n := min(size, uint64(len(frame)))
		f.passThrough = size - n
		at += int(n)
	}
	return at
}

// frameSize returns the size of a whole frame, given at least its first frameHead bytes.
func frameSize(frame []byte) uint64 {
	return uint64(binary.BigEndian.Uint32(frame[3:])) + frameExtra
}

// mustRewrite reports whether the client library would refuse a message's header.
func (f *frameReader) mustRewrite(frame []byte) bool {
	h, ok := parseHeader(frame)
	return ok && (len(frame) > f.limit() || checkTable(h.table, 0) != "")
}
