package sdkclient

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"github.com/Azure/go-amqp"
)

// frameOf returns a frame with a performative, whose fields are encoded, and a content.
func frameOf(channel uint16, code byte, content []byte, fields ...[]byte) []byte {
	body := append(section(code, of8(codeList8, fields...)...), content...)
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(b, 2, 0, byte(channel>>8), byte(channel)), body...)
}

// transfer returns a frame with a part of a message.
func transfer(channel uint16, handle byte, more bool, content []byte) []byte {
	code := byte(0x42)
	if more {
		code = 0x41
	}
	return frameOf(channel, performativeTransfer, content, []byte{0x52, handle}, smallLong, []byte{codeBinary8, 1, 't'}, []byte{0x43}, []byte{0x42}, []byte{code})
}

// contents returns the contents of the transfers of each link, and the number of frames.
func contents(t *testing.T, b []byte) (byLink map[linkHandle][]byte, frames int) {
	t.Helper()
	byLink = map[linkHandle][]byte{}
	for ; len(b) > 0; frames++ {
		if len(b) < frameHeader || string(b[:4]) != "AMQP" && int(binary.BigEndian.Uint32(b)) > len(b) {
			t.Fatalf("after %d frames the rest is %x", frames, b)
		}
		size := frameHeader
		if string(b[:4]) != "AMQP" {
			size = int(binary.BigEndian.Uint32(b))
		}
		frame := b[:size]
		b = b[size:]
		if size == frameHeader {
			continue
		}
		code, fields, _ := descriptor(frame, frameHeader)
		if handle, _, content, ok := linkFields(frame, fields); ok && code == performativeTransfer {
			link := linkHandle{binary.BigEndian.Uint16(frame[6:]), handle}
			byLink[link] = append(byLink[link], frame[content:]...)
		}
	}
	return byLink, frames
}

func TestRenamer_ReadsFrames(t *testing.T) {
	t.Parallel()
	bad := append(section(sectionAppProperties, of32(codeMap32, text8("DeadLetterReason"), smallLong)...), data...)
	large := append(append(section(sectionAppProperties, of32(codeMap32, text8("DeadLetterReason"), smallLong)...), 0, 0x53, sectionData, codeBinary32, 0, 3, 0, 0), bytes.Repeat([]byte("x"), 3<<16)...)
	stream := bytes.Join([][]byte{
		[]byte("AMQP\x03\x01\x00\x00"), {0, 0, 0, 8, 2, 1, 0, 0}, []byte("AMQP\x00\x01\x00\x00"), {0, 0, 0, 8, 2, 0, 0, 0},
		transfer(0, 0, false, bad),
		transfer(0, 1, true, large[:10]), // within a key
		transfer(1, 1, true, bad[:4]),
		transfer(0, 0, false, bad),
		transfer(0, 1, true, large[10:30]),
		transfer(1, 1, false, bad[4:]),
		transfer(0, 1, true, large[30:90_000]),
		transfer(0, 1, false, large[90_000:]),
		transfer(2, 7, true, bad[:5]), // its link ends
		frameOf(2, performativeDetach, nil, []byte{0x52, 7}),
		transfer(2, 7, false, bad),
		transfer(3, 0, true, bad[:5]), // its session ends
		frameOf(3, performativeEnd, nil),
		transfer(3, 0, false, bad),
		frameOf(0, 0x13, nil, []byte{0x43}),
	}, nil)
	for name, conn := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "by halves": iotest.HalfReader(bytes.NewReader(stream)), "by bytes": iotest.OneByteReader(bytes.NewReader(stream)),
		"with the error": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		var r renamer
		var read bytes.Buffer
		p := make([]byte, 1000)
		for {
			n, err := r.Read(conn, p)
			read.Write(p[:n])
			if err != nil {
				break
			}
		}
		got, frames := contents(t, read.Bytes())
		if want := 19 - 2; frames != want {
			t.Errorf("%s: there are %d frames, want %d", name, frames, want)
		}
		for link, want := range map[linkHandle]int{{0, 0}: 2, {0, 1}: 1, {1, 1}: 1, {2, 7}: 1, {3, 0}: 1} {
			content := got[link]
			if size := len(bad); want == 2 && len(content) == 2*size {
				content = content[:size]
			}
			var m amqp.Message
			if err := m.UnmarshalBinary(content); err != nil || m.ApplicationProperties["deadLetterReason"] != int64(5) || len(m.GetData()) != 4 && len(m.GetData()) != 3<<16 {
				t.Errorf("%s: link %v has %v, %v, %d bytes", name, link, err, m.ApplicationProperties, len(m.GetData()))
			}
		}
	}
}

func TestRenamer_RefusesFramesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	for _, size := range []uint32{0, 7, maxFrame + 1, 1 << 31} {
		var r renamer
		if _, err := r.Read(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, size), 2, 0, 0, 0, 1)), make([]byte, 10)); err == nil {
			t.Errorf("a frame of %d bytes is read", size)
		}
	}
}

// endless repeats bytes.
type endless struct {
	b []byte
	i int
}

func (e *endless) Read(p []byte) (n int, err error) {
	n = copy(p, e.b[e.i:])
	e.i = (e.i + n) % len(e.b)
	return n, nil
}

// healthy returns a frame with a message as Reprise sends it.
func healthy(t testing.TB) []byte {
	t.Helper()
	id := "4711"
	m := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: id}, Annotations: amqp.Annotations{"x-opt-sequence-number": int64(1)}, Data: [][]byte{bytes.Repeat([]byte("x"), 300)}}
	m.ApplicationProperties = map[string]any{}
	for _, key := range []string{"NServiceBus.MessageId", "NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType", "NServiceBus.TimeSent", "NServiceBus.OriginatingEndpoint"} {
		m.ApplicationProperties[key] = "a value of usual length"
	}
	encoded, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return transfer(0, 0, false, encoded)
}

func TestRenamer_AllocatesNothingForAMessage(t *testing.T) {
	frame := healthy(t)
	conn, p := &endless{b: frame}, make([]byte, len(frame))
	var r renamer
	read := func() {
		if _, err := io.ReadFull(readerFunc(func(p []byte) (int, error) { return r.Read(conn, p) }), p); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // until the buffer has its size
		read()
	}
	if n := testing.AllocsPerRun(1000, func() {
		for left := len(p); left > 0; {
			n, _ := r.Read(conn, p[:left])
			left -= n
		}
	}); n != 0 {
		t.Errorf("there are %v allocations for a message", n)
	}
	if !bytes.Equal(p[:8], frame[:8]) {
		t.Error("the frame has changed")
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func BenchmarkRenamer(b *testing.B) {
	frame := healthy(b)
	conn, p := &endless{b: bytes.Repeat(frame, 100)}, make([]byte, 4096)
	var r renamer
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		for left := len(frame); left > 0; {
			n, _ := r.Read(conn, p[:min(left, len(p))])
			left -= n
		}
	}
}
