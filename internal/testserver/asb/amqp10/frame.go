package amqp10

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	frameHeader = 8 // bytes before the body, without an extended header

	frameAMQP = 0
	frameSASL = 1

	// minMaxFrameSize is the smallest limit of frames that a peer may set: AMQP 1.0, part 2, section 2.7.1.
	minMaxFrameSize = 512
)

// Protocol headers of AMQP 1.0, part 2, section 2.2, and part 5, section 5.3.
var (
	headerAMQP = [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	headerSASL = [8]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}
)

// frame is a frame whose body is part of the reader's buffer until the next one is read.
type frame struct {
	kind    byte
	channel uint16
	body    []byte // empty: a heartbeat
}

// frameReader reads frames of up to max bytes.
type frameReader struct {
	r       *bufio.Reader
	max     int
	discard int // bytes of the last frame that are still in the buffer
}

func newFrameReader(r io.Reader, limit int) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, limit), max: limit}
}

func (f *frameReader) protocolHeader() (h [8]byte, err error) {
	if err := f.pass(); err != nil {
		return h, err
	}
	_, err = io.ReadFull(f.r, h[:])
	return h, err
}

// pass discards the last frame.
func (f *frameReader) pass() error {
	_, err := f.r.Discard(f.discard)
	f.discard = 0
	return err
}

// next reads a frame. It returns an *Error if the peer broke the protocol.
func (f *frameReader) next() (frame, error) {
	if err := f.pass(); err != nil {
		return frame{}, err
	}
	h, err := f.r.Peek(frameHeader)
	if err != nil {
		return frame{}, err
	}
	size, offset := binary.BigEndian.Uint32(h), int(h[4])*4
	kind, channel := h[5], binary.BigEndian.Uint16(h[6:])
	switch {
	case size > uint32(f.max):
		return frame{}, Errorf(ErrFraming, "a frame of %d bytes; the limit is %d", size, f.max)
	case offset < frameHeader || offset > int(size):
		return frame{}, Errorf(ErrFraming, "a frame of %d bytes whose body begins at byte %d", size, offset)
	case kind != frameAMQP && kind != frameSASL:
		return frame{}, Errorf(ErrFraming, "a frame of the type %d", kind)
	}
	b, err := f.r.Peek(int(size))
	if err != nil {
		return frame{}, err
	}
	f.discard = int(size)
	return frame{kind: kind, channel: channel, body: b[offset:]}, nil
}

// appendFrame appends a frame with p to b. A body longer than limit is an error.
func appendFrame(b []byte, kind byte, channel uint16, p Performative, limit int) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0, frameHeader/4, kind, byte(channel>>8), byte(channel))
	b, err := p.appendTo(b)
	if err != nil {
		return b[:start], err
	}
	size := len(b) - start
	if size > limit {
		return b[:start], fmt.Errorf("amqp10: a %T takes %d bytes; the peer's limit is %d", p, size, limit)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(size))
	return b, nil
}

func appendHeartbeat(b []byte) []byte {
	return append(b, 0, 0, 0, frameHeader, frameHeader/4, frameAMQP, 0, 0)
}
