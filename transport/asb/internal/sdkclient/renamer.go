package sdkclient

import (
	"encoding/binary"
	"errors"
	"io"
)

// renamer reads a connection, and makes the messages in its frames readable before go-amqp decodes them (see
// makeReadable): among other changes it renames keys of properties.
//
// A message in several frames is kept until its last frame has arrived. Then its first frame gets the whole message, and
// the others have none: go-amqp counts frames. Until then go-amqp would only have collected them.
type renamer struct {
	in         []byte // in[read:written] is not passed on yet
	read       int
	written    int
	out        []byte // is passed on next: a part of in, or a message that was kept
	unfinished map[linkHandle]*unfinishedMessage
}

// linkHandle identifies a link of a connection as its peer does.
type linkHandle struct {
	channel uint16
	handle  uint32
}

// unfinishedMessage is a message whose last frame has not arrived.
type unfinishedMessage struct {
	first   []byte // the first frame, with the content of all
	content int    // where that begins
	others  []byte // further frames, without content
}

const (
	frameHeader = 8
	// minBuffer and maxBuffer are the sizes of the buffer, which is larger only for a larger frame.
	minBuffer, maxBuffer = 4 << 10, 64 << 10
	// maxFrame is more than the largest frame: go-amqp allows the peer 64 KiB.
	maxFrame = 1 << 20
	// maxUnfinished is more than the largest message of the service, which has 100 MiB.
	maxUnfinished = 128 << 20
)

var errFrameTooLarge = errors.New("the service has sent a frame of AMQP or a message that is larger than it may be")

// Read reads from conn as it would itself.
func (r *renamer) Read(conn io.Reader, p []byte) (n int, err error) {
	for len(r.out) == 0 {
		switch complete, err := r.next(); {
		case err != nil:
			return 0, err
		case complete:
			continue
		}
		if err := r.fill(conn); err != nil {
			return 0, err
		}
	}
	n = copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// fill reads more bytes.
func (r *renamer) fill(conn io.Reader) error {
	wasFull := r.written == len(r.in)
	r.written = copy(r.in, r.in[r.read:r.written])
	r.read = 0
	if r.written == len(r.in) || wasFull && len(r.in) < maxBuffer {
		grown := make([]byte, max(minBuffer, 2*len(r.in)))
		copy(grown, r.in[:r.written])
		r.in = grown
	}
	n, err := conn.Read(r.in[r.written:])
	r.written += n
	if n > 0 {
		return nil // the next call returns the error
	}
	return err
}

// next passes on the complete frames in a row that have arrived, and reports whether there were any.
func (r *renamer) next() (complete bool, err error) {
	begin := r.read
	for {
		frame, err := r.frame()
		if err != nil || frame == nil {
			r.out = r.in[begin:r.read]
			return r.read > begin, err
		}
		kept, finished, err := r.readFrame(frame)
		if err != nil {
			return false, err
		}
		if !kept {
			r.read += len(frame)
			continue
		}
		// The frames before go first.
		r.out = r.in[begin:r.read]
		r.read += len(frame)
		if len(finished) > 0 && len(r.out) > 0 {
			finished = append(append(make([]byte, 0, len(r.out)+len(finished)), r.out...), finished...)
		}
		if len(finished) > 0 {
			r.out = finished
		}
		return true, nil
	}
}

// frame returns the next frame, or nil if it has not arrived.
func (r *renamer) frame() ([]byte, error) {
	arrived := r.in[r.read:r.written]
	if len(arrived) < frameHeader {
		return nil, nil
	}
	size := binary.BigEndian.Uint32(arrived)
	switch {
	case string(arrived[:4]) == "AMQP": // the protocol's version, before its frames
		size = frameHeader
	case size < frameHeader || size > maxFrame:
		return nil, errFrameTooLarge
	}
	if uint64(len(arrived)) < uint64(size) {
		return nil, nil
	}
	return arrived[:size], nil
}

// The codes of AMQP's performatives (section 2.7).
const (
	performativeTransfer = 0x14
	performativeDetach   = 0x16
	performativeEnd      = 0x17
)

// readFrame makes the message of a frame readable. It reports whether the frame is kept; with the last frame of a
// message it returns all of them.
func (r *renamer) readFrame(frame []byte) (kept bool, finished []byte, err error) {
	if string(frame[:4]) == "AMQP" || frame[5] != 0 {
		return false, nil, nil
	}
	code, fields, ok := descriptor(frame, frameHeader) // go-amqp knows no extended header either
	if !ok || code != performativeTransfer && code != performativeDetach && code != performativeEnd {
		return false, nil, nil
	}
	channel := binary.BigEndian.Uint16(frame[6:])
	if code == performativeEnd {
		for link := range r.unfinished {
			if link.channel == channel {
				delete(r.unfinished, link)
			}
		}
		return false, nil, nil
	}
	handle, more, content, ok := linkFields(frame, fields)
	if !ok {
		return false, nil, nil
	}
	link := linkHandle{channel, handle}
	if code == performativeDetach {
		delete(r.unfinished, link)
		return false, nil, nil
	}
	var m *unfinishedMessage
	if len(r.unfinished) > 0 {
		m = r.unfinished[link]
	}
	switch {
	case m == nil && !more:
		makeReadable(frame[content:])
		return false, nil, nil
	case m == nil:
		if r.unfinished == nil {
			r.unfinished = map[linkHandle]*unfinishedMessage{}
		}
		r.unfinished[link] = &unfinishedMessage{first: append([]byte(nil), frame...), content: content}
		return true, nil, nil
	}
	m.first = append(m.first, frame[content:]...)
	empty := len(m.others)
	m.others = append(m.others, frame[:content]...)
	binary.BigEndian.PutUint32(m.others[empty:], uint32(content))
	if len(m.first) > maxUnfinished {
		return false, nil, errFrameTooLarge
	}
	if more {
		return true, nil, nil
	}
	delete(r.unfinished, link)
	binary.BigEndian.PutUint32(m.first, uint32(len(m.first)))
	makeReadable(m.first[m.content:])
	return true, append(m.first, m.others...), nil
}

// linkFields returns the handle of the link of a transfer or detach, and of a transfer whether there is more of its message, and where
// its content begins.
func linkFields(frame []byte, i int) (handle uint32, more bool, content int, ok bool) {
	if i >= len(frame) || frame[i] != codeList8 && frame[i] != codeList32 {
		return 0, false, 0, false
	}
	i, count, end, ok := compound(frame, i)
	if !ok {
		return 0, false, 0, false
	}
	fields := frame[:end]
	for field := range min(count, 6) {
		next := 0
		if i < end {
			next = skip(fields, i)
		}
		if next == 0 {
			return 0, false, 0, false
		}
		switch code := fields[i]; {
		case field == 0 && code == 0x52:
			handle = uint32(fields[i+1])
		case field == 0 && code == 0x70:
			handle = binary.BigEndian.Uint32(fields[i+1:])
		case field == 5:
			more = code == 0x41 || code == 0x56 && fields[i+1] != 0
		}
		i = next
	}
	return handle, more, end, true
}
