package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// FuzzFrameReader reads any bytes of a broker: in one piece and byte by byte it passes the
// same ones on, and each frame of headers among them can be decoded.
func FuzzFrameReader(f *testing.F) {
	for _, in := range []string{
		"", "AMQP\x00\x00\x09\x01", aFrame(frameMethod, "start"), aFrame(frameHeartbeat, "") + aHeader(every()) + aFrame(frameBody, "body"),
		aHeader(entry1("a", deep(200))) + aFrame(frameBody, "x"), aHeader(entry1("a", "?")), aHeader(entry1("a", "V"))[:20], aFrame(frameMethod, "m") + "garbage",
		"\x02\x00\x01\xff\xff\xff\xff", "\x03\x00\x01\xff\xff\xff\xffbody", "\x02\x00\x01\x00\x00\x00\x00\xce", aHeader(entry1("a", withLength('F', entry1("b", "?")))) + aHeader(entry1("b", deep(40))),
	} {
		f.Add([]byte(in), uint16(4096))
		f.Add([]byte(in), uint16(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, frameMax uint16) {
		if frameMax > 0 && frameMax < 4096 {
			frameMax = 4096 // the smallest that AMQP allows
		}
		reads := 0
		whole := readAll(t, bytes.NewReader(in), int64(frameMax), &reads)
		if limit := 2*len(in) + 8; reads > limit {
			t.Errorf("%d bytes took %d reads", len(in), reads)
		}
		bytewise := readAll(t, iotest.OneByteReader(bytes.NewReader(in)), int64(frameMax), new(int))
		if !bytes.Equal(whole, bytewise) {
			t.Fatalf("%q is passed on as %q in one piece, and as %q byte by byte", in, whole, bytewise)
		}
		// Of a frame of headers 64 bytes are added to say why it was rewritten, and the table
		// itself, compressed and in base64.
		if len(whole) > 64*len(in)+4096 {
			t.Errorf("%d bytes have become %d", len(in), len(whole))
		}
		for rest := whole; len(rest) >= frameHead; {
			size := frameSize(rest)
			if rest[0] > frameHeartbeat || size > uint64(len(rest)) {
				break
			}
			if frame := rest[:size]; frame[0] == frameHeader && size <= maxFrame {
				if h, ok := parseHeader(frame); ok && checkTable(h.table, 0) != "" {
					t.Errorf("of %q the headers %q are passed on: %s", in, h.table, checkTable(h.table, 0))
				}
			}
			rest = rest[size:]
		}
	})
}

// readAll returns the bytes that a frameReader passes on, and counts its reads.
func readAll(t *testing.T, from io.Reader, frameMax int64, reads *int) []byte {
	t.Helper()
	f := &frameReader{}
	f.frameMax.Store(frameMax)
	out, err := io.ReadAll(readerFunc(func(p []byte) (int, error) { *reads++; return f.read(from, p) }))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return out
}
